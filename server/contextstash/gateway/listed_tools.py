"""A server's list of tools as it came: tools that no session could read are left out of it, and the others stay."""

from __future__ import annotations

import logging
from typing import Any

from mcp.shared.message import SessionMessage
from mcp.types import JSONRPCResponse, Tool
from pydantic import ValidationError

logger = logging.getLogger(__name__)

MAX_TOLD = 5
"""Malformed tools of one list that are told one by one."""


def with_usable_tools(message: Any, server: str) -> Any:
    """The same message; if it lists tools, only with those that can be read. Others are told in the log, by place."""
    answer = message.message if isinstance(message, SessionMessage) else None
    if not isinstance(answer, JSONRPCResponse) or "content" in answer.result:
        return message
    listed = answer.result.get("tools")
    if not isinstance(listed, list):
        return message
    problems = {place: problem for place, tool in enumerate(listed) if (problem := _problem(tool))}
    if problems:
        for place in list(problems)[:MAX_TOLD]:
            logger.warning("server '%s': its tool %d is left out: %s", server, place + 1, problems[place])
        if len(problems) > MAX_TOLD:
            logger.warning("server '%s': %d more tools are left out", server, len(problems) - MAX_TOLD)
        answer.result["tools"] = [tool for place, tool in enumerate(listed) if place not in problems]
    return message


def _problem(tool: Any) -> str | None:
    try:
        read = Tool.model_validate(tool, by_name=False)
    except ValidationError as error:
        first = error.errors()[0]
        return f"{'.'.join(map(str, first['loc'])) or 'tool'}: {first['msg']}"[:200]
    return None if read.input_schema.get("type") == "object" else "its inputSchema is not of type 'object'"
