"""headroom: its compressors, offline."""

import json
import sys
import time
from pathlib import Path

from headroom import compress


def timed(messages) -> float:  # type: ignore[no-untyped-def]
    begun = time.perf_counter()
    compress(messages, model="gpt-5")
    return (time.perf_counter() - begun) * 1_000


source = [json.loads(line) for line in Path(sys.argv[1]).read_text(encoding="utf-8").splitlines()]
compress(source[:3], model="gpt-5")
figures = {"fit a list into the window": timed(source[:-2]), "the same after one more turn": timed(source)}
print(json.dumps(figures))
