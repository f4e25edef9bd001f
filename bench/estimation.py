"""Measures the error of token estimates against the prompt totals that providers reported in real sessions.

Increments: the tokens of new tool results, in steps that added nothing else: the next prompt minus this prompt minus
the reply. Claude Code records the completion tokens while a reply streams, so for it the larger of the reported and the
counted tokens is used; text that it adds to prompts without recording it (reminders) is part of the true value. The
weighted error is the sum of absolute errors divided by the true sum, so large results weigh more; the mean error gives
each increment the same weight. Every other session is used to fit a family's factor and overhead (`fitted`, the
smallest mean error), the rest to evaluate; increments under 200 tokens are left out.

Sessions: the error of all increments of a session together: how far off an estimate is before the first
report, if everything is recorded. Sessions with less than MIN_SESSION_TOKENS of them are left out.

Contexts: the estimate just before each reply, anchored on the last report as in the product, compared with the prompt
total of that reply. Steps over a compaction, rewind or clearing by the client are left out, and those in which the
reported prompt fell.
"""

from __future__ import annotations

import argparse
import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from contextstash.context.view.session_counters import count_message, estimate
from contextstash.context.window.settings import ContextSettings
from contextstash.context.window.token_counters import Counter, counter_for, family_of, measure
from contextstash.formats import get_format
from contextstash.formats.base import Reading
from contextstash.hosts.readers.kinds import recognize
from contextstash.hosts.readers.transcript import split_lines
from contextstash.service.recording.transcript_records import TranscriptMessage
from contextstash.tokenizer import count_with
from contextstash_storage.errors import ContextstashError
from contextstash_storage.records import Counters, NewMessage

SETTINGS = ContextSettings()
MIN_INCREMENT_TOKENS = 200
"""Smaller increments are mostly overhead and noise."""

MIN_SESSION_TOKENS = 3_000
"""Of fewer tokens of tool results, one with an odd text decides a session's error."""


@dataclass(frozen=True)
class Read:
    """A message, and whether its client changed its own window just before it (`cut`)."""

    message: NewMessage
    reading: Reading
    model: str | None
    cut: bool


@dataclass(frozen=True)
class Increment:
    """Tool results that one step added: their tokens by the provider's report, their counted tokens and characters, and
    their number."""

    true: int
    raw: int
    characters: int
    results: int


@dataclass
class Sample:
    """The measurements of one model family, session by session."""

    increments: list[list[Increment]] = field(default_factory=list)
    contexts: list[float] = field(default_factory=list)
    models: set[str] = field(default_factory=set)


@dataclass
class Step:
    """The last usage report, and what was added since."""

    prompt: int
    group: str | None
    completion: int
    counted: int
    results: list[Reading] = field(default_factory=list)
    clean: bool = True


def read_session(path: Path) -> list[Read]:
    """The main session of a trace, with its messages measured by the product's own functions."""
    lines, _ = split_lines(path.read_bytes(), at_end=True)
    batches = recognize(path).read(lines, {}, str(path))
    if not batches:
        return []
    session = batches[0].session
    found = [
        message for batch in batches if batch.session.session_id == session.session_id for message in batch.messages
    ]
    model = next((message.model for message in found if message.model), session.model) or _model_by_name(path)
    return list(_measured(found, session.format, model))


def _model_by_name(path: Path) -> str | None:
    return "gpt-4.1" if path.name.startswith("gpt41") else None


def _measured(messages: Sequence[TranscriptMessage], format_name: str, model: str | None) -> Iterator[Read]:
    fmt = get_format(format_name)
    for message in messages:
        try:
            reading = fmt.read(message.body)
        except ContextstashError:
            continue
        model = model or reading.model or (message.body.get("usage") or {}).get("model")
        new = NewMessage(
            body={},
            role=reading.role,
            blocks=measure(reading, counter_for(model, SETTINGS, count_with), SETTINGS),
            usage=message.usage or reading.usage,
            group=message.group or reading.group,
        )
        cut = message.covers_before or message.rewind_to_key is not None or bool(message.cleared_call_ids)
        yield Read(new, reading, model, cut)


def increments_of(session: Sequence[Read], *, counted_replies: bool) -> Iterator[Increment]:
    """The steps of a session in which nothing but tool results was added."""
    step: Step | None = None
    for read in session:
        message = read.message
        usage = message.usage
        if read.cut:
            step = None
        if usage is None:
            _add(step, read)
        elif step is not None and usage.prompt_tokens == step.prompt and message.group == step.group:
            step.counted += message.tokens
            step.completion = max(step.completion, usage.completion_tokens)
        else:
            if step is not None and step.clean and step.results:
                yield from _increment(step, usage.prompt_tokens, counted_replies)
            step = Step(usage.prompt_tokens, message.group, usage.completion_tokens, message.tokens)


def _add(step: Step | None, read: Read) -> None:
    if step is None:
        return
    if read.message.role == "assistant":
        step.counted += read.message.tokens
    elif all(block.type == "tool_result" for block in read.reading.blocks):
        step.results.append(read.reading)
    else:
        step.clean = False


def _increment(step: Step, prompt: int, counted_replies: bool) -> Iterator[Increment]:
    true = prompt - step.prompt - max(step.completion, step.counted if counted_replies else 0)
    texts = [text for reading in step.results for text in reading.texts]
    raw = sum(count_with("o200k_base")(text) for text in texts)
    if true >= MIN_INCREMENT_TOKENS:
        yield Increment(true, raw, sum(len(text) for text in texts), len(texts))


