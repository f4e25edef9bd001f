"""LangChain: its middleware that clears tool uses, and `trim_messages`; tokens counted with the same vocabulary."""

import json
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, os.environ["CONTEXTSTASH_SOURCES"])

from langchain.agents.middleware import ClearToolUsesEdit
from langchain_core.messages import convert_to_messages, trim_messages

from contextstash.tokenizer import count_with

WINDOW = 200_000
count_text = count_with("o200k_base")


def count(messages) -> int:  # type: ignore[no-untyped-def]
    calls = (json.dumps(call["args"]) for message in messages for call in getattr(message, "tool_calls", ()))
    return sum(count_text(str(message.content)) + 4 for message in messages) + sum(map(count_text, calls))


def cleared(messages) -> None:  # type: ignore[no-untyped-def]
    ClearToolUsesEdit(trigger=WINDOW, keep=3).apply(list(messages), count_tokens=count)


def trimmed(messages) -> None:  # type: ignore[no-untyped-def]
    trim_messages(messages, max_tokens=WINDOW, token_counter=count, strategy="last", include_system=True)


def timed(work, messages) -> float:  # type: ignore[no-untyped-def]
    begun = time.perf_counter()
    work(messages)
    return (time.perf_counter() - begun) * 1_000


source = convert_to_messages([json.loads(line) for line in Path(sys.argv[1]).read_text(encoding="utf-8").splitlines()])
count(source[:2])
figures = {}
for how, work in (("ClearToolUsesEdit", cleared), ("trim_messages", trimmed)):
    figures[f"fit a list into the window: {how}"] = timed(work, source[:-2])
    figures[f"the same after one more turn: {how}"] = timed(work, source)
print(json.dumps(figures))
