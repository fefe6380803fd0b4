"""Data-parallel ranks as backends. A server that runs several engines behind one URL has as many KV
caches, and a cache is what a prompt is routed to: so each rank is a backend of its own, with the
header by which vLLM and SGLang let a client choose it.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from prefold.backends.kv_events.subscriber import Source
from prefold.proxy.errors import SettingsError

if TYPE_CHECKING:
    from prefold.proxy.settings import Backend, Settings

HEADER = "X-data-parallel-rank"
RANKED = frozenset(("auto", "vllm", "sglang"))
"""Engines that take it; what `auto` finds is checked when it is found."""


def rank_headers(backend: Backend) -> dict[str, str]:
    """Sent with every request to this backend, whatever the client sent under the same name."""
    rank = backend.data_parallel_rank
    return {HEADER: str(rank)} if rank >= 0 else {}


def with_ranks(settings: Settings) -> Settings:
    """Each backend of `data_parallel` ranks becomes that many. Raises SettingsError."""
    ranks: list[Backend] = []
    for number, backend in enumerate(settings.backends):
        ranks += _ranks(backend, f"backends[{number}]")
    names = [backend.name for backend in ranks]
    if twice := {name for name in names if names.count(name) > 1}:
        raise SettingsError(f"backends: {min(twice)!r} is used twice, as a name or for a rank")
    return dataclasses.replace(settings, backends=tuple(ranks))


def _ranks(backend: Backend, where: str) -> list[Backend]:
    several, is_one = backend.data_parallel > 1, backend.data_parallel_rank >= 0
    if not several and not is_one:
        return [backend]
    if backend.engine not in RANKED:
        member = "data_parallel" if several else "data_parallel_rank"
        raise SettingsError(f"{where}.{member}: {backend.engine} takes no request for a rank")
    if not several:
        return [backend]
    if is_one:
        raise SettingsError(f"{where}.data_parallel: data_parallel_rank says that it is one rank")
    if Source(endpoint=backend.kv_events).binds:
        raise SettingsError(f"{where}.kv_events: each rank has its own: let the engine bind it")
    return [_rank(backend, rank) for rank in range(backend.data_parallel)]


def _rank(backend: Backend, rank: int) -> Backend:
    """The engines add the rank to the ports that they are given for KV events."""
    return dataclasses.replace(
        backend,
        name=f"{backend.name}#{rank}",
        data_parallel=1,
        data_parallel_rank=rank,
        kv_events=_port_after(backend.kv_events, rank),
        kv_replay=_port_after(backend.kv_replay, rank),
    )


def _port_after(endpoint: str, by: int) -> str:
    if endpoint in ("", "auto"):
        return endpoint
    address, _, port = endpoint.rpartition(":")
    return f"{address}:{int(port) + by}"
