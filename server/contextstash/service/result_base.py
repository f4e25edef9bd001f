"""The base of the use cases' results, apart from these: a hook builds one of them, and must not load all."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, SerializerFunctionWrapHandler, model_serializer


class Result(BaseModel):
    """Base: fields that are None are left out when serialized."""

    # A model is built when it is first used: to build all of them takes longer than a hook, which uses one, may take.
    model_config = ConfigDict(defer_build=True)

    @model_serializer(mode="wrap")
    def _without_absent(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: value for name, value in handler(self).items() if value is not None}
