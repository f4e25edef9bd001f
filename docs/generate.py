"""Generates `settings.md`, `tools.md`, `command-line.md` and the table of rooms in `architecture.md` from the code, and
the schemas that a server lists.

`make docs` runs it; a test checks that they are current.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import json
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args

import click
from mcp import Client
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue

from contextstash import results
from contextstash.cli.app import cli
from contextstash.mcp.server import SCHEMAS, build_server
from contextstash.operations import OPERATIONS, Operation
from contextstash.stash import Stash
from contextstash.window.settings import PRESETS, ContextSettings, UserSettings, resolve_settings

FOLDER = Path(__file__).parent

SHARED = (
    ("--db DATABASE", "The database: a file, or postgresql://… [default: a file in the user's data folder]"),
    ("--preset NAME", "The named set of settings to start from."),
    ("--set KEY=VALUE", "One setting; may be given several times."),
    ("--json", "Print the result as JSON."),
)
"""Options that the command line's page describes once."""

MADE = "<!-- Made by `make docs` from the code. Change the code, not this page. -->"


def pages() -> dict[str, str]:
    """The generated pages by file name."""
    return {
        "settings.md": settings_page(),
        "tools.md": asyncio.run(tools_page()),
        "command-line.md": command_line_page(),
        "architecture.md": architecture_page(),
    }


def architecture_page() -> str:
    """The page as it is written, with the rooms and what the first line of each says."""
    written = (FOLDER / "architecture.md").read_text(encoding="utf-8").partition("| room |")[0]
    rows = [
        f"| `{path.parent.relative_to(source).as_posix()}/` | {_cell(_first_line(path))} |"
        for source in (FOLDER.parent / "server", FOLDER.parent / "storage")
        for path in sorted(source.rglob("__init__.py"))
    ]
    return "\n".join([f"{written}| room | what is in it |", "| --- | --- |", *rows]) + "\n"


