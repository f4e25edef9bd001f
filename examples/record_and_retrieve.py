"""Records a session with a long tool output, archives it, and reads it back by its handle. No model is called."""

import asyncio
import json
import sys
import tempfile
from pathlib import Path

from mcp import Client, StdioServerParameters

LOG = "\n".join(f"{line:05} GET /loans/{line % 97} 200" for line in range(4_000)) + "\n04000 ERROR no such table: loans"
CALL = {"id": "call_1", "type": "function", "function": {"name": "read_log", "arguments": '{"path": "app.log"}'}}
MESSAGES = [
    {"role": "user", "content": "Why does the loans page fail?"},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "call_1", "content": LOG},
    {"role": "assistant", "content": "The table 'loans' does not exist: the migration was not run."},
]


async def main(database: Path) -> None:
    command = ["-m", "contextstash", "serve", "--tools", "all", "--db", str(database)]
    async with Client(StdioServerParameters(command=sys.executable, args=command)) as stash:
        await stash.call_tool("record_messages", {"session_id": "loans", "messages": MESSAGES, "whole": True})
        pruned = await stash.call_tool("prune_tool_outputs", {"session_id": "loans", "keep_last": 0})
        [archived] = pruned.structured_content["archived"]
        print(f"{archived['handle']} left the window: {pruned.structured_content['tokens_saved']:,} tokens less")
        shown = await stash.call_tool("get_context", {"session_id": "loans"})
        print("The model sees:", json.dumps(shown.structured_content["messages"][2]["content"])[:120], "…")
        found = await stash.call_tool("get_archived_output", {"handle": archived["handle"], "pattern": "ERROR"})
        print("Read again by its handle:", found.structured_content["text"].splitlines()[-1])


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(Path(folder) / "sessions.db"))
