"""Where an engine says that its KV events are to be had. Reads answers; opens no stream.

Of a server with several data-parallel ranks, each publishes what its own cache holds, on a port of
its own.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from prefold.backends.engine import Endpoint
from prefold.backends.kv_events.subscriber import Source

PATH = "/kv_event_sources"
"""vLLM's, seen on 0.32.0: the publisher's settings for each data-parallel rank."""
WILDCARDS = frozenset({"*", "0.0.0.0", "::", "[::]"})
"""Hosts that SGLang binds."""
SMALLEST_PAGE = 8
"""Tokens. SGLang's pages may be of one, and then there are events and entries for each of them."""


class NoEvents(Exception):
    """Says why there is no stream to follow."""


async def discover(endpoint: Endpoint) -> Source:
    """As vLLM tells it. Raises NoEvents, and BackendError as every question does."""
    return source(await endpoint.get_json(PATH), endpoint.url, endpoint.rank)


def source(answer: Any, url: str, rank: int | None = None) -> Source:
    """What vLLM's answer means to one who reaches it at `url` and asks for this rank's stream: of
    an endpoint that the engine binds, only the port is taken from it. Raises NoEvents."""
    if not isinstance(answer, dict) or not answer:
        raise NoEvents("the engine does not tell of KV events")
    settings = _of_rank(answer, rank)
    if not isinstance(settings, dict) or settings.get("enable_kv_cache_events") is not True:
        raise NoEvents("the engine publishes no KV events")
    return _source(
        url,
        port=_bound_port(settings.get("endpoint")),
        replay=_bound_port(settings.get("replay_endpoint")),
        topic=settings.get("topic"),
    )


def sglang_source(info: Any, url: str, rank: int | None = None) -> Source:
    """The same of SGLang's /server_info: one base port, to which a rank adds its number. Raises
    NoEvents."""
    if not isinstance(info, dict) or "kv_events" not in info:
        raise NoEvents("the engine does not tell of KV events: set where they are")
    told = info["kv_events"]
    if not isinstance(told, dict):
        raise NoEvents("the engine publishes no KV events: start it with --kv-events-config")
    if rank is None and told.get("dp_size", 1) != 1:
        raise NoEvents("there are several data-parallel ranks behind its URL: set data_parallel")
    if _number(told.get("block_size")) < SMALLEST_PAGE:
        raise NoEvents("its pages are too small: start it with --page-size 16 or more")
    bound = told.get("endpoint_host") in WILDCARDS
    return _source(
        url,
        port=_port_of_rank(told.get("endpoint_port_base"), rank) if bound else None,
        replay=_port_of_rank(told.get("replay_endpoint_port_base"), rank),
        topic=told.get("topic"),
    )


def _of_rank(answer: dict[str, Any], rank: int | None) -> Any:
    """By order: a node's first rank is its server's rank 0, whatever its number in the fleet."""
    if rank is None:
        if len(answer) > 1:
            # Which of them a request meets is the engine's choice, so no prefix is surely held.
            raise NoEvents(
                "there are several data-parallel ranks behind its URL, with a cache each"
            )
        return next(iter(answer.values()))
    numbers = sorted(answer, key=_number)
    if rank >= len(numbers):
        raise NoEvents(f"the engine tells of no KV events of rank {rank}")
    return answer[numbers[rank]]


def _source(url: str, *, port: int | None, replay: int | None, topic: Any) -> Source:
    host = urlsplit(url).hostname
    if port is None or host is None:
        raise NoEvents("the engine binds no TCP port for its KV events: set where they go")
    return Source(
        endpoint=_tcp(host, port),
        replay_endpoint=None if replay is None else _tcp(host, replay),
        topic=topic if isinstance(topic, str) else "",
    )


def _bound_port(endpoint: Any) -> int | None:
    """Of tcp://*:5557 and tcp://[::]:5557, 5557. Others are where the engine connects to, or only
    within its machine. (A replay endpoint is always bound, to whichever address.)"""
    if not isinstance(endpoint, str) or not endpoint.startswith("tcp://"):
        return None
    address, _, port = endpoint.removeprefix("tcp://").rpartition(":")
    if not port.isdecimal() or not 0 < int(port) < 1 << 16:
        return None
    return int(port) if "*" in address or "::" in address else None


def _port_of_rank(base: Any, rank: int | None) -> int | None:
    port = _number(base) + (rank or 0)
    return port if _number(base) > 0 and port < 1 << 16 else None


def _number(value: Any) -> int:
    """-1 for what is none."""
    if isinstance(value, str):
        return int(value) if value.isdecimal() else -1
    return value if type(value) is int else -1


def _tcp(host: str, port: int) -> str:
    return f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}"
