"""One owner's token against another owner's sessions: on every tool, resource, prompt, completion and page.

What is tried is read from the server's own lists, so that a new tool, argument, resource or page is tried too.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, MCPError
from mcp.types import PromptReference, ResourceTemplateReference

from tests.support.effort import THOROUGH
from tests.support.servers import MODES, Mode, answer, http_client, http_server, new_token, small_session

pytestmark = pytest.mark.processes

ALL = ("read", "write", "admin")
SESSION = "alice-session"
WORD = "quetzal"
SECRET = "under the third oak"
"""What must not be shown to others, beside the word that they may search for."""


CREATING = ("record_messages", "get_context")
"""Tools that make a session: afterwards Mallory has one of the same name, and the others tell her of that."""


@dataclass(frozen=True)
class Known:
    """What the attacker knows: the ids of everything that Alice has, and of as much that nobody has."""

    session: str
    handle: str
    summary: str
    word: str = WORD

    @property
    def values(self) -> tuple[str, ...]:
        return self.session, self.handle, self.summary, self.word


NOBODY = Known("zelda-session", "out_aaaaaaaaaaaaaaaa", "sum_aaaaaaaaaaaaaaaa", "phoenix")


@dataclass(frozen=True)
class Team:
    """A server with the sessions of Alice, and the tokens of her and of Mallory."""

    address: str
    alice: str
    mallory: str
    known: Known


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    database = tmp_path_factory.mktemp("team") / "s.db"
    with http_server(database) as address:
        yield address, database


@pytest.fixture(scope="module")
def team(served: tuple[str, Path]) -> Team:
    address, database = served
    alice, mallory = (new_token(database, name, *ALL) for name in ("alice", "mallory"))
    return Team(address, alice, mallory, asyncio.run(recorded_by(address, alice)))


async def recorded_by(address: str, token: str) -> Known:
    """The ids of a session with archived outputs and a summary, recorded with this token."""
    messages = small_session()
    messages[1]["content"] = f"The nest of the {WORD} is {SECRET}."
    messages[3]["content"] += f"\n{WORD}: {SECRET}"
    async with http_client(address, token) as client:
        await answer(client, "record_messages", session_id=SESSION, messages=messages)
        pruned = await answer(
            client, "prune_tool_outputs", session_id=SESSION, keep_last=1, protect_tokens=0, minimum_tokens=0
        )
        summary = f"The {WORD} lives {SECRET}."
        compacted = await answer(client, "compact_session", session_id=SESSION, summary=summary)
    return Known(SESSION, pruned["archived"][0]["handle"], compacted["summary_id"])


def fitting(known: Known) -> dict[str, tuple[str, ...]]:
    """What an attacker would pass as an argument of this name."""
    return {
        "session_id": (known.session,),
        "handle": (known.handle, known.summary),
        "handles": (known.handle, known.summary),
        "pin": (known.handle,),
        "level": (known.summary,),
        "query": (known.word,),
    }


def probes(schema: dict[str, Any], known: Known) -> list[dict[str, Any]]:
    """Arguments of a tool that name what is known: each argument that can hold a text, with what fits its name, or with
    everything in a thorough run; with and without the session's id."""
    required = {name: filler(name, schema["properties"][name], known) for name in schema.get("required", ())}
    found: list[dict[str, Any]] = [required]
    for name, described in schema["properties"].items():
        kinds = json.dumps(described)
        if '"string"' not in kinds or re.search('"enum"|"object"', kinds):
            continue
        for value in known.values if THOROUGH else fitting(known).get(name, (known.session,)):
            found.append(required | {name: [value] if '"array"' in kinds else value})
    named = [arguments | {"session_id": known.session} for arguments in found if "session_id" in schema["properties"]]
    scopes = schema["properties"].get("scope", {}).get("enum", ())
    return found + named + [required | {"scope": scope} for scope in scopes]


def filler(name: str, described: dict[str, Any], known: Known) -> Any:
    """A value for an argument that a tool needs."""
    if described.get("type") == "array":
        return [known.handle] if name in fitting(known) else [{"role": "user", "content": "hello"}]
    return fitting(known).get(name, ("hello",))[0]


def without_ids(text: str, known: Known) -> str:
    """A text that is the same for two sets of ids if it tells nothing of what they name."""
    for place, value in enumerate(known.values):
        text = text.replace(value, f"<{place}>")
    text = re.sub(r"Did you mean '\w+'\? ", "", text)
    text = re.sub(r"req_\w+|\b(?:out|sum)_\w+|\d{8}-\d{6}-\w+", "<>", text)
    return re.sub(r"[\d.:,T]*\d", "<number>", text)  # the same words have other tokens


