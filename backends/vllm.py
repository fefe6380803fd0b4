"""vLLM's OpenAI server, as seen on 0.32.0 and, of several data-parallel ranks, read in 0.33.0.

Nothing listens while it loads. Its gauges are written once for each engine step, so they stand
still during a long prefill. A killed server may leave its engine process behind, at work. Ranks are
one server's engines: the header X-data-parallel-rank says which one a request is for, the label
`engine` of a metric which one it is of.
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
    rank_advice,
    report_from_usage,
    require_rank,
)
from prefold.backends.kv_events.discovery import discover
from prefold.backends.kv_events.subscriber import Source
from prefold.backends.prometheus_text import samples, total

RUNNING = "vllm:num_requests_running"
WAITING = "vllm:num_requests_waiting"
CACHE_CONFIG = "vllm:cache_config_info"
COMPUTED = "vllm:prompt_tokens_total"
KV_USAGE = "vllm:kv_cache_usage_perc"
PREEMPTIONS = "vllm:num_preemptions_total"
STARTED = "process_start_time_seconds"
ENGINE = "engine"
WANTED = (RUNNING, WAITING, CACHE_CONFIG, COMPUTED, STARTED, KV_USAGE, PREEMPTIONS)


class Vllm:
    name = "vllm"
    needs_include_usage = True
    knows_cache_salt = True
    reporting = "in usage, if it was started with --enable-prompt-tokens-details"

    async def probe(self, endpoint: Endpoint) -> EngineFacts | None:
        status, _ = await endpoint.get("/health")
        if status != 200:
            return None
        listed = await listed_models(endpoint)
        if not listed:
            return None
        status, page = await endpoint.get("/metrics")
        found = samples(page, WANTED) if status == 200 else {}
        ranks = _ranks(found)
        if ranks:
            require_rank(endpoint.rank, len(ranks))
        capacity = _capacity(found.get(CACHE_CONFIG, []), len(ranks) or 1)
        started = found.get(STARTED)
        if endpoint.rank is not None and ranks:
            found = _of_engine(found, ranks[endpoint.rank])
        return EngineFacts(
            models=tuple(
                ServedModel(
                    id=entry["id"],
                    tokenizer_source=root if isinstance(root := entry.get("root"), str) else None,
                    card=entry,
                )
                for entry in listed
            ),
            capacity=capacity,
            running=total(found, RUNNING),
            waiting=total(found, WAITING),
            kv_usage=max((sample.value for sample in found.get(KV_USAGE, [])), default=None),
            preemptions=total(found, PREEMPTIONS),
            started=started[0].value if started else None,
            prompt_tokens_total=total(found, COMPUTED),
            ranks=len(ranks) or None,
            advice=rank_advice(endpoint.rank, len(ranks)),
        )

    async def chat_tokens(
        self, endpoint: Endpoint, model: str, messages: Sequence[dict[str, str]]
    ) -> list[int] | None:
        answer = await endpoint.post_json(
            "/tokenize",
            {"model": model, "messages": list(messages), "add_generation_prompt": True},
        )
        return int_list(answer.get("tokens")) if isinstance(answer, dict) else None

    async def event_source(self, endpoint: Endpoint) -> Source:
        return await discover(endpoint)

    def report(self, usage: Usage | None, timings: Timings | None) -> PromptReport:
        # Without --enable-prompt-tokens-details the details are null: unknown, not zero.
        return report_from_usage(usage)


def _ranks(found: dict[str, list[Sample]]) -> list[str]:
    """The engines' labels, in order: of a server that has some of a fleet's ranks they do not begin
    with 0, but the header counts from 0 in each server."""
    labels = {
        label
        for sample in found.get(RUNNING, [])
        if (label := sample.labels.get(ENGINE, "")).isdecimal()
    }
    return sorted(labels, key=int)


def _of_engine(found: dict[str, list[Sample]], label: str) -> dict[str, list[Sample]]:
    """A metric that is not told of it is absent, and not zero."""
    of_it = {
        name: [sample for sample in values if sample.labels.get(ENGINE) == label]
        for name, values in found.items()
    }
    return {name: values for name, values in of_it.items() if values}


def _capacity(infos: list[Sample], ranks: int) -> Capacity | None:
    """Of one rank: num_gpu_blocks is the sum over all ranks of the server, told for each of them
    (vllm/v1/engine/core_client.py). Where a request may meet any of them, one is what it finds."""
    if any(info.labels.get("enable_prefix_caching") == "False" for info in infos):
        return NoPrefixCache()
    sizes = []
    for info in infos:
        blocks, tokens = info.labels.get("num_gpu_blocks", ""), info.labels.get("block_size", "")
        if blocks.isdecimal() and tokens.isdecimal() and int(blocks) >= ranks and int(tokens):
            sizes.append(BlockCapacity(blocks=int(blocks) // ranks, block_tokens=int(tokens)))
    return min(sizes, key=lambda size: size.blocks * size.block_tokens, default=None)