def _first_line(path: Path) -> str:
    return (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").splitlines()[0]


def settings_page() -> str:
    """Each setting with its default and the values that presets give it."""
    resolved = {name: resolve_settings({"preset": name}).model_dump() for name in PRESETS}
    default = ContextSettings().model_dump()
    described = _texts_below(UserSettings)
    parts = [
        "# Settings",
        MADE,
        "How to set them: [guide](guide.md#settings). Shares are shares of the usable window, which is the"
        " window minus the reserve for the reply. A preset that is not listed under a setting uses the default; a"
        f" variant ({', '.join(f'`{name}`' for name in PRESETS if _varied(name))}) has the value of what it varies.",
    ]
    for name, field in UserSettings.model_fields.items():
        others = {
            preset: values[name]
            for preset, values in resolved.items()
            if name != "preset" and values[name] != resolved[_varied(preset) or "default"][name]
        }
        parts.append(f"## `{name}`\n\n{described[name]}\n\n{_values(field, default[name], others)}")
    parts.append(_numbers_of_presets(resolved))
    return "\n\n".join(parts) + "\n"


def _varied(preset: str) -> str | None:
    """The preset of which this one is a variant; None if it is none."""
    return next((preset.removesuffix(end) for end in ("-cost", "-quality") if preset.endswith(end)), None)


def _numbers_of_presets(resolved: Mapping[str, Mapping[str, Any]]) -> str:
    """What only a preset sets, and what each sets it to, in a table."""
    names = [name for name in ContextSettings.model_fields if name not in UserSettings.model_fields]
    shown = [preset for preset in PRESETS if not _varied(preset)]
    rows = [f"| {' | '.join(['number', *shown])} |", f"| {' | '.join(['---'] * (len(shown) + 1))} |"]
    rows += [f"| {' | '.join([name, *(_shown(resolved[preset][name]) for preset in shown)])} |" for name in names]
    return "# Numbers of the presets\n\nThese are not set one by one.\n\n" + "\n".join(rows)


def _texts_below(settings: type) -> dict[str, str]:
    """The text below each field of a class, in one line."""
    (declared,) = ast.parse(inspect.getsource(settings)).body
    assert isinstance(declared, ast.ClassDef)
    return {
        field.target.id: " ".join(str(text.value.value).split())
        for field, text in pairwise(declared.body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
    }


def _values(field: Any, default: Any, others: Mapping[str, Any]) -> str:
    choices = [each for each in get_args(field.annotation) if isinstance(each, str)]
    lines = [f"- default: {_shown(default)}"]
    if choices:
        lines.append(f"- one of: {', '.join(f'`{choice}`' for choice in choices)}")
    lines += [f"- `{preset}`: {_shown(value)}" for preset, value in others.items()]
    return "\n".join(lines)


def _shown(value: Any) -> str:
    if value is None:
        return "not set"
    text = f"{value:_}" if isinstance(value, int) and not isinstance(value, bool) and value >= 10_000 else value
    shown = json.dumps(text, ensure_ascii=False) if isinstance(text, (str, bool)) and text is value else str(text)
    return f"`{shown}`"


def command_line_page() -> str:
    """Each command with its help and its options."""
    parts = [
        "# Command line",
        MADE,
        "Sessions may be named by the beginning of their id. Results go to standard output, notes to standard error.",
        "Options that many commands take are described here, and listed there by name.",
        "\n".join(f"- `{names}`: {text}" for names, text in SHARED),
    ]
    for name, command in sorted(cli.commands.items()):
        inner = sorted(command.commands.items()) if isinstance(command, click.Group) else []
        parts += _command(f"contextstash {name}", command)
        for inner_name, each in inner:
            parts += _command(f"contextstash {name} {inner_name}", each)
    return "\n\n".join(parts) + "\n"


def _command(name: str, command: click.Command) -> list[str]:
    """The section of a command. A hidden one, which only programs of ours start, has none."""
    if command.hidden:
        return []
    context = click.Context(command, info_name=name)
    words = " ".join(command.collect_usage_pieces(context)).replace("[OPTIONS]", "").strip()
    given = [each for each in command.params if isinstance(each, click.Option)]
    records = [
        (names, " ".join(text.split())) for each in given for names, text in [each.get_help_record(context) or ("", "")]
    ]
    lines = [f"- `{names}`: {text}" for names, text in records if names and (names, text) not in SHARED]
    shared = ", ".join(f"`{names.split()[0]}`" for names, text in records if (names, text) in SHARED)
    options = "\n".join([*lines, *([f"- {shared}"] if shared else [])])
    paragraphs = map(_paragraph, [*(command.help or "").split("\n\n"), command.epilog or ""])
    return [f"## `{f'{name} {words}'.strip()}`", *filter(None, paragraphs), *([options] if options else [])]


def _paragraph(text: str) -> str:
    """Click keeps the lines of a paragraph that begins with a \\b."""
    lines = text.strip().removeprefix("\b\n")
    return f"```\n{lines}\n```" if lines != text.strip() else " ".join(text.split())


async def _never_opened() -> Stash:
    raise AssertionError("listing tools must not open a store")


async def tools_page() -> str:
    """Each tool, resource and prompt as a client lists them."""
    async with Client(build_server(_never_opened, "all")) as client:
        tools = (await client.list_tools()).tools
        resources = (await client.list_resources()).resources
        templates = (await client.list_resource_templates()).resource_templates
        prompts = (await client.list_prompts()).prompts
    async with Client(build_server(_never_opened, "agent")) as client:
        agent = {tool.name for tool in (await client.list_tools()).tools}
    parts = [
        "# Tools, resources and prompts",
        MADE,
        "`--tools agent` lists the tools that a model uses, `--tools all` also those for programs. If a session is"
        " followed, `session_id` may be omitted. A field without a value is omitted, not null.",
        *(_tool(tool, tool.name in agent) for tool in tools),
        "# Resources",
        "\n".join(f"- `{each.uri}`: {each.description}" for each in resources),
        "\n".join(f"- `{each.uri_template}`: {each.description}" for each in templates),
        "# Prompts",
        "\n".join(
            f"- `{each.name}` ({', '.join(argument.name for argument in each.arguments or [])}): {each.description}"
            for each in prompts
        ),
    ]
    return "\n\n".join(parts) + "\n"


def _tool(tool: Any, for_models: bool) -> str:
    hints = tool.annotations
    traits = [
        "for models and programs" if for_models else "for programs (`--tools all`)",
        *(["only reads"] if hints.read_only_hint else []),
        *(["destroys"] if hints.destructive_hint else []),
        *(["safe to repeat"] if hints.idempotent_hint else []),
    ]
    return "\n\n".join(
        [
            f"## `{tool.name}`",
            f"{tool.description} ({'; '.join(traits)})",
            _table("argument", tool.input_schema),
            _table("result field", tool.output_schema or {}),
        ]
    )


def _table(head: str, schema: Mapping[str, Any]) -> str:
    required = schema.get("required", []) if head == "argument" else []
    rows = [_row(name, field, name in required) for name, field in schema.get("properties", {}).items()]
    if not rows:
        return f"No {head}s."
    return "\n".join([f"| {head} | type | |", "| --- | --- | --- |", *rows])


def _row(name: str, field: Mapping[str, Any], needed: bool) -> str:
    named = f"`{name}` (required)" if needed else f"`{name}`"
    return f"| {named} | {_type(field)} | {_cell(field.get('description', ''))} |"


def _type(field: Mapping[str, Any]) -> str:
    if "enum" in field:
        return ", ".join(f"`{each}`" for each in field["enum"])
    if "$ref" in field:
        return str(field["$ref"]).rsplit("/", 1)[-1]
    if field.get("type") == "array":
        return f"list of {_type(field.get('items', {}))}"
    return str(field.get("type", "any"))


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def schemas() -> dict[str, dict[str, Any]]:
    """The schemas of each operation's arguments and result, by its name."""
    return {each.name: _schemas_of(each) for each in OPERATIONS.values()}


def _schemas_of(operation: Operation) -> dict[str, Any]:
    taken = operation.model.model_json_schema(schema_generator=ArgumentSchema)
    result = inspect.signature(operation.function).return_annotation.removeprefix("results.")
    return {
        # Closed to unknown arguments, so that a client that validates finds a misspelt name first.
        "input_schema": {**taken, "additionalProperties": False},
        "output_schema": getattr(results, result).model_json_schema(schema_generator=ShortSchema),
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


class ArgumentSchema(ShortSchema):
    """Those of arguments, which a model reads."""

    def union_schema(self, schema: Any) -> JsonSchemaValue:
        """One of several types, in one object."""
        made = super().union_schema(schema)
        choices = made.pop("anyOf", [])
        together = {name: value for each in choices for name, value in each.items()}
        return made | together | {"type": [each["type"] for each in choices]} if choices else made


def schemas_file() -> str:
    """The schemas that a server lists: an operation a line."""
    lines = (f"{json.dumps(name)}: {json.dumps(each)}" for name, each in schemas().items())
    return "{\n" + ",\n".join(lines) + "\n}\n"


if __name__ == "__main__":
    SCHEMAS.write_text(schemas_file(), encoding="utf-8")
    for name, text in pages().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
