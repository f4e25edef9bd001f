"""The words with which each provider refuses a request that is too large, and errors that only look like it.

The wordings were collected from issue threads, provider documents and recorded refusals; `tests/support/refusals.py`
contains a real example of each with its source.

Patterns are matched, ignoring case, against text with single spaces, straight quotes and no escapes. Named groups
capture the numbers: `limit`, `prompt`, `least` (a prompt count that may have stopped one token past the limit), `tools`
(tool definitions, if counted apart from the messages) and `reply` (the reserve for the reply).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Literal

SizeUnit = Literal["tokens", "bytes"]

_NUMBER = r"(?:[0-9]{1,3}(?:[,_.][0-9]{3}){1,3}|[0-9]{1,12})(?![0-9])"
_PARTS = {
    "} tokens": "} ?tokens?",
    **{f"{{{name}}}": f"(?P<{name}>{_NUMBER})" for name in ("limit", "prompt", "least", "tools", "reply")},
    "{number}": _NUMBER,
    "{code}": r"(?:(?:code|type)['\"]? ?[:=] ?['\"]?|^\W*|\()",
}
"""The parts of the tables below, and the expressions that they stand for."""

_TOO_MANY_TOKENS = r"""
anthropic*  prompt is too long:? {prompt} tokens > {limit} maximum
anthropic*  input length and `?max_tokens`? exceed context limit: {prompt} \+ {reply} > {limit}
fireworks*  prompt is too long: {prompt}, model maximum context length: {limit}
vllm        max_(?:completion_)?tokens'? is too large: {reply}\. this model's maximum context length is {limit}
            tokens and your request has {prompt} input tokens
vllm        maximum context length is {limit} tokens\. however, your request has {prompt} input tokens
vllm*       maximum context length is {limit} tokens\. however, you requested {reply} output tokens and your prompt
            contains at least {least} input tokens
vllm        you passed {least} input tokens and requested {reply} output tokens\. however, the model's context
            length is only {limit} tokens
