"""Where an engine says that its KV events are to be had. Asks; opens no stream."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from prefold.backends.engine import Endpoint
from prefold.backends.kv_events.subscriber import Source

PATH = "/kv_event_sources"
"""vLLM's, seen on 0.32.0: the publisher's settings for each data-parallel rank."""


class NoEvents(Exception):
    """Says why there is no stream to follow."""


async def discover(endpoint: Endpoint) -> Source:
    """Raises NoEvents, and BackendError as every question does."""
    return source(await endpoint.get_json(PATH), endpoint.url)


def source(answer: Any, url: str) -> Source:
    """What an answer means to one who reaches the engine at `url`: of an endpoint that the engine
    binds, only the port is taken from it. Raises NoEvents."""
    host = urlsplit(url).hostname
    if not isinstance(answer, dict) or not answer or host is None:
        raise NoEvents("the engine does not tell of KV events")
    if len(answer) > 1:
        # Which of them a request meets is the engine's choice, so no prefix is surely held.
        raise NoEvents("there are several data-parallel ranks behind its URL, with a cache each")
    settings = next(iter(answer.values()))
    if not isinstance(settings, dict) or settings.get("enable_kv_cache_events") is not True:
        raise NoEvents("the engine publishes no KV events")
    port = _bound_port(settings.get("endpoint"))
    if port is None:
        raise NoEvents("the engine binds no TCP port for its KV events: set where they go")
    replay = _bound_port(settings.get("replay_endpoint"))
    topic = settings.get("topic")
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


def _tcp(host: str, port: int) -> str:
    return f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}"
