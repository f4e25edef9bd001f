"""Texts about summaries: the prompt for the host's model, and what precedes a summary in the view."""

from __future__ import annotations

from contextstash.safety.sanitize import MARKER, unforged

SUMMARY_CONTENTS = """\
1. Progress: what has been done and what came of it.
2. Decisions, each with its reason, and approaches that were given up.
3. Constraints and preferences: everything the user asked for or ruled out, in the user's own words.
4. Files changed, created or deleted, with paths and what changed in each; those that only matter to read.
5. Errors met: the message, and how it was resolved or that it still stands.
6. Critical data: identifiers, commands, versions, values, links that the work goes on from.
7. Next steps: what was under way when you stopped, and what comes after, most urgent first."""


def compaction_prompt(session_id: str | None = None, instructions: str | None = None) -> str:
    """The prompt `compact`: asks the host's model to write the summary and to pass it to compact_session."""
    session = f' and session_id "{session_id}"' if session_id else ""
    wishes = f"\n\nIn particular: {instructions.strip()}" if instructions and instructions.strip() else ""
    return (
        "Write a hand-off summary of this session now. Whoever continues will see your summary instead of the older"
        " messages, and nothing else of them. Include all of this, in short bullet points under these headings:\n\n"
        f"{SUMMARY_CONTENTS}\n\n"
        "State only what this session shows. Copy names, paths, figures and error texts exactly. Leave out what is no"
        " longer relevant; if an old tool output may be needed again, give its handle (out_…)."
        f"{wishes}\n\n"
        f"Then call the tool compact_session with the whole text as `summary`{session}."
    )


def summary_text(text: str, first_seq: int, last_seq: int, messages: int, *, later: bool = False) -> str:
    """A summary as the view shows it: what it replaces, and how to retrieve the originals.

    `messages` is how many it covers, `first_seq` to `last_seq`. With `later`, another summary stays before it. The text
    of a summary was true when it was written, and is not written again: it says up to when.
    """
    older = " What a summary above says is open, failed or the last state is out of date." if later else ""
    count = f"{messages:,} earlier message{'' if messages == 1 else 's'}"
    return (
        f"{MARKER} summary: this replaces {count} ({first_seq} to {last_seq}) of this same session, whose"
        " work is done and need not be repeated. The originals are kept: search_history finds them, get_archived_output"
        f" reads tool outputs by handle. The state is as of message {last_seq}.{older}]\n\n{unforged(text)}"
    )