vllm        prompt \((?:total )?length {prompt}\) is (?:longer than the maximum model length of|too long to fit
            into the model \(context length) {limit}
vllm        prompt length of {prompt} is longer than the maximum model length of {limit}
vllm        input prompt \({prompt} tokens\) is too long and exceeds (?:the )?(?:limit|capacity) of {limit}
sglang*     requested token count exceeds the model's maximum context length of {limit} tokens\. you requested a
            total of {number} tokens: {prompt} tokens from the input messages and {reply} tokens for the completion
sglang*     input \({prompt} tokens\) is longer than the model's context length \({limit} tokens\)
sglang*     input length \({prompt} tokens\) exceeds the maximum allowed length \({limit} tokens\)
unknown*    input length \({prompt}\) exceeds model's maximum context length \({limit}\)
openai*     maximum context length is {limit} tokens[.,] however,? you requested {number} tokens \({prompt} in
            (?:the messages|your prompt)[,;] (?:{tools} in the functions, )?(?:and )?{reply} (?:in|for) the completion\)
openai*     maximum context length is {limit} tokens[.,] however,? your messages resulted in {prompt} tokens
openai*     input tokens exceed the configured limit of {limit} tokens\. your messages resulted in {prompt} tokens
openrouter  this endpoint's maximum context length is {limit} tokens\. however, you requested about {number} tokens
            \({prompt} of text input(?:, {tools} of tool input)?(?:, {reply} in the output)?\)
google      input token count(?: of)? \(?{prompt}\)? exceeds the maximum number of tokens allowed \(?{limit}
google      input token count exceeds the maximum number of tokens allowed \(?{limit}
google      input token count is {prompt} but (?:the )?model only supports up to {limit}
llama.cpp   request \({prompt} tokens\) exceeds the available context size \({limit} tokens\)
llama.cpp   exceed_context_size_error.{0,40}n_prompt_tokens\W{1,4}{prompt}.{0,20}\bn_ctx\W{1,4}{limit}
llama.cpp   \bn_ctx\W{1,4}{limit}.{0,20}n_prompt_tokens\W{1,4}{prompt}.{0,40}exceed_context_size_error
llama.cpp   requested tokens \({prompt}\) exceed context window of {limit}
lm studio   when context the overflows\..{0,60}context length of only {limit} tokens
lm studio   n_keep\W{1,3}{number}\)? ?>= ?n_ctx\W{1,3}{limit}
mistral     prompt contains {prompt} tokens.{0,60}too large for model with {limit} maximum context
xai         maximum prompt length is {limit} but the request contains {prompt} tokens
cerebras    current length is {prompt} while limit is {limit}
copilot     prompt token count of {prompt} exceeds the limit of {limit}
moonshot    your request exceeded model token limit: {limit}
dashscope   range of input length should be \[[0-9]{1,9}, ?{limit}\]
volcengine  input length {prompt} exceeds the maximum length {limit}
cohere      total number of tokens (?:in the prompt cannot exceed {limit}(?: - received {prompt})?)
cohere      total number of tokens \(prompt and prediction\) cannot exceed {limit}
tgi*        `inputs`? tokens \+ `?max_new_tokens`? must be <= {limit}\. given: {prompt} `?inputs`? tokens and
            {reply} `?max_new_tokens
tgi*        `inputs` must have less than {limit} tokens\. given: {prompt}
unknown*    prompt too long: {prompt} tokens exceeds max context window of {limit} tokens
openai*     maximum context (?:length|limit) (?:is|of) {limit} tokens
openai*     {code}context_length_exceeded\b
openai*     input exceeds the context window of this model
llama.cpp   {code}exceed_context_size_error\b
llama.cpp   request exceeds the available context size
lm studio   tokens to keep from the initial prompt is greater than the context length
copilot     {code}model_max_prompt_tokens_exceeded\b
zai         finish_?reason['\"]? ?[:=] ?['\"]?model_context_window_exceeded\b
anthropic   (?:stop_?reason['\"]? ?[:=] ?['\"]?|{code})model_context_window_exceeded\b
anthropic   request size exceeds model context window
bedrock     input is too long for requested model
bedrock     number of input tokens exceeds maximum length
ollama      prompt too long; exceeded (?:max )?context length
ollama      input length exceeds (?:the|maximum) context length
minimax     invalid params, context window exceeds limit
zai         prompt exceeds max length
groq*       please reduce the length of the messages or completion\b
anthropic*  \bprompt is too long(?! ?[:,] ?max tokens)\b
litellm*    \bContextWindowExceededError\b
unknown*    \b(?:prompt|input|request|conversation) exceeds (?:the |this )?(?:model's )?(?:maximum |max )?context
            (?:length|window|limit)\b
"""
"""A row for each wording: the provider, with a star if several use it, and the pattern. Those with more numbers come
before shorter ones that match as well, and wordings and codes without numbers last."""

_TOO_MANY_BYTES = r"""
anthropic   {code}request_too_large\b
anthropic   request exceeds the maximum (?:size\b|allowed number of bytes)
google      request payload size exceeds the limit: [0-9]+ bytes
bedrock     value at '?body'? failed to satisfy constraint: member must have length less than
bedrock     malformed input request: expected maxlength: [0-9]+, actual: [0-9]+
unknown*    \b413\b.{0,40}\b(?:request entity|payload|content)
            too large\b|(?:^\W*|payloadtoolargeerror: )(?:request entity|payload) too large\b
unknown*    ^.{0,80}(?:\bhttp(?:/[0-9.]{1,3})? |\bstatus |code: )413\b|\bstatus(?:_?code)?:
            413\b|^413(?: (?:status|request|payload|content)|$)
"""
"""Refusals because of a request's bytes or characters, independent of its tokens."""


@dataclass(frozen=True, slots=True)
class Wording:
    """One wording of a refusal; `shared` if several providers use it."""

    provider: str
    pattern: str
    shape: SizeUnit
    shared: bool


@cache
def compiled(pattern: str) -> re.Pattern[str]:
    """The compiled pattern. Compiled at first use, so that the server starts fast."""
    return re.compile(pattern, re.IGNORECASE)


def _wordings(table: str, shape: SizeUnit) -> Iterator[Wording]:
    rows = re.sub(r"\n {5,}", " ", table.strip())
    for part, expression in _PARTS.items():
        rows = rows.replace(part, expression)
    for row in rows.split("\n"):
        provider, pattern = re.split(" {2,}", row, maxsplit=1)
        yield Wording(provider.rstrip("*"), pattern, shape, shared=provider.endswith("*"))


WORDINGS = (*_wordings(_TOO_MANY_TOKENS, "tokens"), *_wordings(_TOO_MANY_BYTES, "bytes"))
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
