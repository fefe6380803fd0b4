"""vLLM's OpenAI server, as seen on 0.32.0.

Nothing listens while it loads. Its gauges are written once for each engine step, so they stand
still during a long prefill. A killed server may leave its engine process behind, at work.
"""

from __future__ import annotations

from collections.abc import Sequence

from prometheus_client.samples import Sample

from prefold.backends.engine import (
    BlockCapacity,
    Capacity,
    Endpoint,
    EngineFacts,
    NoPrefixCache,
    PromptReport,
    ServedModel,
    Timings,
    Usage,
    int_list,
    listed_models,
    report_from_usage,
)
from prefold.backends.prometheus_text import samples, total

RUNNING = "vllm:num_requests_running"
WAITING = "vllm:num_requests_waiting"
CACHE_CONFIG = "vllm:cache_config_info"


class Vllm:
    name = "vllm"
    needs_include_usage = True
    knows_cache_salt = True

    async def probe(self, endpoint: Endpoint) -> EngineFacts | None:
        status, _ = await endpoint.get("/health")
        if status != 200:
            return None
        listed = await listed_models(endpoint)
        if not listed:
            return None
        status, page = await endpoint.get("/metrics")
        found = samples(page, (RUNNING, WAITING, CACHE_CONFIG)) if status == 200 else {}
        return EngineFacts(
            models=tuple(
                ServedModel(
                    id=entry["id"],
                    tokenizer_source=root if isinstance(root := entry.get("root"), str) else None,
                    card=entry,
                )
                for entry in listed
            ),
            capacity=_capacity(found.get(CACHE_CONFIG, [])),
            running=total(found, RUNNING),
            waiting=total(found, WAITING),
        )

    async def chat_tokens(
        self, endpoint: Endpoint, model: str, messages: Sequence[dict[str, str]]
    ) -> list[int] | None:
        answer = await endpoint.post_json(
            "/tokenize",
            {"model": model, "messages": list(messages), "add_generation_prompt": True},
        )
        return int_list(answer.get("tokens")) if isinstance(answer, dict) else None

    def report(self, usage: Usage | None, timings: Timings | None) -> PromptReport:
        # Without --enable-prompt-tokens-details the details are null: unknown, not zero.
        return report_from_usage(usage)


def _capacity(infos: list[Sample]) -> Capacity | None:
    """Several engines behind one URL (data parallel) have a cache each; the smallest is believed,
    since which of them a request meets is not ours to choose."""
    if any(info.labels.get("enable_prefix_caching") == "False" for info in infos):
        return NoPrefixCache()
    sizes = []
    for info in infos:
        blocks, tokens = info.labels.get("num_gpu_blocks", ""), info.labels.get("block_size", "")
        if blocks.isdecimal() and tokens.isdecimal() and int(blocks) and int(tokens):
            sizes.append(BlockCapacity(blocks=int(blocks), block_tokens=int(tokens)))
    return min(sizes, key=lambda size: size.blocks * size.block_tokens, default=None)
