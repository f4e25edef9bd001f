"""Settings: layers, presets, and errors that name the right word."""

from __future__ import annotations

import pytest

from contextstash.window.settings import resolve_settings
from contextstash_storage.errors import BadInputError


def test_a_later_layer_overrides_an_earlier_one_and_all_override_the_preset() -> None:
    settings = resolve_settings({"prune_at": 0.6}, {"preset": "token-budget"}, {"prune_keep_last": 9})
    assert (settings.prune_at, settings.prune_keep_last, settings.window) == (0.6, 9, 200_000)


@pytest.mark.parametrize(
    ("layer", "hint"),
    [({"prune_keep_lats": 1}, "prune_keep_last"), ({"preset": "token-budgte"}, "token-budget")],
)
def test_a_misspelt_word_is_an_error_that_names_the_nearest_right_one(layer: dict[str, object], hint: str) -> None:
    with pytest.raises(BadInputError, match=f"Did you mean '{hint}'"):
        resolve_settings(layer)


def test_a_value_out_of_range_is_named() -> None:
    with pytest.raises(BadInputError, match="prune_at"):
        resolve_settings({"prune_at": 1.5})
