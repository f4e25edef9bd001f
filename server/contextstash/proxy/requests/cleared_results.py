"""Old tool results that the API itself clears: Anthropic's context editing, for models that bind their reasoning.

The history stays as it was sent, and the API shows the model placeholders of its own for the oldest results, so that
all reasoning stays valid. Which results follows from the request alone: all but the newest `keep`. So `keep` grows with
each request, and the same results are cleared until more of them leave, when the cache is cold. The API's placeholders
name no handles: a note lists them in the newest message of the user, and is part of what was sent from then on. Source:
https://platform.claude.com/docs/en/build-with-claude/context-editing
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from contextstash.context.text.sanitize import MARKER
from contextstash.context.tool_outputs.placeholders import output_line
from contextstash.context.view.prune_cost import MIN_TOKENS, Prunable
from contextstash.formats.breakpoints import content_of
from contextstash.formats.request.text import RequestText, TextMessage
from contextstash.proxy.request_lines import digest_of
from contextstash.proxy.requests.bound_reasoning import binding_of
from contextstash.proxy.requests.drafts import Draft
from contextstash_storage.records import ProviderClearing

BETA = "context-management-2025-06-27"
"""The value of the header `anthropic-beta` without which the API refuses `context_management`."""

MEMBER = "context_management"
STRATEGY = "clear_tool_uses_20250919"
GOES_BEFORE = "clear_thinking"
"""The one kind of edit that a client may ask for in addition; the API wants it in front."""

MAX_LISTED = 60
"""Handles in one note, some 25 tokens each. Further outputs are found by search."""


def in_force(draft: Draft) -> list[ProviderClearing]:
    """The clearings whose notes belong to messages of this request: none after the client has compacted."""
    found: list[ProviderClearing] = []
    for each in draft.conversation.state.clearings:
        if each.place >= len(draft.messages) or _mark(draft.messages[each.place]) != each.mark:
            break
        found.append(each)
    return found


def asked_edits(request: RequestText, clearings: Sequence[ProviderClearing]) -> dict[str, Any]:
    """The members of the body that make the API clear these results."""
    if not clearings:
        return {}
    cleared = clearings[-1].results
    keep = sum(len(request.messages[place].results) for place in request.places("results")) - cleared
    edit = {
        "type": STRATEGY,
        "trigger": {"type": "tool_uses", "value": cleared},
        "keep": {"type": "tool_uses", "value": keep},
    }
    management = request.value(MEMBER) or {}
    return {MEMBER: {**management, "edits": [*(management.get("edits") or []), edit]}}


def clear_more(draft: Draft, old: Sequence[Prunable], free: Sequence[str]) -> bool:
    """Let the API clear results from now on, from the oldest one up to the first that must stay, if that frees enough;
    whether it does. `old` are the results that are old enough to leave, `free` the names of those that may."""
    conversation, place = draft.conversation, _newest_of_user(draft.request)
    if place is None or not _may_clear(draft):
        return False
    known = in_force(draft)
    before = known[-1].results if known else 0
    results, sizes = [name for _, name, _ in draft.results()], {each.key: each for each in old}
    until = max((number for number, key in enumerate(results) if key in sizes), default=-1) + 1
    kept = (n for n in range(before, until) if not _may_leave(draft, results[n], sizes, free))
    until = next(kept, until)
    cleared = [sizes[key] for key in results[before:until] if key in sizes]
    if sum(each.saved for each in cleared) < MIN_TOKENS:
        return False
    note = _note(draft, [each.key for each in cleared])
    clearing = ProviderClearing(results=until, place=place, mark=_mark(draft.messages[place]), note=note)
    clearings = (*(each for each in known if each.place != place), clearing)
    conversation.state = conversation.state.model_copy(update={"clearings": clearings})
    return True


def _may_clear(draft: Draft) -> bool:
    """Whether the model binds its reasoning, and the client neither clears itself nor has calls that the API answers,
    since it is not documented whether those count."""
    binding, request = binding_of(draft), draft.request
    management = request.value(MEMBER)
    edits = management.get("edits") if isinstance(management, dict) else []
    if binding is None or not binding.refuses or not isinstance(edits, list) or request.places(_has_server_calls):
        return False
    return all(isinstance(edit, dict) and str(edit.get("type")).startswith(GOES_BEFORE) for edit in edits)


def _has_server_calls(message: TextMessage) -> bool:
    kinds = [block.get("type") for block in content_of(message.native) if isinstance(block, dict)]
    return "server_tool_use" in kinds or "mcp_tool_use" in kinds


def _may_leave(draft: Draft, key: str, sizes: dict[str, Prunable], free: Sequence[str]) -> bool:
    """Whether a result is large and may leave, or is small and stored."""
    return key in free if key in sizes else key in draft.conversation.catalog.outputs


def _newest_of_user(request: RequestText) -> int | None:
    """The last message of the user that no reply follows."""
    for place in range(len(request.messages) - 1, -1, -1):
        if request.messages[place].is_models:
            return None
        if request.messages[place].native.get("role") == "user":
            return place
    return None


def _note(draft: Draft, keys: Sequence[str]) -> str:
    outputs = draft.conversation.catalog.outputs
    listed = [output_line(outputs[key].output) for key in keys if key in outputs]
    more = len(listed) - MAX_LISTED
    rest = [f"and {more:,} more, found by search_history"] if more > 0 else []
    lines = "\n".join([*listed[:MAX_LISTED], *rest])
    return f"{MARKER}: cleared tool results are stored. get_archived_output returns each by its handle:\n{lines}]"


def _mark(message: TextMessage) -> str:
    return digest_of(message).hex()[:32]
