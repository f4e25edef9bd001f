"""The models that bind their reasoning to everything before it, so that an earlier message must stay as it was sent.

Such a model's API compares, with each request, what stands in front of a piece of reasoning with what stood there when
the model wrote it. Reasoning that does not match is refused, or dropped together with all that follows it. Appending is
always free; so is leaving out all the reasoning behind a change oneself. Sources, read in November 2026:
https://platform.claude.com/docs/en/build-with-claude/preserved-thinking/prefix-checks and
https://developers.openai.com/api/docs/guides/keep-prefix-unchanged
"""

from __future__ import annotations

import re

CLAUDE = "anthropic"
"""The API refuses a request with reasoning that does not match, unless the request asks it to drop that. Accounts
created before 2026-08-31 are checked on most models only if the request asks for it, which is unknown here: treated as
checked, they lose old thinking at a compaction and nothing else."""

GPT = "openai-responses"
"""The API drops reasoning that does not match silently; its response lists what was dropped in
`input_transformations`. Chat Completions takes no reasoning back."""

_CLAUDE = re.compile(
    r"claude-(?:(?:fable|mythos)-(?:5-[1-9]|[6-9]|[1-9]\d)|(?:opus|sonnet|haiku)-(?:5-[5-9]|[6-9]|[1-9]\d))(?!\d)"
)
"""Claude Fable and Mythos from 5.1 on, Opus, Sonnet and Haiku from 5.5 on."""

_GPT = re.compile(r"gpt-(\d{1,2})(?:[.-](\d{1,2})(?!\d))?(?!\d)")

FIRST_BINDING_GPT = (6, 2)
"""`gpt-6.2-astra` and `gpt-6.2-sol` are the first ones. Later versions are taken to bind too: to treat one that does
not as if it did costs only the prunes between compactions."""


def reasoning_binding(model: str | None) -> str | None:
    """The format in which the model's provider takes back reasoning that is bound to what stands before it; None if it
    binds none."""
    name = (model or "").lower()
    if _CLAUDE.search(name.replace(".", "-")):
        return CLAUDE
    found = _GPT.search(name)
    version = (int(found[1]), int(found[2] or 0)) if found else (0, 0)
    return GPT if version >= FIRST_BINDING_GPT else None
