"""The directory: what all servers offer together, under unique names, and the server of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mcp import InvalidUriTemplate, UriTemplate
from mcp.types import Prompt, Resource, ResourceTemplate, Tool

from contextstash.gateway.names import TOOL_JOINT, URI_JOINT, Origin, offered_names, prefixes
from contextstash.gateway.reserved_names import is_own_prompt, is_own_uri, is_reserved_tool
from contextstash.gateway.servers.offers import Offer


@dataclass(frozen=True, slots=True)
class Directory:
    """The offered lists: each offered name or URI with its origin and its definition."""

    tools: Mapping[str, tuple[Origin, Tool]]
    prompts: Mapping[str, tuple[Origin, Prompt]]
    resources: Mapping[str, tuple[Origin, Resource]]
    templates: Mapping[str, tuple[Origin, ResourceTemplate]]

    @classmethod
    def of(cls, offers: Mapping[str, Offer], own: str | None = None) -> Directory:
        """The directory of these servers' offers, in their order. Names of the server `own` never change, and nothing
        of another server gets a name that is, or looks like, one of contextstash's own."""
        before = prefixes(offers)
        schemes = {server: prefix.replace("_", "-") for server, prefix in before.items()}

        def listed(
            items: Callable[[Offer], Sequence[Any]],
            key: str,
            joint: str,
            ahead: Mapping[str, str],
            reserved: Callable[[str], bool],
        ) -> Any:
            by_name = {server: {getattr(item, key): item for item in items(offer)} for server, offer in offers.items()}
            own_names = {server: list(each) for server, each in by_name.items()}
            names = offered_names(own_names, ahead, joint, own, reserved, of_tools=reserved is is_reserved_tool)
            return {
                offered: (origin, by_name[origin.server][origin.name].model_copy(update={key: offered}))
                for offered, origin in names.items()
            }

        return cls(
            tools=listed(lambda offer: offer.tools, "name", TOOL_JOINT, before, is_reserved_tool),
            prompts=listed(lambda offer: offer.prompts, "name", TOOL_JOINT, before, is_own_prompt),
            resources=listed(lambda offer: offer.resources, "uri", URI_JOINT, schemes, is_own_uri),
            templates=listed(lambda offer: offer.templates, "uri_template", URI_JOINT, schemes, is_own_uri),
        )

    def resource(self, uri: str) -> Origin | None:
        """The server of a resource and its URI there; None if no list has the URI and no template matches it."""
        if uri in self.resources:
            return self.resources[uri][0]
        for offered, (origin, _) in self.templates.items():
            if _matches(offered, uri):
                ahead = offered.removesuffix(origin.name)
                return Origin(origin.server, uri.removeprefix(ahead))
        return None


def _matches(template: str, uri: str) -> bool:
    try:
        return UriTemplate.parse(template).match(uri) is not None
    except InvalidUriTemplate:
        return False
