"""TensorRT-LLM's trtllm-serve, as its source says (at commit 00057725d9a6).

Two of its endpoints empty what they show: GET /metrics takes the statistics of the last steps out
of the engine's queue, POST /kv_cache_events the events. Whoever else reads them would miss what was
read here, so neither is asked, and load, capacity and events stay unknown. Nor does it tell the ids
that it makes of a chat, so prompts are compared by their bytes. Members that it does not know are
errors, which is why no `cache_salt` is sent: its completions have none.
"""

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
from prefold.backends.kv_events.discovery import NoEvents
from prefold.backends.kv_events.subscriber import Source

CAPACITY = "its KV cache's size is not told: set index.default_capacity_tokens to it"


class TensorRtLlm:
    name = "tensorrt-llm"
    needs_include_usage = True
    knows_cache_salt = False
    reporting = "in usage"

    async def probe(self, endpoint: Endpoint) -> EngineFacts | None:
        status, _ = await endpoint.get("/health")
        if status != 200:
            return None
        listed = await listed_models(endpoint)
        if not listed:
            return None
        told = await endpoint.get_json("/version")
        version = told.get("version") if isinstance(told, dict) else None
        return EngineFacts(
            models=tuple(ServedModel(id=entry["id"], card=entry) for entry in listed),
            version=version if isinstance(version, str) else None,
            advice=(CAPACITY,),
        )

    async def chat_tokens(
        self, endpoint: Endpoint, model: str, messages: Sequence[dict[str, str]]
    ) -> list[int] | None:
        return None

    async def event_source(self, endpoint: Endpoint) -> Source:
        raise NoEvents("reading TensorRT-LLM's KV events takes them from other readers")

    def report(self, usage: Usage | None, timings: Timings | None) -> PromptReport:
        return report_from_usage(usage)
