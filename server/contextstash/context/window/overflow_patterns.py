"""The words with which each provider refuses a request that is too large, and errors that only look like it.

The wordings were collected from issue threads, provider documents and recorded refusals; `tests/support/refusals.py`
contains a real example of each with its source.

Patterns are matched, ignoring case, against text with single spaces, straight quotes and no escapes. Named groups
capture the numbers: `limit`, `prompt`, `least` (a prompt count that may have stopped one token past the limit), `tools`
(tool definitions, if counted apart from the messages) and `reply` (the reserve for the reply).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Literal

SizeUnit = Literal["tokens", "bytes"]

_NUMBER = r"(?:[0-9]{1,3}(?:[,_.][0-9]{3}){1,3}|[0-9]{1,12})(?![0-9])"
_LIMIT, _PROMPT, _LEAST, _TOOLS, _REPLY = (
    f"(?P<{name}>{_NUMBER})" for name in ("limit", "prompt", "least", "tools", "reply")
)
_TOKENS = " ?tokens?"
_CODE = r"(?:(?:code|type)['\"]? ?[:=] ?['\"]?|^\W*|\()"


@dataclass(frozen=True, slots=True)
class Wording:
    """One wording of a refusal; `shared` if several providers use it."""

    provider: str
    pattern: str
    shape: SizeUnit = "tokens"
    shared: bool = False


@cache
def compiled(pattern: str) -> re.Pattern[str]:
    """The compiled pattern. Compiled at first use, so that the server starts fast."""
    return re.compile(pattern, re.IGNORECASE)


def _openai(pattern: str) -> Wording:
    return Wording("openai", pattern, shared=True)


_WITH_NUMBERS = (
    Wording("anthropic", rf"prompt is too long:? {_PROMPT}{_TOKENS} > {_LIMIT} maximum", shared=True),
    Wording(
        "anthropic",
        rf"input length and `?max_tokens`? exceed context limit: {_PROMPT} \+ {_REPLY} > {_LIMIT}",
        shared=True,
    ),
    Wording("fireworks", rf"prompt is too long: {_PROMPT}, model maximum context length: {_LIMIT}", shared=True),
    Wording(
        "vllm",
        rf"max_(?:completion_)?tokens'? is too large: {_REPLY}\. this model's maximum context length is "
        rf"{_LIMIT}{_TOKENS} and your request has {_PROMPT} input tokens",
    ),
    Wording("vllm", rf"maximum context length is {_LIMIT}{_TOKENS}\. however, your request has {_PROMPT} input tokens"),
    Wording(
        "vllm",
        rf"maximum context length is {_LIMIT}{_TOKENS}\. however, you requested {_REPLY} output tokens and your "
        rf"prompt contains at least {_LEAST} input tokens",
        shared=True,
    ),
    Wording(
        "vllm",
        rf"you passed {_LEAST} input tokens and requested {_REPLY} output tokens\. however, the model's context "
        rf"length is only {_LIMIT}{_TOKENS}",
    ),
    Wording(
        "vllm",
        rf"prompt \((?:total )?length {_PROMPT}\) is (?:longer than the maximum model length of|too long to fit "
        rf"into the model \(context length) {_LIMIT}",
    ),
    Wording("vllm", rf"prompt length of {_PROMPT} is longer than the maximum model length of {_LIMIT}"),
    Wording(
        "vllm", rf"input prompt \({_PROMPT}{_TOKENS}\) is too long and exceeds (?:the )?(?:limit|capacity) of {_LIMIT}"
    ),
    Wording(
        "sglang",
        rf"requested token count exceeds the model's maximum context length of {_LIMIT}{_TOKENS}\. you requested a "
        rf"total of {_NUMBER}{_TOKENS}: {_PROMPT}{_TOKENS} from the input messages and {_REPLY}{_TOKENS} for the "
        rf"completion",
        shared=True,
    ),
    Wording(
        "sglang",
        rf"input \({_PROMPT}{_TOKENS}\) is longer than the model's context length \({_LIMIT}{_TOKENS}\)",
        shared=True,
    ),
    Wording(
        "sglang",
        rf"input length \({_PROMPT}{_TOKENS}\) exceeds the maximum allowed length \({_LIMIT}{_TOKENS}\)",
        shared=True,
    ),
    Wording(
        "unknown",
        rf"input length \({_PROMPT}\) exceeds model's maximum context length \({_LIMIT}\)",
        shared=True,
    ),
    _openai(
        rf"maximum context length is {_LIMIT}{_TOKENS}[.,] however,? you requested {_NUMBER}{_TOKENS} \({_PROMPT} in "
        rf"(?:the messages|your prompt)[,;] (?:{_TOOLS} in the functions, )?(?:and )?{_REPLY} (?:in|for) the "
        rf"completion\)"
    ),
    _openai(rf"maximum context length is {_LIMIT}{_TOKENS}[.,] however,? your messages resulted in {_PROMPT}{_TOKENS}"),
    _openai(
        rf"input tokens exceed the configured limit of {_LIMIT}{_TOKENS}\. your messages resulted in {_PROMPT}{_TOKENS}"
    ),
    Wording(
        "openrouter",
        rf"this endpoint's maximum context length is {_LIMIT}{_TOKENS}\. however, you requested about "
        rf"{_NUMBER}{_TOKENS} \({_PROMPT} of text input(?:, {_TOOLS} of tool input)?(?:, {_REPLY} in the output)?\)",
    ),
    Wording(
        "google", rf"input token count(?: of)? \(?{_PROMPT}\)? exceeds the maximum number of tokens allowed \(?{_LIMIT}"
    ),
    Wording("google", rf"input token count exceeds the maximum number of tokens allowed \(?{_LIMIT}"),
    Wording("google", rf"input token count is {_PROMPT} but (?:the )?model only supports up to {_LIMIT}"),
    Wording("llama.cpp", rf"request \({_PROMPT}{_TOKENS}\) exceeds the available context size \({_LIMIT}{_TOKENS}\)"),
    Wording(
        "llama.cpp",
        rf"exceed_context_size_error.{{0,40}}n_prompt_tokens\W{{1,4}}{_PROMPT}.{{0,20}}\bn_ctx\W{{1,4}}{_LIMIT}",
    ),
    Wording(
        "llama.cpp",
        rf"\bn_ctx\W{{1,4}}{_LIMIT}.{{0,20}}n_prompt_tokens\W{{1,4}}{_PROMPT}.{{0,40}}exceed_context_size_error",
    ),
    Wording("llama.cpp", rf"requested tokens \({_PROMPT}\) exceed context window of {_LIMIT}"),
    Wording("lm studio", rf"when context the overflows\..{{0,60}}context length of only {_LIMIT}{_TOKENS}"),
    Wording("lm studio", rf"n_keep\W{{1,3}}{_NUMBER}\)? ?>= ?n_ctx\W{{1,3}}{_LIMIT}"),
    Wording(
        "mistral", rf"prompt contains {_PROMPT}{_TOKENS}.{{0,60}}too large for model with {_LIMIT} maximum context"
    ),
    Wording("xai", rf"maximum prompt length is {_LIMIT} but the request contains {_PROMPT}{_TOKENS}"),
    Wording("cerebras", rf"current length is {_PROMPT} while limit is {_LIMIT}"),
    Wording("copilot", rf"prompt token count of {_PROMPT} exceeds the limit of {_LIMIT}"),
    Wording("moonshot", rf"your request exceeded model token limit: {_LIMIT}"),
    Wording("dashscope", rf"range of input length should be \[[0-9]{{1,9}}, ?{_LIMIT}\]"),
    Wording("volcengine", rf"input length {_PROMPT} exceeds the maximum length {_LIMIT}"),
    Wording(
        "cohere",
        rf"total number of tokens (?:in the prompt cannot exceed {_LIMIT}(?: - received {_PROMPT})?)",
    ),
    Wording("cohere", rf"total number of tokens \(prompt and prediction\) cannot exceed {_LIMIT}"),
    Wording(
        "tgi",
        rf"`inputs`? tokens \+ `?max_new_tokens`? must be <= {_LIMIT}\. given: {_PROMPT} `?inputs`? tokens and "
        rf"{_REPLY} `?max_new_tokens",
        shared=True,
    ),
    Wording("tgi", rf"`inputs` must have less than {_LIMIT}{_TOKENS}\. given: {_PROMPT}", shared=True),
    Wording(
        "unknown", rf"prompt too long: {_PROMPT}{_TOKENS} exceeds max context window of {_LIMIT}{_TOKENS}", shared=True
    ),
    _openai(rf"maximum context (?:length|limit) (?:is|of) {_LIMIT}{_TOKENS}"),
)
"""Wordings with numbers, those with more numbers before shorter ones that match as well."""

_WITHOUT_NUMBERS = (
    _openai(rf"{_CODE}context_length_exceeded\b"),
    _openai(r"input exceeds the context window of this model"),
    Wording("llama.cpp", rf"{_CODE}exceed_context_size_error\b"),
    Wording("llama.cpp", r"request exceeds the available context size"),
    Wording("lm studio", r"tokens to keep from the initial prompt is greater than the context length"),
    Wording("copilot", rf"{_CODE}model_max_prompt_tokens_exceeded\b"),
    Wording("zai", r"finish_?reason['\"]? ?[:=] ?['\"]?model_context_window_exceeded\b"),
    Wording("anthropic", rf"(?:stop_?reason['\"]? ?[:=] ?['\"]?|{_CODE})model_context_window_exceeded\b"),
    Wording("anthropic", r"request size exceeds model context window"),
    Wording("bedrock", r"input is too long for requested model"),
    Wording("bedrock", r"number of input tokens exceeds maximum length"),
    Wording("ollama", r"prompt too long; exceeded (?:max )?context length"),
    Wording("ollama", r"input length exceeds (?:the|maximum) context length"),
    Wording("minimax", r"invalid params, context window exceeds limit"),
    Wording("zai", r"prompt exceeds max length"),
    Wording("groq", r"please reduce the length of the messages or completion\b", shared=True),
    Wording("anthropic", r"\bprompt is too long(?! ?[:,] ?max tokens)\b", shared=True),
    Wording("litellm", r"\bContextWindowExceededError\b", shared=True),
    Wording(
        "unknown",
        r"\b(?:prompt|input|request|conversation) exceeds (?:the |this )?(?:model's )?(?:maximum |max )?context "
        r"(?:length|window|limit)\b",
        shared=True,
    ),
)
"""Wordings and codes without numbers."""

_TOO_MANY_BYTES = (
    Wording("anthropic", rf"{_CODE}request_too_large\b", "bytes"),
    Wording("anthropic", r"request exceeds the maximum (?:size\b|allowed number of bytes)", "bytes"),
    Wording("google", r"request payload size exceeds the limit: [0-9]+ bytes", "bytes"),
    Wording("bedrock", r"value at '?body'? failed to satisfy constraint: member must have length less than", "bytes"),
    Wording("bedrock", r"malformed input request: expected maxlength: [0-9]+, actual: [0-9]+", "bytes"),
    Wording(
        "unknown",
        r"\b413\b.{0,40}\b(?:request entity|payload|content) too large\b|"
        r"(?:^\W*|payloadtoolargeerror: )(?:request entity|payload) too large\b",
        "bytes",
        shared=True,
    ),
    Wording(
        "unknown",
        r"^.{0,80}(?:\bhttp(?:/[0-9.]{1,3})? |\bstatus |code: )413\b|\bstatus(?:_?code)?: 413\b|"
        r"^413(?: (?:status|request|payload|content)|$)",
        "bytes",
        shared=True,
    ),
)
"""Refusals because of a request's bytes or characters, independent of its tokens."""

