"""Providers' refusals of requests that are too large, each with a real example, and errors that only look like one."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextstash.window.refusals import MAX_END_LENGTH, ContextOverflow, recognize
from tests.support.json_values import json_values
from tests.support.refusals import SEEN, Seen


def expected(seen: Seen) -> ContextOverflow:
    return ContextOverflow(seen.limit, seen.prompt, seen.reply)


@pytest.mark.parametrize("seen", SEEN, ids=lambda seen: seen.source)
def test_a_refusal_is_recognized_with_its_numbers(seen: Seen) -> None:
    assert recognize(seen.error) == expected(seen)


@pytest.mark.parametrize("seen", SEEN, ids=lambda seen: seen.source)
def test_a_refusal_is_recognized_inside_any_wrapper(seen: Seen) -> None:
    body = json.dumps({"error": {"message": seen.error}})
    assert recognize({"status": 400, "headers": {"retry-after": "1"}, "body": body}) == expected(seen)
    assert recognize({"status": 400, "body": body.encode()}) == expected(seen)
    assert recognize(repr(RuntimeError(seen.error))) == expected(seen)
    traceback = 'Traceback (most recent call last):\n  File "agent.py", line 7\n' * 4_000
    assert recognize(f"{traceback}BadRequestError: {seen.error}") == expected(seen)


@pytest.mark.parametrize("seen", SEEN, ids=lambda seen: seen.source)
def test_a_refusal_in_the_middle_of_a_long_text_is_not_an_error(seen: Seen) -> None:
    page = "The build went on and wrote its files.\n" * 400
    assert recognize(f"{page}{seen.error}\n{page}") is None
    assert recognize({"role": "tool", "content": seen.error}) is None
    assert recognize(json.dumps([{"type": "text", "text": seen.error}])) is None


TOO_MANY_BYTES: list[tuple[str, str | dict[str, Any]]] = [
    (
        "anthropics/anthropic-sdk-python#938",
        "anthropic._exceptions.RequestTooLargeError: Error code: 413 - {'error': {'type': 'request_too_large',"
        " 'message': 'Request exceeds the maximum size'}}",
    ),
    (
        "langchain-ai/langchain-aws#419",
        "ValidationException: An error occurred (ValidationException) when calling the InvokeModel operation: 1"
        " validation error detected: Value at 'body' failed to satisfy constraint: Member must have length less"
        " than or equal to 25000000",
    ),
    (
        "ryanadoty/Amazon-Bedrock-Amazon-RDS-POC#9",
        "An error occurred (ValidationException) when calling the InvokeModel operation: Malformed input"
        " request: expected maxLength: 42000, actual: 46735, please reformat your input and try again.",
    ),
    (
        "starlake-ai/starflow#1321",
        "INVALID_ARGUMENT: Request payload size exceeds the limit: 10485760 bytes.",
    ),
    (
        "openresty/lua-resty-upload#27, a proxy's page",
        {"status": 413, "body": "<html>\n<head><title>413 Request Entity Too Large</title></head>"},
    ),
    (
        "a proxy that says nothing",
        {"status_code": 413, "body": ""},
    ),
    (
        "Express's body parser",
        "PayloadTooLargeError: request entity too large\n    at readStream (raw-body/index.js:163:17)",
    ),
    (
        "an SDK without a body",
        "413 status code (no body)",
    ),
]  # fmt: skip
"""Refusals of a request because of its bytes: the source, the error."""


@pytest.mark.parametrize(("source", "error"), TOO_MANY_BYTES, ids=[row[0] for row in TOO_MANY_BYTES])
def test_a_request_with_too_many_bytes_does_not_reveal_the_window(source: str, error: str | dict[str, Any]) -> None:
    assert recognize(error) == ContextOverflow(None, None, None, "bytes"), source


LOOK_ALIKES: list[tuple[str, str | dict[str, Any]]] = [
    (
        "DrShushen/climb#13, tokens a minute",
        "RateLimitError: Error code: 429 - {'error': {'message': 'Request too large for gpt-4o in organization"
        " org-V on tokens per min (TPM): Limit 30000, Requested 30601. The input or output tokens must be"
        " reduced in order to run successfully.', 'type': 'tokens', 'param': None, 'code':"
        " 'rate_limit_exceeded'}}",
    ),
    (
        "gradusnikov/eclipse-chatgpt-plugin#61",
        "Request too large for gpt-4o on tokens per min (TPM): Limit 30000, Requested 39448.",
    ),
    (
        "assafelovic/gpt-researcher#985, tokens a minute with status 413",
        "Error code: 413 - {'error': {'message': 'Request too large for model `llama-3.1-70b-versatile` in"
        " organization `org_0` on tokens per minute (TPM): Limit 6000, Requested 14368, please reduce your"
        " message size and try again.', 'type': 'tokens', 'code': 'rate_limit_exceeded'}}",
    ),
    (
        "FoundationAgents/OpenManus#746",
        "Error code: 429 - {'error': {'code': 'rate_limit_error', 'message': 'This request would exceed the"
        " rate limit for your organization of 20,000 input tokens per minute. Please reduce the prompt length"
        " or the maximum tokens requested'}}",
    ),
    (
        "anthropics/claude-code#42616",
        '429 {"type":"error","error":{"type":"rate_limit_error","message":"Extra usage is required for long'
        ' context requests."}}',
    ),
    (
        "a 429 whatever it says",
        {"status": 429, "body": {"error": {"code": "context_length_exceeded"}}},
    ),
    (
        "Bedrock's throttling",
        "ThrottlingException: Too many tokens, please wait before trying again.",
    ),
    (
        "ChatGPTNextWeb/NextChat#3195, max_tokens",
        '{"error": {"message": "max_tokens is too large: 8192. This model supports at most 4096 completion'
        ' tokens, whereas you provided 8192.", "type": "invalid_request_error", "param": "max_tokens", "code":'
        " null}}",
    ),
    (
        "Claude Haiku, max_tokens",
        '{"type":"error","error":{"type":"invalid_request_error","message":"max_tokens: 128000 > 64000, which'
        ' is the maximum allowed number of output tokens for claude-haiku-4-5-20251001"}}',
    ),
    (
        "aws-samples/bedrock-access-gateway#41, max_tokens",
        "An error occurred (ValidationException) when calling the ConverseStream operation: The maximum tokens"
        " you requested exceeds the model limit of 2048. Try again with a maximum tokens value that is lower"
        " than 2048.",
    ),
    (
        "Cohere's documents, max_tokens",
        "too many tokens: max tokens must be less than or equal to 4096, the maximum output for this model -"
        " received 8192.",
    ),
    (
        "huggingface/transformers#28523, max_new_tokens",
        "Error 422: {'error': 'Input validation error: `max_new_tokens` must be <= 192",
    ),
    (
        "gptscript-ai/clio#41, one string",
        "Invalid 'messages[17].content': string too long. Expected a string with maximum length 1048576, but"
        " got a string with length 1744259 instead.",
    ),
    (
        "aws-samples/bedrock-access-gateway#41, one text to embed",
        "Malformed input request: #/texts/41: expected maxLength: 2048, actual: 2136",
    ),
    (
        "anthropics/claude-code#4778, an image's size",
        '{"type":"error","error":{"type":"invalid_request_error","message":"mes'
        "sages.7.content.2.image.source.base64.data:"
        ' At least one of the image dimensions exceed max allowed size: 8000 pixels"}}',
    ),
    (
        "an image's bytes",
        "400"
        ' {"type":"error","error":{"type":"invalid_request_error","message":"me'
        "ssages.46.content.9.image.source.base64:"
        ' image exceeds 5 MB maximum: 6096280 bytes > 5242880 bytes"}}',
    ),
    (
        "continuedev/continue#11540, credits",
        "402 Prompt tokens limit exceeded: 36163 > 29652. To increase, visit the settings and upgrade to a paid"
        " account",
    ),
    (
        "a quota",
        {"error": {"message": "You exceeded your current quota", "code": "insufficient_quota"}},
    ),
    (
        "a wrong key",
        '401 {"type":"error","error":{"type":"authentication_error","message":"invalid x-api-key"}}',
    ),
    (
        "anthropics/claude-code#33514, a tool's own limit",
        "MaxFileReadTokenExceededError: File content (33048 tokens) exceeds maximum allowed tokens (25000).",
    ),
    (
        "llama.cpp's log",
        "new prompt, n_ctx_slot = 131072, n_keep = 0, n_prompt_tokens = 8960912",
    ),
    (
        "code about a proxy's refusals",
        'func tooLarge(err error) bool { message := strings.ToLower(err.Error()); return strings.Contains(message, '
        '"payload too large") || strings.Contains(message, "http 413") }',
    ),
    (
        "code about such errors",
        'if "context_length_exceeded" in str(error): shrink()',
    ),
    (
        "kijai/ComfyUI-CogVideoXWrapper#204",
        "Prompt is too long, max tokens supported is 226 or less, got 303",
    ),
    (
        "an answer that ended well",
        {"type": "message", "role": "assistant", "stop_reason": "end_turn", "content": []},
    ),
    (
        "nothing",
        "",
    ),
]  # fmt: skip
"""Errors about something else: the source, the error."""


@pytest.mark.parametrize(("source", "error"), LOOK_ALIKES, ids=[row[0] for row in LOOK_ALIKES])
def test_an_error_that_only_looks_like_a_refusal_is_not_recognized(source: str, error: str | dict[str, Any]) -> None:
    assert recognize(error) is None, source


@pytest.mark.parametrize(
    "answer",
    [
        {"role": "assistant", "content": [], "stop_reason": "model_context_window_exceeded"},
        {"status": 200, "body": {"role": "assistant", "stop_reason": "model_context_window_exceeded"}},
        {"choices": [{"message": {"content": "…"}, "finish_reason": "model_context_window_exceeded"}]},
    ],
)  # fmt: skip
def test_a_reply_cut_off_by_the_window_is_recognized(answer: dict[str, Any]) -> None:
    assert recognize(answer) == ContextOverflow(None, None, None)


@pytest.mark.parametrize(
    ("error", "found"),
    [
        ({"error": {"code": "context_length_exceeded", "message": ""}}, (None, None)),
        ({"error": {"code": "model_max_prompt_tokens_exceeded"}}, (None, None)),
        ({"type": "error", "error": {"type": "exceed_context_size_error"}}, (None, None)),
        ({"type": "exceed_context_size_error", "n_prompt_tokens": 1407, "n_ctx": 256}, (256, 1407)),
        ({"n_ctx": 256, "n_prompt_tokens": 1407, "type": "exceed_context_size_error"}, (256, 1407)),
        ("litellm.ContextWindowExceededError: GroqException", (None, None)),
    ],
)
def test_a_type_or_code_suffices(error: str | dict[str, Any], found: tuple[int | None, int | None]) -> None:
    assert recognize(error) == ContextOverflow(*found, None)


def test_a_refusal_that_a_reply_only_quotes_is_not_recognized() -> None:
    quoted = "The log says: prompt is too long: 213462 tokens > 200000 maximum"
    answer = {"role": "assistant", "content": [{"type": "text", "text": quoted}], "stop_reason": "end_turn"}
    assert recognize({"status": 200, "body": answer}) is None
    assert recognize({"status": 500, "body": {"error": "overloaded"}, "request": {"prompt": quoted}}) is None


def test_a_mention_in_long_prose_needs_a_word_such_as_error_near_it() -> None:
    prose = "The chapter goes on about rivers and their banks. " * 30
    assert recognize(f"{prose}The editor noted that the prompt is too long here.") is None
    assert recognize(f"{prose}invalid_request_error: prompt is too long") is not None


@pytest.mark.parametrize(
    ("limit", "prompt"), [("200,000", "1,213,462"), ("200_000", "1_213_462"), ("200.000", "1.213.462")]
)
def test_numbers_may_be_grouped(limit: str, prompt: str) -> None:
    error = f"prompt is too long: {prompt} tokens > {limit} maximum"
    assert recognize(error) == ContextOverflow(200_000, 1_213_462, None)


def test_json_escapes_are_decoded() -> None:
    error = r"400 {\"message\":\"prompt is too long: 7 tokens \u003e 5 maximum\"}"
    assert recognize(error) == ContextOverflow(5, 7, None)


def test_a_fallback_s_rate_limit_does_not_hide_the_refusal_with_its_numbers() -> None:
    error = "RateLimitError on the first model. Fallback failed: prompt is too long: 209303 tokens > 200000 maximum"
    assert recognize(error) == ContextOverflow(200_000, 209_303, None)


def test_a_reply_reserve_that_takes_the_whole_window_is_detected() -> None:
    full = ContextOverflow(131_072, 7_884, 131_072)
    usual = ContextOverflow(200_000, 199_759, 8_192)
    assert full.reply_fills_window
    assert not usual.reply_fills_window
    assert not ContextOverflow(None, None, None).reply_fills_window


def test_a_megabyte_is_read_only_at_its_ends() -> None:
    refusal = "invalid_request_error: prompt is too long: 213462 tokens > 200000 maximum"
    overflow = ContextOverflow(200_000, 213_462, None)
    filling = "x" * 1_000_000
    assert recognize(refusal + filling) == overflow
    assert recognize(filling + " " + refusal) == overflow
    assert recognize(filling[:MAX_END_LENGTH] + refusal + filling) is None
    assert recognize("{" * 1_000_000) is None
    assert recognize({"error": {"message": filling + " " + refusal, "code": "4" * 1_000_000}}) == overflow


def nested(levels: int) -> str:
    return '{"error":' * levels + '"prompt is too long: 9 tokens > 5 maximum"' + "}" * levels


def test_deep_nesting_ends_the_search_without_an_error() -> None:
    assert recognize(nested(8)) == ContextOverflow(5, 9, None)
    assert recognize(nested(5_000)) is None
    loop: dict[str, Any] = {}
    loop["error"] = loop
    assert recognize(loop) is None


FIELDS = st.sampled_from(["error", "message", "code", "type", "status", "body", "content", "role", "stop_reason", "x"])
TEXTS = st.one_of(st.text(), st.sampled_from([seen.error for seen in SEEN]))


@given(st.dictionaries(st.one_of(st.text(), FIELDS), st.one_of(json_values, TEXTS)))
def test_any_json_object_is_read_without_failing(error: Mapping[str, Any]) -> None:
    assert recognize(error) == recognize(error)
    recognize(json.dumps(error))


def numbers_in(text: str) -> set[int]:
    plain = [int(digits) for digits in re.findall(r"[0-9]+", text)]
    grouped = [int(re.sub(r"[,_.]", "", digits)) for digits in re.findall(r"[0-9]{1,3}(?:[,_.][0-9]{3})+", text)]
    singles = set(plain + grouped)
    return singles | {one + other for one in singles for other in singles}


@given(before=TEXTS, seen=st.sampled_from(SEEN), after=TEXTS)
def test_every_number_returned_occurs_in_the_text(before: str, seen: Seen, after: str) -> None:
    text = f"{before} {seen.error} {after}"
    found = recognize(text)
    if found is not None:
        numbers = {found.limit, found.prompt_tokens, found.completion_tokens} - {None}
        assert numbers <= numbers_in(text)


@given(
    limit=st.integers(1, 10**9),
    prompt=st.integers(0, 10**9),
    reply=st.integers(0, 10**9),
    style=st.sampled_from(["d", ",d"]),
)
def test_limit_prompt_and_reply_are_never_mixed_up(limit: int, prompt: int, reply: int, style: str) -> None:
    def shown(number: int) -> str:
        return format(number, "," if style == ",d" else "")

    claude = f"input length and `max_tokens` exceed context limit: {shown(prompt)} + {shown(reply)} > {shown(limit)}, d"
    chat = (
        f"This model's maximum context length is {shown(limit)} tokens. However, you requested "
        f"{shown(prompt + reply)} tokens ({shown(prompt)} in the messages, {shown(reply)} in the completion)."
    )
    assert recognize(claude) == ContextOverflow(limit, prompt, reply)
    assert recognize(chat) == ContextOverflow(limit, prompt, reply)
