"""The picture that the tool `context_status` shows in clients with apps (MCP Apps); all others show its text."""

from __future__ import annotations

from importlib.resources import files

from mcp.server.apps import APP_MIME_TYPE, Apps
from mcp.server.mcpserver.resources import FunctionResource

from contextstash.display import static

URI = "ui://contextstash/context-status.html"

LOOK, CHART = "/* look.css */", "/* chart.js */"
"""The places in the page for the style and the chart that it shares with the browser pages."""


def status_app() -> Apps:
    """The extension as the server declares it, with the page, which is read from its file at the first request."""
    apps = Apps()
    apps.add_resource(
        FunctionResource(
            uri=URI,
            name="context-status",
            title="Context status",
            description="A picture of how full a session's context is.",
            mime_type=APP_MIME_TYPE,
            meta={"ui": {"prefersBorder": True}},
            fn=page,
        )
    )
    return apps


def page() -> str:
    """The page: one document with its style and script, without external resources: clients show it in a sandbox."""
    text = (files("contextstash.mcp") / "context_status.html").read_text(encoding="utf-8")
    return text.replace(LOOK, static("look.css")).replace(CHART, static("chart.js"))
