"""Tool results within limits: an output that is too long is archived first, then shown as a preview with a handle."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from mcp.types import CallToolResult, ContentBlock, EmbeddedResource, TextContent, TextResourceContents

from contextstash.gateway.tool_rules import OutputRules
from contextstash.service.limited_output import LimitedOutput
from contextstash_storage.errors import ContextstashError

STEPS = ((2_000, 100), (1_000, 50), (500, 20), (200, 10), (100, 5), (60, 2))
"""Maximum characters of a string and maximum items of a list or object, tried in this order until the whole is small
enough. Each step about halves the one before."""


def as_text(value: Any) -> str:
    """The JSON text of a value, as shown to a model."""
    return json.dumps(value, ensure_ascii=False)


def smaller_forms(value: Any, handle: str, max_chars: int | None = None) -> Iterator[Any]:
    """Forms of a value, each smaller than the one before. Forms with all items of lists and objects come first, unless
    even the smallest of them has more than `max_chars` characters. A shortened string names the handle of the whole."""
    smallest_whole = _shortened(value, STEPS[-1][0], None, handle)
    if max_chars is None or len(as_text(smallest_whole)) <= max_chars:
        for longest, _ in STEPS:
            yield _shortened(value, longest, None, handle)
    for longest, items in STEPS:
        yield _shortened(value, longest, items, handle)


def replaced_strings(value: Any, texts: dict[str, str]) -> Any:
    """A value with some of its strings replaced by others."""
    if isinstance(value, str):
        return texts.get(value, value)
    if isinstance(value, list):
        return [replaced_strings(each, texts) for each in value]
    if isinstance(value, dict):
        return {key: replaced_strings(each, texts) for key, each in value.items()}
    return value


def is_valid(value: Any, schema: dict[str, Any] | None) -> bool:
    """Whether a value is valid for a tool's output schema; without a schema, every value is. If the schema is invalid
    or refers to another document, it cannot be checked, and no value is.

    The schema is the server's: one expression of it can take hours, so a caller needs a time limit."""
    if schema is None:
        return True
    from jsonschema.validators import validator_for
    from referencing import Registry

    try:
        kind = validator_for(schema)
        kind.check_schema(schema)
        return bool(kind(schema, registry=Registry()).is_valid(value))
    except Exception:  # of a malformed schema the library raises many kinds: RecursionError, re.error, AttributeError
        return False


def _shortened(value: Any, longest: int, items: int | None, handle: str) -> Any:
    if isinstance(value, str):
        return _string(value, longest, handle)
    if isinstance(value, list):
        return [_shortened(each, longest, items, handle) for each in value[:items]]
    if isinstance(value, dict):
        kept = list(value.items())[: None if items is None else max(items, 20)]
        return {key: _shortened(each, longest, items, handle) for key, each in kept}
    return value


def _string(text: str, longest: int, handle: str) -> str:
    if len(text) <= longest + 80:
        return text
    head = longest * 2 // 3
    tail = longest - head
    return f"{text[:head]} [… {len(text) - longest:,} characters omitted, all in {handle} …] {text[-tail:]}"


if TYPE_CHECKING:
    from contextstash.mcp.lazy_stash import LazyStash

logger = logging.getLogger(__name__)

MIN_TO_REPEAT = 600
"""Characters below which a repeated output is shown again: several times the length of the notice UNCHANGED."""

SHORTENED = "[Only part of the structured content is shown; get_archived_output {handle} returns all of it as JSON]"

UNCHANGED = "[Unchanged since {handle}: the same {lines:,} lines as before; get_archived_output returns them]"


@dataclass(frozen=True, slots=True)
class Call:
    """The call whose result is shortened: the server, the tool by its name in the archive, the main argument, the rules
    for the tool's outputs and the tool's output schema."""

    server: str
    tool: str
    argument: str
    rules: OutputRules
    schema: dict[str, Any] | None = None


class Shown(NamedTuple):
    """The text that replaces another one, and the handle of the original."""

    text: str
    handle: str


@dataclass(slots=True)
class Tally:
    """Counts of results, and of their characters before and after shortening."""

    results: int = 0
    shortened: int = 0
    unchanged: int = 0
    before: int = 0
    after: int = 0

    def add(self, other: Tally) -> None:
        """Add the counts of another tally."""
        self.results += other.results
        self.shortened += other.shortened
        self.unchanged += other.unchanged
        self.before += other.before
        self.after += other.after


async def _valid_here(value: Any, call: Call) -> bool:
    return is_valid(value, call.schema)


