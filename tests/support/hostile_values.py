"""A session of everything that pages show, what an attacker would have recorded included."""

from __future__ import annotations

from typing import Any

SCRIPT = "<script>document.title = 'taken'; alert(1)</script><img src=x onerror=alert(2)>"
RIGHT_TO_LEFT = "\u202egnihtemos\u202c \u2067שלום\u2069"
LONG_LINE = "x" * 1_000_000


def call(number: int, output: str) -> list[dict[str, Any]]:
    function = {"name": "Bash", "arguments": f'{{"command": "make part{number} {SCRIPT[:8]}"}}'}
    called = {"id": f"call_{number}", "type": "function", "function": function}
    return [
        {"role": "assistant", "content": None, "tool_calls": [called]},
        {"role": "tool", "tool_call_id": f"call_{number}", "content": output},
    ]


def messages() -> list[dict[str, Any]]:
    """A hundred and forty-four messages: talk, tool outputs, and what an attacker would say."""
    found: list[dict[str, Any]] = [{"role": "user", "content": f"Build everything. {SCRIPT} {RIGHT_TO_LEFT}"}]
    for number in range(46):
        text = "\n".join(f"{line}: part {number} of the build" for line in range(60))
        found += call(number, LONG_LINE if number == 2 else f"{SCRIPT}\n{text}" if number == 45 else text)
        found.append({"role": "assistant", "content": f"Part {number} is built."})
    return [*found, *({"role": "user", "content": f"Question {number}"} for number in range(5))]
