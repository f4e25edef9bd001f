"""Every tenth session goes out unedited, chosen at its start by a keyed hash."""

from __future__ import annotations

from pathlib import Path

from contextstash.proxy.hold_out import hold_out_key, is_held_out
from tests.support.caching_provider import CachingProvider
from tests.support.proxies import ID, Clock, placeholders, play, prune_cold, running_proxy, session

EDITED, HELD_OUT = False, True


def test_about_the_chosen_share_is_held_out_and_another_key_chooses_others() -> None:
    names = [f"session-{number}" for number in range(2_000)]
    first, second = ({name for name in names if is_held_out(name, 0.1, key)} for key in (b"one", b"two"))
    assert 150 < len(first) < 250
    assert len(first & second) < 60


def test_the_key_is_made_once_and_is_readable_by_its_user_alone(tmp_path: Path) -> None:
    key = hold_out_key(tmp_path)
    assert hold_out_key(tmp_path) == key
    assert (tmp_path / "hold-out.key").stat().st_mode & 0o077 == 0


def run(provider: CachingProvider, folder: Path, clock: Clock, share: float) -> tuple[bool | None, int]:
    """Whether the session is held out, and how many placeholders its last request had."""
    with running_proxy(provider.url, folder / "stash.db", clock, settings={"hold_out": share}) as proxy:
        prune_cold(proxy, clock, session(12))
        return proxy.state(ID).held_out, len(placeholders(provider.bodies[-1]))


def went_on(provider: CachingProvider, folder: Path, clock: Clock) -> tuple[bool | None, int]:
    """The same after a restart without the setting, as the client goes on late with its whole history."""
    with running_proxy(provider.url, folder / "stash.db", clock, settings={"hold_out": 0.0}) as proxy:
        clock.now += 400
        messages = session(14)
        play(proxy, clock, messages, first=len(messages))
        return proxy.state(ID).held_out, len(placeholders(provider.bodies[-1]))


def test_a_held_out_session_is_not_edited_and_stays_so_without_the_setting(
    provider: CachingProvider, clock: Clock, tmp_path: Path
) -> None:
    seen = set()
    for number in range(40):
        folder = tmp_path / str(number)
        folder.mkdir()
        held_out, pruned = run(provider, folder, clock, 0.5)
        assert held_out is not None
        assert (pruned == 0) == held_out
        seen.add(held_out)
        if held_out:
            assert went_on(provider, folder, clock) == (True, 0)
        if seen == {EDITED, HELD_OUT}:
            return
    raise AssertionError("all sessions are in one group")


def test_without_the_setting_no_session_belongs_to_a_group(
    provider: CachingProvider, clock: Clock, tmp_path: Path
) -> None:
    held_out, pruned = run(provider, tmp_path, clock, 0.0)
    assert held_out is None
    assert pruned
