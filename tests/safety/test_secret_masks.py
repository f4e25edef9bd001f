"""Masks: each kind of secret, of unchanged length, and next to nothing else."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contextstash.safety.secret_masks import masked, masked_value, may_hold_secrets, shown
from tests.support.conversations import trace_files, trace_natives
from tests.support.effort import examples
from tests.support.planted_secrets import KINDS, PUBLISHED, planted, readable

KEY = f"aB3dE5gH{'7jK9mN1pQ3sT' * 2}"
PASSWORD = "Hunter2x9!k"
SHORT = "tok9Xw2q"
GITHUB = f"ghp_{KEY}9cE1"

TEXTS = {
    kind: [text.replace("{key}", KEY).replace("{password}", PASSWORD).replace("{short}", SHORT) for text in texts]
    for kind, texts in tomllib.loads(Path(__file__).with_name("secret_masks.toml").read_text(encoding="utf-8")).items()
}


def masked_wholly(text: str, *secrets: str) -> str:
    """The masked text, which holds no such part, is as long and stays as it is."""
    found = masked(text)
    assert not any(each in found for each in secrets), found
    assert len(found) == len(text)
    assert masked(found) == found
    return found


@pytest.mark.parametrize("seed", range(3))
def test_a_secret_of_each_kind_is_masked_wherever_it_stands(seed: int) -> None:
    for each in planted(Random(seed), 4 * len(KINDS)):
        numbered = "".join(f"{number:6}→{line}\n" for number, line in enumerate(each.text.splitlines(), start=1))
        as_arguments = json.dumps({"command": f"echo ok && {each.text}", "timeout": 5}, ensure_ascii=False)
        far_inside = "\n".join(["x = 1"] * 3_000 + [each.text] + ["y = 2"] * 3_000)
        for text in (each.text, numbered, as_arguments, far_inside):
            found = masked_wholly(text)
            assert not readable(each, found), each
            assert found.count("\n") == text.count("\n")
        assert json.loads(masked(as_arguments))["timeout"] == 5


@pytest.mark.parametrize("kind", PUBLISHED)
def test_a_key_of_each_published_form_is_masked_without_a_name(kind: str) -> None:
    random = Random(kind)
    for secret in (PUBLISHED[kind](random) for _ in range(10)):
        for text in (secret, f"echo '{secret}' | login", f'{{"value": "{secret}"}}', f"see {secret}\nnext"):
            masked_wholly(text, secret[-16:])


LETTERS = ("qOzteAltgDLFiZrxMGrfNgJPAVgNNwXK", "YHloWJvGoLQtqpbBOFgUXdOfnDvDQlniUOLuz_yS")


@pytest.mark.parametrize("letters", LETTERS)
def test_a_key_without_a_digit_is_masked_by_its_name_and_a_long_name_is_not(letters: str) -> None:
    assert letters not in masked(f'{{"client_secret": "{letters}"}}')
    for name in (
        "PasswordResetTokenGeneratorFactoryBean",
        "HTTPServerURLBuilderFactoryXMLParser",
        "THE_TOKEN_OF_THE_TEST",
    ):
        assert masked(f"token = {name}") == f"token = {name}"


PEM = ("-----BEGIN RSA PRIVATE KEY-----", "-----END RSA PRIVATE KEY-----")
RED, PLAIN = "\x1b[01;31m\x1b[K", "\x1b[m\x1b[K"


@pytest.mark.parametrize(
    "text",
    [
        f"{RED}{GITHUB}{PLAIN}",
        f"config.env:{RED}ghp_{PLAIN}{GITHUB[4:]}",
        f"{GITHUB[:14]}\x1b[1m{GITHUB[14:]} is old",
        f"word{RED}{GITHUB}{PLAIN}word",
        f"\x1b[32mAPI_KEY\x1b[0m=\x1b[33m{GITHUB[4:]}\x1b(B\x1b[m",
        json.dumps({"stdout": f"a\n{RED}{GITHUB}{PLAIN}"}),
        json.dumps({"line": json.dumps({"stdout": f"{GITHUB[:9]}{RED}{GITHUB[9:]}"})}),
        f"printf '\\033[31m{GITHUB}\\033[0m'",
        *(f"{GITHUB[:20]}{mark}{GITHUB[20:]}" for mark in "\x00\x08\u200b\xad\u034f\u2061\u202e\u2066\ufe0f\U000e0041"),
        f"{GITHUB[:10]}\x1b]8;;http://x\x07{GITHUB[10:]}",
    ],
)
def test_a_coloured_secret_is_masked_and_the_text_keeps_its_length(text: str) -> None:
    padding = "\n".join(["\x1b[2mx = 1\x1b[0m"] * 1_000)
    for whole in (text, f"{padding}\n{text}\n{padding}"):
        assert may_hold_secrets(whole)
        masked_wholly(whole, GITHUB[4:14], GITHUB[9:20], GITHUB[-12:])
    assert masked(f"{padding}\n{text}").startswith(padding)
    if text.startswith("{"):
        assert json.loads(masked(text))


@pytest.mark.timeout(20)
@pytest.mark.parametrize("value", ["a" * 60, "1" * 60 + "Z", "QWERTYUIOPASDFGHJKLZXCVBNM" * 3 + "a"])
def test_a_long_value_is_told_from_a_name_in_one_pass(value: str) -> None:
    assert len(masked(f"secret: {value}é")) == len(f"secret: {value}é")


@pytest.mark.timeout(20)
def test_beginnings_of_keys_without_keys_are_read_once() -> None:
    line = "-----BEGIN A PRIVATE KEY-----\n"
    assert masked(line * 30_000) == line * 30_000
    body = f"{KEY}{KEY[::-1]}{KEY}\n" * 3
    assert KEY not in masked(f"{line}{body}{line}{body}")


@pytest.mark.parametrize("text", TEXTS["arguments"])
def test_what_a_call_s_argument_says_is_masked_however_often_it_is_quoted(text: str) -> None:
    as_argument = json.dumps({"command": text})
    for whole in (text, as_argument, json.dumps({"arguments": as_argument})):
        found = masked_wholly(whole, PASSWORD, SHORT, KEY)
        if whole is not text:
            assert json.loads(found).keys() == json.loads(whole).keys()


FOUND_IN_A_FILE = "\n".join(f"id_rsa:{line}" for line in (PEM[0], *[KEY * 2] * 6, PEM[1]))


@pytest.mark.parametrize("text", [*TEXTS["elsewhere"], FOUND_IN_A_FILE])
def test_a_secret_is_masked_if_its_name_stands_in_another_field_or_line(text: str) -> None:
    assert masked_wholly(f"first line\n{text}\nlast line", KEY).endswith("\nlast line")
    assert "Path=/; HttpOnly" in masked(text) or "Path" not in text


@pytest.mark.parametrize("text", TEXTS["left"])
def test_code_and_prose_are_left_as_they_are(text: str) -> None:
    assert masked(text) is text


def test_what_a_person_calls_private_is_masked_in_a_prompt_alone() -> None:
    prompt = "Fix it.\n<private>My sister\nlives in Lima.</private>\nGo on."
    assert "Lima" not in masked(prompt, private=True)
    assert "Go on." in masked(prompt, private=True)
    assert masked(prompt) == prompt
    assert "Lima" not in masked("<private>in Lima, never closed", private=True)


def test_a_mask_is_shown_in_a_few_characters() -> None:
    assert shown(f"GITHUB_TOKEN=ghp_{'aB3' * 12} # ci") == "GITHUB_TOKEN=‹GitHub token: masked›••• # ci"


def test_what_a_provider_checks_is_never_masked() -> None:
    secret = f"ghp_{'aB3' * 12}"
    thinking = {"type": "thinking", "thinking": f"the key is {secret}", "signature": secret}
    item = {"type": "reasoning", "encrypted_content": secret, "id": secret}
    assert masked_value({"content": [item]}) == {"content": [item]}
    assert masked_value({"content": [thinking]}, bound=True) == {"content": [thinking]}
    assert masked_value({"content": [thinking]})["content"][0]["signature"] == secret


def test_no_field_of_a_call_s_input_is_opaque_and_data_are_only_if_they_are_bytes() -> None:
    given = {"data": f"token={GITHUB}", "handle": GITHUB, "id": GITHUB, "deep": [{"signature": GITHUB}], GITHUB: 1}
    for message in (
        {"type": "tool_use", "id": "toolu_1", "name": "post", "input": given},
        {"functionCall": {"name": "post", "args": given}},
        {"functionResponse": {"name": "post", "response": given}},
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": f"a {GITHUB}"}},
        {"headers": {f"token {GITHUB}": "1", f"token {GITHUB[:-1]}x": "2"}},
    ):
        for bound in (False, True):
            found = masked_value({"content": [message]}, bound=bound)
            assert GITHUB[4:20] not in json.dumps(found)
            assert len(json.dumps(found).split('": ')) == len(json.dumps({"content": [message]}).split('": '))
    for data in (
        {"type": "base64", "media_type": "image/png", "data": GITHUB},
        {"type": "redacted_thinking", "data": GITHUB},
        {"inlineData": {"mimeType": "image/png", "data": GITHUB}},
        {"type": "input_audio", "input_audio": {"format": "wav", "data": GITHUB}},
    ):
        assert masked_value(data) is data


def test_a_value_is_secret_by_the_name_of_its_field_too() -> None:
    found = masked_value({"client_secret": "a8Kd02jfLq91mzPw7x3B", "title": "a8Kd02jfLq91mzPw7x3B"})
    assert found["client_secret"].startswith("‹masked›")
    assert found["title"] == "a8Kd02jfLq91mzPw7x3B"


@settings(max_examples=examples(300))
@given(st.text(alphabet=st.characters(codec=None), max_size=200), st.integers(0, 2**32))
def test_any_text_keeps_its_length_and_a_mask_stays_as_it_is(text: str, seed: int) -> None:
    [each] = planted(Random(seed), 1)
    masked_wholly(f"{text}\n{each.text}\n{text}")


@pytest.mark.parametrize(("name", "path"), trace_files(), ids=lambda value: getattr(value, "stem", value))
def test_next_to_no_line_of_a_recorded_session_is_masked(name: str, path: object) -> None:
    lines = changed = 0
    for native in trace_natives(name, path):  # type: ignore[arg-type]
        for text in _strings(native):
            lines += text.count("\n") + 1
            pairs = zip(text.splitlines(), masked(text).splitlines(), strict=True)
            changed += sum(old != new for old, new in pairs)
    assert changed <= max(10, 0.001 * lines), (changed, lines)


def _strings(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for child in children for text in _strings(child)]