@dataclass
class Shortening:
    """Shortens results. Outputs are archived for the session `session_id`, or without a session. `limits` replace the
    limits of the settings for tools whose rules name no limits. `valid` checks a changed value against the schema of
    the call's tool; the default does so in this process, without a time limit."""

    stash: LazyStash
    session_id: str | None = None
    limits: Mapping[str, Any] = field(default_factory=dict)
    valid: Callable[[Any, Call], Awaitable[bool]] = _valid_here
    tally: Tally = field(default_factory=Tally)
    warnings: tuple[str, ...] = ()
    _shown: set[tuple[str, str, str]] = field(default_factory=set)

    async def result(self, result: CallToolResult, call: Call) -> CallToolResult:
        """The result to show to the model: the same object if nothing is too long or the result is an error."""
        if result.is_error:
            return result
        before = _size(result)
        try:
            shown = await self._result(result, call)
        except ContextstashError as error:  # an output that was not archived must not be cut
            self.warnings += (f"a result of '{call.tool}' is passed on uncut: {error}",)
            logger.warning("%s", self.warnings[-1])
            shown = result
        self.tally.results += 1
        self.tally.shortened += shown is not result
        self.tally.before += before
        self.tally.after += _size(shown)
        return shown

    async def _result(self, result: CallToolResult, call: Call) -> CallToolResult:
        replaced: dict[str, Shown] = {}
        content = await self._content(result.content, call, replaced)
        structured = result.structured_content
        if structured is not None:
            structured, notice = await self._structured(structured, call, replaced)
            if notice and not replaced:
                content.append(TextContent(type="text", text=notice))
        if content == result.content and structured == result.structured_content:
            return result
        return result.model_copy(update={"content": content, "structured_content": structured})

    async def _content(
        self, content: Sequence[ContentBlock], call: Call, replaced: dict[str, Shown]
    ) -> list[ContentBlock]:
        """The blocks, with similar neighbouring texts joined: otherwise an output in many small blocks would pass the
        limits."""
        found: list[ContentBlock] = []
        for text, blocks in _texts_together(content):
            if text is None:
                found += [await self._resource(block, call, replaced) for block in blocks]
                continue
            shown = await self._text(text, call)
            if shown is None:
                found += blocks
                continue
            replaced[text] = shown
            found.append(blocks[0].model_copy(update={"text": shown.text}))
        return found

    async def _resource(self, block: ContentBlock, call: Call, replaced: dict[str, Shown]) -> ContentBlock:
        if not isinstance(block, EmbeddedResource) or not isinstance(block.resource, TextResourceContents):
            return block
        text = block.resource.text
        shown = await self._text(text, call)
        if shown is None:
            return block
        replaced[text] = shown
        return block.model_copy(update={"resource": block.resource.model_copy(update={"text": shown.text})})

    async def _text(self, text: str, call: Call) -> Shown | None:
        """The replacement of a text; None if the text is shown unchanged."""
        key = (call.server, call.tool, hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest())
        repeatable = call.rules.unchanged and len(text) >= MIN_TO_REPEAT
        if repeatable and key in self._shown:
            # Archived once more: if another process has deleted it since, the notice would name nothing.
            handle = await self.archive(text, call)
            self.tally.unchanged += 1
            return Shown(UNCHANGED.format(handle=handle, lines=len(text.splitlines())), handle)
        limited = await self._limited(text, call)
        if repeatable:
            self._shown.add(key)
        return Shown(limited.text, limited.handle or "") if limited.cut else None

    async def _structured(self, value: Any, call: Call, replaced: Mapping[str, Shown]) -> tuple[Any, str | None]:
        """The structured content, within limits and valid for the tool's schema if possible, otherwise unchanged; and a
        notice for the model if a part is missing."""
        changed = replaced_strings(value, {text: shown.text for text, shown in replaced.items()})
        if changed != value and not await self.valid(changed, call):
            changed = value
        limited = await self._limited(as_text(changed), call, keep=False)
        # names and brackets are kept, so JSON may take twice the characters of the limited text
        max_chars = 2 * len(limited.text)
        if not limited.cut or (changed != value and len(as_text(changed)) <= max_chars):
            return changed, None
        handle = _handle_of(value, replaced) or await self.archive(as_text(value), call)
        smallest = None
        for form in smaller_forms(changed, handle, max_chars):
            if await self.valid(form, call):
                smallest = form
                if len(as_text(form)) <= max_chars:
                    break
        return (changed, None) if smallest is None else (smallest, SHORTENED.format(handle=handle))

    async def _limited(self, text: str, call: Call, *, keep: bool = True) -> LimitedOutput:
        stash = await self.stash.get()
        return await stash.limit_output(
            text,
            tool=call.tool,
            argument=call.argument,
            session_id=self.session_id,
            limits=call.rules.limits or self.limits,
            keep_whole=keep,
        )

    async def archive(self, text: str, call: Call) -> str:
        """Archive a text and return its handle."""
        stash = await self.stash.get()
        return await stash.keep_output(text, tool=call.tool, argument=call.argument, session_id=self.session_id)


def _texts_together(content: Sequence[ContentBlock]) -> list[tuple[str | None, list[ContentBlock]]]:
    """Runs of text blocks with the same annotations, each with its joined text; any other block alone, with None."""
    runs: list[tuple[str | None, list[ContentBlock]]] = []
    for block in content:
        if not isinstance(block, TextContent):
            runs.append((None, [block]))
            continue
        text, blocks = runs[-1] if runs else (None, [])
        if text is not None and _alike(blocks[-1], block):
            runs[-1] = (f"{text}\n{block.text}", [*blocks, block])
        else:
            runs.append((block.text, [block]))
    return runs


def _handle_of(value: Any, replaced: Mapping[str, Shown]) -> str | None:
    """The handle of a text of the same result that is the JSON of this value; None if there is none."""
    for text, shown in replaced.items():
        try:
            if json.loads(text) == value:
                return shown.handle
        except ValueError:
            continue
    return None


def _alike(first: ContentBlock, second: ContentBlock) -> bool:
    return first.annotations == second.annotations and first.meta == second.meta


def _size(result: CallToolResult) -> int:
    """Characters of a result that a model may see: those of its texts or of its structured content, whichever is
    more."""
    texts = sum(len(block.text) for block in result.content if isinstance(block, TextContent))
    embedded = sum(
        len(block.resource.text)
        for block in result.content
        if isinstance(block, EmbeddedResource) and isinstance(block.resource, TextResourceContents)
    )
    structured = len(json.dumps(result.structured_content)) if result.structured_content is not None else 0
    return max(texts + embedded, structured)
