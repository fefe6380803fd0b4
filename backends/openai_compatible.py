"""Any OpenAI-compatible server: ready when it lists models; load and capacity stay unknown."""

from __future__ import annotations

from collections.abc import Sequence

from prefold.backends.engine import (
    Endpoint,
    EngineFacts,
    PromptReport,
    ServedModel,
    Timings,
    Usage,
    listed_models,
    report_from_usage,
)
from prefold.backends.kv_events.discovery import discover
from prefold.backends.kv_events.subscriber import Source


class OpenAICompatible:
    name = "openai"
    needs_include_usage = True
    knows_cache_salt = False
    reporting = "not known"

    async def probe(self, endpoint: Endpoint) -> EngineFacts | None:
        listed = await listed_models(endpoint)
        if not listed:
            return None
        return EngineFacts(
            models=tuple(ServedModel(id=entry["id"], card=entry) for entry in listed)
        )

    async def chat_tokens(
        self, endpoint: Endpoint, model: str, messages: Sequence[dict[str, str]]
    ) -> list[int] | None:
        return None

    async def event_source(self, endpoint: Endpoint) -> Source:
        # Servers of other names that are built on vLLM may have its endpoint.
        return await discover(endpoint)

    def report(self, usage: Usage | None, timings: Timings | None) -> PromptReport:
        return report_from_usage(usage)