def context_errors(session: Sequence[Read]) -> Iterator[float]:
    """Relative errors, in percent, of the estimate just before each reply that begins a new report."""
    counters = Counters()
    clean = False
    before_reply: int | None = None
    last = 0
    for seq, read in enumerate(session):
        usage = read.message.usage
        clean = clean and not read.cut
        if read.message.role != "assistant":
            before_reply = None
        elif before_reply is None:
            before_reply, _ = estimate(counters, SETTINGS, "")
        if usage is not None:
            if clean and before_reply is not None and usage.prompt_tokens > last:
                yield 100 * (before_reply - usage.prompt_tokens) / usage.prompt_tokens
            clean, last, before_reply = True, usage.prompt_tokens, None
        counters = count_message(counters, read.message, seq)


def errors(increments: Sequence[Increment], factor: float, overhead: float) -> list[float]:
    """Relative errors of a factor on raw counts plus an overhead per result."""
    return [(one.raw * factor + overhead * one.results - one.true) / one.true for one in increments]


def session_errors(sample: Sample) -> list[float]:
    """The error of each session's increments together, in percent, in order: as they are counted without reports."""
    counter = counter_for(min(sample.models, default=None), SETTINGS, count_with)
    found = []
    for session in sample.increments:
        true = sum(one.true for one in session)
        if true >= MIN_SESSION_TOKENS:
            counted = sum(one.raw * counter.factor + counter.result_overhead * one.results for one in session)
            found.append(100 * (counted - true) / true)
    return sorted(found)


def mean_error(found: Sequence[float]) -> float:
    return 100 * statistics.mean(abs(error) for error in found)


def weighted_error(found: Sequence[float], increments: Sequence[Increment]) -> float:
    off = sum(abs(error) * one.true for error, one in zip(found, increments, strict=True))
    return 100 * off / sum(one.true for one in increments)


def fitted(increments: Sequence[Increment]) -> tuple[float, int]:
    """The factor and overhead with the smallest mean absolute error."""
    grid = [(step / 100, overhead) for step in range(90, 166, 1) for overhead in range(0, 81, 5)]
    return min(grid, key=lambda pair: mean_error(errors(increments, *pair)))


def report(label: str, sample: Sample) -> None:
    """Print a family's figures. If there is only one session, nothing is fitted."""
    sessions = [found for found in sample.increments if found]
    fitting = [one for found in sessions[::2] for one in found] if len(sessions) > 1 else []
    evaluation = [one for found in sessions[1::2] or sessions for one in found]
    print(f"{label} ({', '.join(sorted(sample.models)) or 'unnamed'}), {len(sessions)} sessions")
    if evaluation:
        report_increments(fitting, evaluation, counter_for(min(sample.models, default=None), SETTINGS, count_with))
    if by_session := session_errors(sample):
        print(f"  sessions: {len(by_session)}, {by_session[0]:+.1f} % to {by_session[-1]:+.1f} %")
    if sample.contexts:
        found = sorted(abs(error) for error in sample.contexts)
        print(
            f"  contexts: {len(found)} steps, median {statistics.median(found):.2f} %,"
            f" p90 {found[int(0.9 * (len(found) - 1))]:.2f} %, largest {found[-1]:.1f} %,"
            f" bias {statistics.median(sample.contexts):+.2f} %"
        )


def report_increments(fitting: Sequence[Increment], evaluation: Sequence[Increment], counter: Counter) -> None:
    """Print the errors of each way to count on the increments for evaluation."""
    far = sum(not one.raw / 4 < one.true < one.raw * 4 for one in evaluation)
    print(
        f"  increments: {len(fitting)} to fit, {len(evaluation)} to evaluate, {far} of these off by more than 4 times"
    )
    ways = {
        "characters / 4": [(one.characters // 4 - one.true) / one.true for one in evaluation],
        "o200k_base": errors(evaluation, 1.0, 0),
        f"in use: × {counter.factor:g} + {counter.result_overhead}": errors(
            evaluation, counter.factor, counter.result_overhead
        ),
    }
    if fitting:
        factor, overhead = fitted(fitting)
        ways[f"fitted: × {factor:g} + {overhead}"] = errors(evaluation, factor, overhead)
    for name, found in ways.items():
        print(
            f"  {name:24} mean {mean_error(found):5.1f} %   median {100 * statistics.median(map(abs, found)):5.1f} %"
            f"   weighted {weighted_error(found, evaluation):5.1f} %"
        )


def main() -> None:
    default = Path(__file__).resolve().parents[1].parent / "shared" / "traces"
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("traces", nargs="?", type=Path, default=default)
    traces: Path = parser.parse_args().traces
    samples: dict[str, Sample] = defaultdict(Sample)
    for path in sorted(traces.rglob("*.jsonl")):
        session = read_session(path)
        model = next((read.model for read in session if read.model), None)
        family = family_of(model).name
        sample = samples[f"{path.relative_to(traces).parent.as_posix()}: {family}"]
        sample.models |= {model} if model else set()
        sample.increments.append(list(increments_of(session, counted_replies=path.parent.name == "claude_code")))
        sample.contexts += context_errors(session)
    for label, sample in sorted(samples.items()):
        report(label, sample)


if __name__ == "__main__":
    main()
