"""llama.cpp's server (llama-server, xllamacpp). Formats as seen on build b11549."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from prefold.backends.engine import (
    Endpoint,
    EngineFacts,
    PromptReport,
    ServedModel,
    SlotCapacity,
    Timings,
    Usage,
    count,
    int_list,
    listed_models,
    report_from_usage,
)
from prefold.backends.kv_events.discovery import NoEvents
from prefold.backends.kv_events.subscriber import Source
from prefold.backends.prometheus_text import samples, total

RUNNING = "llamacpp:requests_processing"
WAITING = "llamacpp:requests_deferred"
COMPUTED = "llamacpp:prompt_tokens_total"


class LlamaCpp:
    name = "llama.cpp"
    # `timings` come in the finish chunk of every stream, unasked.
    needs_include_usage = False
    knows_cache_salt = False
    reporting = "in timings, with every answer"

    async def probe(self, endpoint: Endpoint) -> EngineFacts | None:
        # /v1/models answers while the model still loads; /health does not (503).
        status, _ = await endpoint.get("/health")
        if status != 200:
            return None
        listed = await listed_models(endpoint)
        if not listed:
            return None
        props = await endpoint.get_json("/props") or {}
        # --metrics is a flag of the server: without it the load stays unknown.
        status, page = await endpoint.get("/metrics")
        loads = samples(page, (RUNNING, WAITING, COMPUTED)) if status == 200 else {}
        path = props.get("model_path")
        return EngineFacts(
            models=tuple(
                ServedModel(
                    id=name, tokenizer_source=path if isinstance(path, str) else None, card=entry
                )
                for entry in listed
                for name in _names(entry)
            ),
            capacity=_capacity(props),
            running=total(loads, RUNNING),
            waiting=total(loads, WAITING),
            prompt_tokens_total=total(loads, COMPUTED),
        )

    async def chat_tokens(
        self, endpoint: Endpoint, model: str, messages: Sequence[dict[str, str]]
    ) -> list[int] | None:
        rendered = await endpoint.post_json("/apply-template", {"messages": list(messages)})
        if not isinstance(rendered, dict) or not isinstance(rendered.get("prompt"), str):
            return None
        # add_special as the chat endpoint does: a BOS only where the model's metadata asks for it.
        answer = await endpoint.post_json(
            "/tokenize",
            {"content": rendered["prompt"], "add_special": True, "parse_special": True},
        )
        return int_list(answer.get("tokens")) if isinstance(answer, dict) else None

    async def event_source(self, endpoint: Endpoint) -> Source:
        raise NoEvents("llama.cpp publishes no KV events")

    def report(self, usage: Usage | None, timings: Timings | None) -> PromptReport:
        if timings is None or timings.cache_n is None or timings.prompt_n is None:
            return report_from_usage(usage)
        if count(timings.cache_n) is None or count(timings.prompt_n) is None:
            return PromptReport()
        return PromptReport(
            prompt_tokens=timings.cache_n + timings.prompt_n,
            cached_tokens=timings.cache_n,
            completion_tokens=count(timings.predicted_n),
            prefill_s=None if timings.prompt_ms is None else timings.prompt_ms / 1000,
        )


def _names(entry: dict[str, Any]) -> list[str]:
    aliases = entry.get("aliases")
    extra = [name for name in aliases if isinstance(name, str)] if isinstance(aliases, list) else []
    return list(dict.fromkeys([entry["id"], *extra]))


def _capacity(props: dict[str, Any]) -> SlotCapacity | None:
    """n_ctx of the generation settings is one slot's share, not the server's total."""
    generation = props.get("default_generation_settings")
    slots = props.get("total_slots")
    context = generation.get("n_ctx") if isinstance(generation, dict) else None
    if isinstance(slots, int) and isinstance(context, int) and slots > 0 and context > 0:
        return SlotCapacity(slots=slots, context_tokens=context)
    return None
