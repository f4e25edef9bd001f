"""A provider of our own on loopback that speaks Gemini's generateContent, whole and streamed, and refuses what Google's
does: see tests.support.provider_rules. It counts each request, refuses what is beyond its window, and reports usage."""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.support.provider import EVENTS, Asked, Sent, served
from tests.support.provider_rules import violations
from tests.support.strict_provider import count

IMAGE_TOKENS = 1_120
"""Of an image at the default resolution of Gemini 3: https://ai.google.dev/gemini-api/docs/media-resolution"""

IMAGE_FIELDS = {"inlineData", "fileData", "inline_data", "file_data"}
"""Google accepts the second spelling too; its SDK sends it inside a function response."""

CONTENT_TOKENS = 4
"""Of a content's role and bounds; Google does not document it."""


class RefusedError(Exception):
    """The text of an INVALID_ARGUMENT."""


def signature_of(call: dict[str, Any]) -> str:
    """The signature that this provider gives to a call: of its name and arguments."""
    said = json.dumps([call["name"], call.get("args") or {}], sort_keys=True).encode()
    return base64.b64encode(hashlib.sha512(said).digest()).decode()


def checked(body: dict[str, Any], *, signed: bool) -> list[dict[str, Any]]:
    """The contents of a request in their REST spelling. Raises RefusedError."""
    contents = [{**each, "parts": list(map(_spelled, each.get("parts") or ()))} for each in body.get("contents") or ()]
    if not contents:
        raise RefusedError("* GenerateContentRequest.contents: contents is not specified")
    if wrong := violations("gemini", contents):
        raise RefusedError(wrong[0])
    if signed:
        _check_signatures(contents)
    return contents


def _spelled(part: dict[str, Any]) -> dict[str, Any]:
    """A part without unset fields: the API accepts the SDK's spelling too."""
    given = {key: value for key, value in part.items() if value is not None}
    return {re.sub(r"_([a-z])", lambda match: match[1].upper(), key): value for key, value in given.items()}


def _check_signatures(contents: list[dict[str, Any]]) -> None:
    """Each signature is that of its call, and the first call of each step of the current turn has one."""
    texts = [place for place, each in enumerate(contents) if each["role"] == "user" and "text" in each["parts"][0]]
    for place, content in enumerate(contents):
        calls = [part for part in content["parts"] if "functionCall" in part]
        for part in calls:
            signature = part.get("thoughtSignature")
            # An SDK may send it in the alphabet for URLs.
            if signature and signature.translate(str.maketrans("-_", "+/")) != signature_of(part["functionCall"]):
                raise RefusedError("Invalid thought signature.")
        if calls and place > (texts or [0])[-1] and "thoughtSignature" not in calls[0]:
            raise RefusedError("Function call is missing a thought_signature in functionCall parts.")


@dataclass(frozen=True)
class Planned:
    """What the model says next."""

    text: str = ""
    thought: str = ""
    calls: tuple[tuple[str, dict[str, Any]], ...] = ()


@dataclass
class GeminiProvider:
    """Its address, what it accepted, and why it refused the rest. `named` calls have ids, as newer models give them."""

    window: int
    plan: Callable[[int], Planned]
    named: bool = True
    signed: bool = True
    url: str = ""
    requests: list[dict[str, Any]] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def say(self, asked: Asked) -> Sent:
        """The answer to a request."""
        try:
            answer = self.answer(asked.body)
        except RefusedError as refusal:
            self.refusals.append(str(refusal))
            return Sent(400, {"error": {"code": 400, "message": str(refusal), "status": "INVALID_ARGUMENT"}})
        if ":streamGenerateContent" not in asked.target:
            return Sent(200, answer)
        chunks = "".join(f"data: {json.dumps(chunk)}\r\n\r\n" for chunk in _chunks(answer))
        return Sent(200, chunks.encode(), kind=EVENTS)

    def answer(self, body: dict[str, Any]) -> dict[str, Any]:
        """The response to a request. Raises RefusedError."""
        contents = checked(body, signed=self.signed)
        tokens = self._count(body, contents)
        if tokens > self.window:
            raise RefusedError(
                f"The input token count ({tokens}) exceeds the maximum number of tokens allowed ({self.window})."
            )
        planned = self.plan(len(self.sizes))
        self.requests.append(body)
        self.sizes.append(tokens)
        said = self._parts(planned)
        spoken = sum(map(_part_tokens, (part for part in said if not part.get("thought"))))
        thought = count(planned.thought)
        usage = {
            "promptTokenCount": tokens,
            "candidatesTokenCount": spoken,
            "thoughtsTokenCount": thought,
            "totalTokenCount": tokens + spoken + thought,
        }
        candidate = {"content": {"parts": said, "role": "model"}, "finishReason": "STOP", "index": 0}
        return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "gemini-3-pro-preview"}

    def _parts(self, planned: Planned) -> list[dict[str, Any]]:
        parts: list[dict[str, Any]] = [{"text": planned.thought, "thought": True}] if planned.thought else []
        if planned.text:
            parts.append({"text": planned.text})
        for place, (name, arguments) in enumerate(planned.calls):
            call = {"name": name, "args": arguments, **({"id": f"fc{next(self._numbers)}"} if self.named else {})}
            parts.append({"functionCall": call, **({} if place else {"thoughtSignature": signature_of(call)})})
        return parts

    def _count(self, body: dict[str, Any], contents: list[dict[str, Any]]) -> int:
        beside = sum(count(json.dumps(body[key])) for key in ("systemInstruction", "tools") if body.get(key))
        inside = sum(map(_part_tokens, (part for content in contents for part in content["parts"])))
        return beside + CONTENT_TOKENS * len(contents) + inside


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _part_tokens(part: dict[str, Any]) -> int:
    """Thoughts are not counted: Google leaves them out of the prompt."""
    if part.get("thought"):
        return 0
    if part.keys() & IMAGE_FIELDS:
        return IMAGE_TOKENS
    call, answer = part.get("functionCall"), part.get("functionResponse")
    if call:
        return count(call["name"]) + count(_compact(call.get("args") or {})) + 4
    if answer:
        inner = sum(map(_part_tokens, answer.get("parts") or ()))
        return count(answer["name"]) + count(_compact(answer["response"])) + 4 + inner
    return count(part["text"]) if "text" in part else count(json.dumps(part))


@contextmanager
def gemini_provider(window: int, plan: Callable[[int], Planned], **about: Any) -> Iterator[GeminiProvider]:
    """A provider on a free port of this machine."""
    provider = GeminiProvider(window, plan, **about)
    with served(provider.say) as provider.url:
        yield provider


def _chunks(answer: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The response as a stream gives it: a part at a time, usage with the last."""
    [candidate] = answer["candidates"]
    parts = candidate["content"]["parts"]
    for part in parts[:-1]:
        yield {"candidates": [{"content": {"parts": [part], "role": "model"}, "index": 0}]}
    yield {**answer, "candidates": [{**candidate, "content": {"parts": parts[-1:], "role": "model"}}]}
