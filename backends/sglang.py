"""SGLang's server, as its source says (0.5.23; what 0.5.4 to 0.5.20 lack is noted).

/health and /health_generate are one handler: it computes a token and takes a second or more, so
neither is asked. /ready (0.5.20) costs nothing; before that, a scheduler that answers /server_info
is at work. Some of what /server_info holds is secret: only the members named here are read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

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
from prefold.backends.kv_events.discovery import SMALLEST_PAGE, sglang_source
from prefold.backends.kv_events.subscriber import Source

COARSE = 16
"""Tokens of a block that stands for several small pages."""
REPORT = "start it with --enable-cache-report: until then it does not tell cached tokens"


class SgLang:
    name = "sglang"
    needs_include_usage = True
    knows_cache_salt = True
    reporting = "in usage, if it was started with --enable-cache-report"

    async def probe(self, endpoint: Endpoint) -> EngineFacts | None:
        status, _ = await endpoint.get("/ready")
        if status >= 500:
            return None
        listed = await listed_models(endpoint)
        info = await _server_info(endpoint)
        if not listed or info is None:
            return None
        ranks = _ranks(info)
        require_rank(endpoint.rank, ranks)
        loads = await _loads(endpoint)
        source = info.get("tokenizer_path") or info.get("model_path")
        reports = info.get("enable_cache_report")
        return EngineFacts(
            models=tuple(
                ServedModel(
                    id=entry["id"],
                    tokenizer_source=source if isinstance(source, str) else None,
                    card=entry,
                )
                for entry in listed
            ),
            capacity=_capacity(info),
            running=_sum(loads, "num_running_reqs"),
            waiting=_sum(loads, "num_waiting_reqs"),
            kv_usage=_fullest(loads),
            prompt_tokens_total=_sum(loads, "total_prefill_uncached_tokens"),
            version=version if isinstance(version := info.get("version"), str) else None,
            ranks=ranks,
            reports_cached=reports if isinstance(reports, bool) else None,
            advice=(*rank_advice(endpoint.rank, ranks), *((REPORT,) if reports is False else ())),
        )

    async def chat_tokens(
        self, endpoint: Endpoint, model: str, messages: Sequence[dict[str, str]]
    ) -> list[int] | None:
        """Of chats since 0.5.12; `add_generation_prompt` is left out, since only then they are
        rendered as a chat completion is."""
        answer = await endpoint.post_json("/tokenize", {"model": model, "messages": list(messages)})
        return int_list(answer.get("tokens")) if isinstance(answer, dict) else None

    async def event_source(self, endpoint: Endpoint) -> Source:
        return sglang_source(await _server_info(endpoint), endpoint.url, endpoint.rank)

    def report(self, usage: Usage | None, timings: Timings | None) -> PromptReport:
        """Without --enable-cache-report there are no details, but where they tell of images, audio
        or video: cached tokens are 0 in them then, and that may be or not be so."""
        report = report_from_usage(usage)
        details = usage.prompt_tokens_details if usage is not None else None
        if details is None or report.cached_tokens:
            return report
        if details.image_tokens or details.audio_tokens or details.video_tokens:
            return msgspec.structs.replace(report, cached_tokens=None)
        return report


async def _server_info(endpoint: Endpoint) -> dict[str, Any] | None:
    """Under its old name before 0.5.5."""
    for path in ("/server_info", "/get_server_info"):
        info = await endpoint.get_json(path)
        if isinstance(info, dict):
            return info
    return None


def _ranks(info: dict[str, Any]) -> int:
    """One internal state for each: `dp_size` alone leaves out those of attention DP since it has
    been counted apart."""
    states = info.get("internal_states")
    return max(len(states), 1) if isinstance(states, list) else 1


async def _loads(endpoint: Endpoint) -> list[dict[str, Any]]:
    """Of the rank, or of each; nothing before 0.5.9."""
    answer = await endpoint.get_json("/v1/loads?include=core")
    loads = answer.get("loads") if isinstance(answer, dict) else None
    return [
        load
        for load in (loads if isinstance(loads, list) else [])
        if isinstance(load, dict) and endpoint.rank in (None, load.get("dp_rank"))
    ]


def _sum(loads: list[dict[str, Any]], member: str) -> int | None:
    values = [value for load in loads if type(value := load.get(member)) is int]
    return sum(values) if values else None


def _fullest(loads: list[dict[str, Any]]) -> float | None:
    usages = [
        float(usage) for load in loads if isinstance(usage := load.get("token_usage"), int | float)
    ]
    return max(usages, default=None)


def _capacity(info: dict[str, Any]) -> Capacity | None:
    """Of one rank. A page is what a prefix is matched in; where it is but a few tokens (the default
    is one) the cache is modelled in larger blocks, and up to 15 tokens more may be found than
    expected."""
    if info.get("disable_radix_cache") is True:
        return NoPrefixCache()
    tokens, page = info.get("max_total_num_tokens"), info.get("page_size")
    if type(tokens) is not int or type(page) is not int or page < 1:
        return None
    block = page if page >= SMALLEST_PAGE else COARSE
    return BlockCapacity(blocks=tokens // block, block_tokens=block) if tokens >= block else None