WORDINGS = _WITH_NUMBERS + _WITHOUT_NUMBERS + _TOO_MANY_BYTES
"""All wordings, in the order in which they are tried; the first that matches is used."""

STATUS_OF_A_RATE_LIMIT = r"(?:^|(?:\bhttp|code|status|error)['\"]?\W{0,4})429\b"
"""HTTP status 429: never an overflow, whatever else the text contains."""

LOOK_ALIKES = (
    r"\btokens per (?:min|minute|hour|day)\b|\b[TR]P[MD]\b",
    r"\brate[ _]limit(?:_error|_exceeded| reached| exceeded| of your| for your)|ratelimiterror",
    r"\btoo many requests\b|\bthrottling(?:exception| error)",
    r"insufficient_quota|exceeded your current quota",
)
"""Limits per minute or per account, not of the context; they take precedence over a wording without numbers."""

NEAR_AN_ERROR = r"error|exception|fail|refus|invalid|\b(?:400|413|422|500)\b"
"""Words that occur near a provider's refusal, and rarely near a text that only mentions one."""

NAMED_PROVIDERS = (
    ("openrouter", r"openrouter"),
    ("bedrock", r"bedrock|\bvalidationexception|the model returned the following errors"),
    ("azure", r"\bazure"),
    ("groq", r"\bgroq"),
    ("deepseek", r"deepseekexception|api\.deepseek\.com|\bdeepseek request failed|provider\(deepseek"),
    ("together", r"\btogether(?:_ai|ai|\.xyz| ai)"),
    ("mistral", r"mistral_?(?:ai)?exception|api\.mistral\.ai"),
    ("xai", r"\bxai_?exception|api\.x\.ai"),
    ("fireworks", r"fireworks"),
    ("cerebras", r"cerebras"),
    ("ollama", r"\bollama"),
    ("lm studio", r"\blm ?studio"),
    ("sglang", r"sglang"),
    ("llama.cpp", r"llama[.-]?cpp|llama-server"),
    ("vllm", r"vllm"),
    ("anthropic", r"anthropic_?(?:exception|error)"),
    ("fastchat", r"code['\"]? ?[:=] ?40303\b"),
)
"""How a text names the provider that responded; used if a wording is shared. Gateways come first."""

OPENAI_COMPATIBLE = (
    ("vllm", r"object['\"]? ?[:=] ?['\"]?error\b|type['\"]? ?[:=] ?['\"]?badrequesterror\b"),
    ("deepseek", r"code['\"]? ?[:=] ?['\"]?invalid_request_error\b"),
)
"""Features of the error objects of servers that use OpenAI's wordings, for texts that name no provider."""
