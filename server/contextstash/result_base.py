"""The base of the use cases' results, apart from these: a hook builds one of them, and must not load all."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, SerializerFunctionWrapHandler, model_serializer
from pydantic_core import to_jsonable_python


def _in_iso_format(time: object) -> object:
    return time.isoformat() if isinstance(time, datetime) else time


Moment = Annotated[str, BeforeValidator(_in_iso_format)]
"""A time in ISO format."""


class Result(BaseModel):
    """Base: fields that are None are left out when serialized."""

    # A model is built when it is first used: to build all of them takes longer than a hook, which uses one, may take.
    model_config = ConfigDict(defer_build=True)

    @classmethod
    def of(cls, *records: object, **others: Any) -> Self:
        """The result with the fields of the records that have the same names, and these others."""
        same = {name: getattr(each, name) for each in records for name in cls.model_fields if hasattr(each, name)}
        return cls(**{**same, **others})

    def as_json(self) -> dict[str, Any]:
        """The fields as JSON values. Halves of surrogate pairs stay, also in names, which pydantic cannot write."""
        try:
            return self.model_dump(mode="json")
        except ValueError:
            fields: dict[str, Any] = json.loads(json.dumps(self.model_dump(), default=to_jsonable_python))
            return fields

    @model_serializer(mode="wrap")
    def _without_absent(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: value for name, value in handler(self).items() if value is not None}
