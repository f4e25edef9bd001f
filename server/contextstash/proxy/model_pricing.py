"""Facts about the models that clients use: their windows and prices."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from contextstash_storage.records import Usage

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ModelPricing:
    """A model's window in tokens, None if it is not known; `price_of` returns what a usage costs in US dollars."""

    window: int | None = None
    price_of: Callable[[Usage], float | None] = lambda usage: None


class KnownModels:
    """Looks each model up once, in a thread: the first look-up takes half a second."""

    def __init__(self, facts_of: Callable[[str], ModelPricing]) -> None:
        self._facts_of = facts_of
        self._found: dict[str, asyncio.Future[ModelPricing]] = {}

    def now(self, model: object) -> ModelPricing:
        """What is known of a model by now."""
        found = self.of(model)
        return found.result() if found.done() else ModelPricing()

    def of(self, model: object) -> asyncio.Future[ModelPricing]:
        """What is known of a model, as soon as it is looked up."""
        name = model if isinstance(model, str) else ""
        if name not in self._found:
            self._found[name] = asyncio.ensure_future(self._looked_up(name))
        return self._found[name]

    async def _looked_up(self, model: str) -> ModelPricing:
        try:
            return await asyncio.to_thread(self._facts_of, model)
        except Exception as error:
            logger.warning("nothing is known of a model: %s", type(error).__name__)
            return ModelPricing()
