"""`window="economic"` for real models, in the library and over MCP."""

from __future__ import annotations

from pathlib import Path

import pytest

from contextstash import open_stash
from contextstash.context.window.settings import resolve_settings
from contextstash.service.economic_size import economic_size
from contextstash_storage.errors import BadInputError
from tests.support.servers import stdio_client

ECONOMIC = resolve_settings({"window": "economic"})


@pytest.mark.parametrize(
    ("model", "largest", "least", "most"),
    [
        ("claude-opus-4-5", 200_000, 70_000, 110_000),
        ("claude-opus-5-5", 1_000_000, 85_000, 130_000),
        ("claude-haiku-5-5", 1_000_000, 70_000, 110_000),
        ("gpt-5.4", 1_050_000, 70_000, 110_000),
        ("a-model-of-unknown-price", 200_000, 70_000, 110_000),
        ("claude-opus-4-5", 50_000, 50_000, 50_000),
    ],
)
def test_it_follows_from_the_model_s_prices(model: str, largest: int, least: int, most: int) -> None:
    assert least <= economic_size(ECONOMIC, model, largest, fixed=15_000) <= most


def test_a_few_more_tools_do_not_move_the_window() -> None:
    sizes = {economic_size(ECONOMIC, "claude-opus-4-5", 200_000, fixed) for fixed in range(10_001, 20_001, 999)}
    assert len(sizes) == 1


async def test_a_loop_of_the_library_is_kept_within_it(tmp_path: Path) -> None:
    async with open_stash(tmp_path / "s.db") as stash:
        session = stash.session("job", model="claude-opus-4-5", window="economic")
        messages = [{"role": "user", "content": f"{n}: " + "all work and no play " * 400} for n in range(120)]
        for count in (40, 80, 120):
            request = await session.request(messages[:count], max_tokens=2_000)
            assert request.fits
            assert request.tokens < 110_000


async def test_a_refusal_that_names_the_model_s_window_does_not_undo_it(tmp_path: Path) -> None:
    async with open_stash(tmp_path / "s.db") as stash:
        session = stash.session("job", model="claude-opus-4-5", window="economic")
        await session.request([{"role": "user", "content": "all work and no play " * 20_000}])
        await session.recover(ValueError("prompt is too long: 212345 tokens > 200000 maximum"))
        assert (await stash.use_cases.read_session("job")).settings["window"] == "economic"


async def test_a_session_over_mcp_may_choose_it(tmp_path: Path) -> None:
    async with stdio_client(tmp_path / "s.db") as client:
        await client.call_tool(
            "record_messages",
            {"session_id": "a", "model": "claude-opus-4-5", "messages": [{"role": "user", "content": "Hi."}]},
        )
        await client.call_tool("configure_session", {"session_id": "a", "settings": {"window": "economic"}})
        estimate = (await client.call_tool("estimate_context", {"session_id": "a"})).structured_content
        assert estimate is not None
        assert 60_000 < estimate["window"] < 110_000


def test_another_word_is_an_error_that_says_both() -> None:
    with pytest.raises(BadInputError, match=r"window must be a whole number or 'economic', not 'cheap'"):
        resolve_settings({"window": "cheap"})
