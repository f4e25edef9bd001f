"""The proxy's own cache breakpoint, at the end of what has been pruned.

The provider looks for an earlier request's end only 20 blocks before a breakpoint, and a client such as Claude Code
sets its breakpoints in the system prompt and on the last message. So a prune further back than 20 blocks would make
everything behind the system prompt be written again, also the unchanged part. A breakpoint on the last placeholder
keeps what stands in front of it in the cache, and later prunes happen behind it. It is read with each request, which
costs nothing extra. Source: https://docs.claude.com/en/docs/build-with-claude/prompt-caching
"""

from __future__ import annotations

from dataclasses import replace

from contextstash.formats.breakpoints import MAX_BREAKPOINTS, breakpoints_of
from contextstash.formats.request.edits import MessageEdit
from contextstash.formats.request.text import RequestText
from contextstash.proxy.requests.shown_edits import Shown
from contextstash_storage.records import Native


def takes_anchor(request: RequestText) -> bool:
    """Whether the request may have one breakpoint more. One without any does not use the cache."""
    return request.format == "anthropic" and 0 < request.breakpoints < MAX_BREAKPOINTS


def _anchor_place(shown: Shown) -> int | None:
    """The last message with a placeholder of a tool output; None if there is none."""
    return max((place for place, each in shown.items() if each.edit.texts), default=None)


def anchor(request: RequestText, shown: Shown, former: Shown) -> dict[int, MessageEdit]:
    """The edit that carries the breakpoint; empty if there is none. `former` is what the request before showed: the
    provider finds what it has cached only if the breakpoint stays where it was while something behind it changes. It
    moves with the next request, which finds its whole beginning by the client's own breakpoint."""
    place = _anchor_place({key: each for key, each in former.items() if key in shown and shown[key].edit.texts})
    if place is None:
        place = _anchor_place(shown)
    if place is None or not takes_anchor(request):
        return {}
    mark = _following(request, place)
    return {} if mark is None else {place: replace(shown[place].edit, breakpoint=mark)}


def _following(request: RequestText, place: int) -> Native | None:
    """A breakpoint that keeps the cache as long as the next one does: a longer one may not follow a shorter one. None
    if there is no other, or one in this message already."""
    if request.messages[place].breakpoints:
        return None
    for message in request.messages[place + 1 :]:
        if message.breakpoints and (marks := breakpoints_of(message.native)):
            return {key: marks[0][key] for key in ("type", "ttl") if key in marks[0]}
    return None
