"""Our own names: nothing of another server is offered under one of them, even if our own tool is not listed."""

from __future__ import annotations

import re
import unicodedata

from contextstash.context.tool_outputs.own_tools import OWN_TOOLS, is_own_retrieval

HOST_TOOLS = frozenset(
    {
        "ask_followup_question",
        "ask_question",
        "ask_questions",
        "ask_user",
        "ask_user_question",
        "ask_user_questions",
        "exit_plan_mode",
        "question",
        "questions",
        "request_user_input",
    }
)
"""Tools with which hosts ask their user: what these return is read as the user's own answer."""

OWN_PROMPTS = frozenset({"compact", "context_status", "handoff"})

OWN_SCHEME = "context:"


def is_own_tool(name: str) -> bool:
    """Whether a client, a model or our transcript readers could mistake this for the name of one of our tools."""
    return _looks_like(name, OWN_TOOLS) or is_own_retrieval(f"contextstash__{name}")


def is_reserved_tool(name: str) -> bool:
    """Whether this could be taken for one of our tools, or for one with which a host asks its user."""
    return is_own_tool(name) or _looks_like(name, HOST_TOOLS)


def is_own_prompt(name: str) -> bool:
    """Whether a client or a person could mistake this for the name of one of our prompts."""
    return _looks_like(name, OWN_PROMPTS)


def is_own_uri(uri: str) -> bool:
    """Whether a URI has our own scheme, or a URI template can produce one that has."""
    literal = uri.strip().casefold().partition("{")[0]
    return literal.startswith(OWN_SCHEME) or ("{" in uri and OWN_SCHEME.startswith(literal))


def _looks_like(name: str, names: frozenset[str]) -> bool:
    """Case, separators and invisible characters do not tell two names apart, and any other letter that is not ASCII may
    look like any that is."""
    compared = [own.replace("_", "") for own in names]
    folded = unicodedata.normalize("NFKC", name).casefold()
    letters = [each for each in folded if each.isalnum()]
    if len(letters) > max(map(len, compared)):  # a server's name may have millions of them
        return False
    pattern = re.compile("".join(re.escape(each) if each.isascii() else "." for each in letters), re.DOTALL)
    return any(pattern.fullmatch(own) for own in compared)
