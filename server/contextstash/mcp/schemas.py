"""The JSON schemas of tools, made of operations and their results.

A server reads them from `schemas.json`, which `make docs` writes: that takes less time than to make them.
"""

from __future__ import annotations

from typing import Any

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue

from contextstash import results
from contextstash.operations import OPERATIONS, Operation


def schemas() -> dict[str, dict[str, Any]]:
    """The schemas of each operation's arguments and result, by its name."""
    return {each.name: _schemas_of(each) for each in OPERATIONS.values()}


def _schemas_of(operation: Operation) -> dict[str, Any]:
    taken = operation.model.model_json_schema(schema_generator=ShortSchema)
    return {
        # Closed to unknown arguments, so that a client that validates finds a misspelt name first.
        "input_schema": {**taken, "additionalProperties": False},
        "output_schema": getattr(results, operation.result).model_json_schema(schema_generator=ShortSchema),
    }


class ShortSchema(GenerateJsonSchema):
    """JSON schemas as a client sees them, without the titles and null defaults of pydantic, which cost tokens. A
    missing field has the same meaning as null, which is not named."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        """No field has a title."""
        return False

    def model_schema(self, schema: Any) -> JsonSchemaValue:
        """A model without its title."""
        return {name: each for name, each in super().model_schema(schema).items() if name != "title"}

    def nullable_schema(self, schema: Any) -> JsonSchemaValue:
        """`X or null` as X."""
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: Any) -> JsonSchemaValue:
        """A default, unless it is null."""
        made = super().default_schema(schema)
        return made if made.get("default") is not None else {name: made[name] for name in made if name != "default"}

    def dict_schema(self, schema: Any) -> JsonSchemaValue:
        """An object, without saying that it may hold anything."""
        made = super().dict_schema(schema)
        return {name: each for name, each in made.items() if each is not True}
