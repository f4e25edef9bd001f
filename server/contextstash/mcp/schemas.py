"""JSON schemas as a client sees them, without titles and null defaults, which pydantic adds and which cost tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

MEANINGS: dict[str, str] = {
    "agent": "Name of the agent",
    "archived": "What was archived",
    "budget": "Limit for the messages, in tokens",
    "cache": "What this does to the provider's prompt cache",
    "changed": "Names of the settings that were changed",
    "compacted": "Whether messages were replaced by a summary",
    "created_at": "When it was made, ISO 8601",
    "deleted": "Whether the session was deleted",
    "digest": "The output in one line",
    "done": "What was done automatically",
    "dry_run": "True if nothing was changed",
    "duplicates": "Number of messages that were already stored",
    "first_seq": "Position of the first message covered",
    "estimate": "How full the window is",
    "fits": "Whether the messages fit the budget",
    "format": "The messages' format",
    "handle": "Pass it to get_archived_output or restore_outputs",
    "hits": "Matches, best first",
    "last_message_at": "When the newest message was recorded, ISO 8601",
    "last_summary": "The newest summary in the view",
    "last_seq": "Position of the last message covered",
    "left_out": "Messages that did not fit",
    "level": "How full: ok, prune, compact, critical or overflow; of a summary, how detailed",
    "matched": "Words of the query that were found",
    "messages": "Messages, or their number",
    "messages_summarized": "How many messages the summary covers",
    "messages_trigger": "Messages since the last summary",
    "model": "Name of the model",
    "next_cursor": "Pass it as cursor for the next page",
    "next_offset": "Pass it as offset for the next page",
    "not_archived": "Handles that were in view already",
    "note": "Further information",
    "parent_session_id": "The session that this is a part or fork of",
    "percent": "Used share in percent",
    "proxy": "What the proxy sent of the session's requests",
    "reason": "Why this was done, or was not",
    "recorded": "Number of messages stored by this call",
    "restored": "What is in view again",
    "role": "Role of the speaker",
    "savings": "What prunes and compactions kept out of requests",
    "score": "Higher is better",
    "seq": "Position of the message in its session",
    "session_id": "The session",
    "sessions": "Sessions, last changed first",
    "settings": "The session's own settings",
    "snippet": "The text around the match",
    "strategy": "Who wrote the summary",
    "summary": "The summary's text",
    "summary_id": "Handle of the summary",
    "system": "System prompt, if the provider takes it separately from the messages",
    "text": "The page's text",
    "threshold": "Value at which it triggers",
    "title": "The session's title",
    "tokens": "Size in tokens",
    "tokens_after": "Tokens in view afterwards",
    "tokens_before": "Tokens in view before",
    "tokens_saved": "Tokens removed from the view",
    "tokens_trigger": "Tokens in view",
    "tool": "Name of the tool",
    "total_lines": "Lines of the whole output",
    "total_tokens": "Tokens of the whole output",
    "updated_at": "Last change, ISO 8601",
    "value": "Current value",
    "window": "The model's context window in tokens",
}


Schema = dict[str, Any]


def input_schema(generated: Schema) -> Schema:
    """A tool's arguments, closed to unknown ones, so that a client that validates finds a misspelt name first."""
    schema = _slim(generated)
    schema["additionalProperties"] = False
    return schema


def output_schema(model: type[BaseModel]) -> Schema:
    """The schema of a result on the wire, in which missing fields are absent and never null."""
    schema = _slim(model.model_json_schema(mode="validation"))
    for described in (schema, *schema.get("$defs", {}).values()):
        for name, field in described.get("properties", {}).items():
            if name in MEANINGS:
                field.setdefault("description", MEANINGS[name])
    return schema


def _slim(schema: Mapping[str, Any]) -> Schema:
    kept: Schema = {}
    for key, value in schema.items():
        if key == "title" or (key == "default" and value is None):
            continue
        if key in ("properties", "$defs"):
            kept[key] = {name: _slim(each) for name, each in value.items()}
        elif key == "anyOf":
            _add_alternatives(kept, value)
        elif key == "items":
            kept[key] = _slim(value)
        elif key == "additionalProperties":
            if isinstance(value, dict):
                kept[key] = _slim(value)
        else:
            kept[key] = value
    return kept


def _add_alternatives(schema: Schema, alternatives: list[Schema]) -> None:
    """Add `X or null` as X: a missing field has the same meaning as null."""
    real = [_slim(each) for each in alternatives if each.get("type") != "null"]
    if len(real) == 1:
        for key, value in real[0].items():
            schema.setdefault(key, value)
    else:
        schema["anyOf"] = real