async def said(client: Client, tool: str, arguments: dict[str, Any]) -> str:
    """All of a tool's answer."""
    try:
        result = await client.call_tool(tool, arguments)
    except MCPError as error:
        return f"error {error}"
    return result.model_dump_json()


async def everything_of(client: Client, known: Known) -> str:
    """What the owner sees of a session, without what reading changes."""
    parts = []
    for part in ("/messages", "/context", "/summary", "/events", "/calls"):
        read = await client.read_resource(f"context://sessions/{known.session}{part}")
        parts.append(json.dumps([content.model_dump(mode="json") for content in read.contents]))
    return "\n".join(parts)


@pytest.mark.parametrize("mode", MODES)
async def test_no_tool_shows_or_changes_anothers_session(served: tuple[str, Path], team: Team, mode: Mode) -> None:
    attacker = new_token(served[1], f"mallory-{mode}", *ALL)  # without the sessions that Mallory made in the other mode
    async with (
        http_client(team.address, team.alice, mode) as alice,
        http_client(team.address, attacker, mode) as mallory,
    ):
        before = await everything_of(alice, team.known)
        assert SECRET in before
        assert SECRET in await said(alice, "search_history", {"query": WORD, "scope": "everywhere"})
        tools = (await mallory.list_tools()).tools
        assert len(tools) > 12
        for tool in [each for each in tools if each.name not in CREATING]:
            pairs = zip(probes(tool.input_schema, team.known), probes(tool.input_schema, NOBODY), strict=True)
            for arguments, nobodys in pairs:
                text = await said(mallory, tool.name, arguments)
                assert SECRET not in text, (tool.name, arguments)
                same = await said(mallory, tool.name, nobodys)
                assert without_ids(text, team.known) == without_ids(same, NOBODY), (tool.name, arguments)
        for tool in sorted(tools, key=lambda each: each.name not in CREATING)[: None if THOROUGH else len(CREATING)]:
            for arguments in probes(tool.input_schema, team.known):
                assert SECRET not in await said(mallory, tool.name, arguments), (tool.name, arguments)
        assert await everything_of(alice, team.known) == before


async def test_no_resource_shows_anothers_session(team: Team) -> None:
    async with http_client(team.address, team.mallory) as mallory, http_client(team.address, team.alice) as alice:
        fixed = [str(resource.uri) for resource in (await mallory.list_resources()).resources]
        templates = [template.uri_template for template in (await mallory.list_resource_templates()).resource_templates]
        assert len(templates) >= 7
        for template in [*fixed, *templates]:
            uri = re.sub(r"\{\?.*\}", "", template)
            uri = uri.replace("{session_id}", team.known.session).replace("{handle}", team.known.handle)
            assert "{" not in uri, f"{template} has a part that this test does not know"
            if uri.startswith("context://") and template in templates:
                assert await alice.read_resource(uri)
            try:
                text = (await mallory.read_resource(uri)).model_dump_json()
            except MCPError as error:
                text = str(error)
            assert SECRET not in text, uri


async def test_no_prompt_and_no_completion_names_what_another_has(served: tuple[str, Path], team: Team) -> None:
    known = team.known
    newcomer = new_token(served[1], "newcomer", *ALL)  # Mallory has recorded sessions of the same names by now
    async with http_client(team.address, newcomer) as mallory, http_client(team.address, team.alice) as alice:
        prompts = (await mallory.list_prompts()).prompts
        references: list[tuple[Any, str]] = []
        for prompt in prompts:
            for argument in prompt.arguments or ():
                references.append((PromptReference(type="ref/prompt", name=prompt.name), argument.name))
            try:
                shown = (await mallory.get_prompt(prompt.name, {"session_id": known.session})).model_dump_json()
            except MCPError as error:
                shown = str(error)
            assert SECRET not in shown
        for template in (await mallory.list_resource_templates()).resource_templates:
            reference = ResourceTemplateReference(type="ref/resource", uri=template.uri_template)
            references += [(reference, name) for name in re.findall(r"\{\??([\w,]+)\}", template.uri_template)]
        seen_by_alice = 0
        for reference, name in references:
            for prefix in ("", "al", "out_", known.session, known.handle):
                completed = await mallory.complete(reference, {"name": name, "value": prefix})
                assert not set(completed.completion.values) & set(known.values)
                owners = await alice.complete(reference, {"name": name, "value": prefix})
                seen_by_alice += bool(set(owners.completion.values) & set(known.values))
        assert seen_by_alice
