"""Engines that requests are sent to, and what they count themselves. All of them start empty, and
are gone when the `with` block ends."""

from __future__ import annotations

import json
import random
import socket
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from prefold.backends.embedded import EnginePaths
from prefold.backends.engine_process import start_engine
from prefold.backends.prometheus_text import samples, total

MODEL = "smollm2"
CONTEXT_PER_SLOT = 1536
READY_S = 60.0
WARM_UP = "Say that you are there, in one short word or two, and then wait for the first question."


class FleetError(Exception):
    """Says which engine did not come up, with its last lines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    url: str
    """Where requests go."""
    counters: str
    """Its page of metrics."""
    events: str = ""
    """tcp://HOST:PORT of its KV events; "" if there are none."""
    replay: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    engines: Sequence[Engine]
    prompt_counter: str
    cached_counter: str
    """Names in their pages, of totals in tokens."""
    prompt_counter_has_cached: bool
    """Whether the first counts cached tokens too, or the computed ones only."""


@dataclass(frozen=True, slots=True)
class Counters:
    """An engine's own totals, in tokens of prompts."""

    computed: int
    cached: int


@contextmanager
def llama_cpp(paths: EnginePaths, *, engines: int, slots: int, folder: Path) -> Iterator[Fleet]:
    """Real engines, one thread each, nothing kept of a slot that another prompt took over."""
    with ExitStack() as stack:
        started = [
            stack.enter_context(
                start_engine(
                    paths,
                    slots=slots,
                    context_per_slot=CONTEXT_PER_SLOT,
                    alias=MODEL,
                    log=stack.enter_context((folder / f"engine-{number}.log").open("w+b")),
                )
            )
            for number in range(engines)
        ]
        urls = [engine.wait_ready(READY_S) for engine in started]
        fleet = Fleet(
            engines=[Engine(url=url, counters=f"{url}/metrics") for url in urls],
            prompt_counter="llamacpp:prompt_tokens_total",
            cached_counter="llamacpp:prompt_tokens_cached_total",
            prompt_counter_has_cached=False,
        )
        warm_up(fleet)
        yield fleet


def counters(fleet: Fleet) -> list[Counters]:
    """Of each engine. Raises FleetError where one does not count, or not answer."""
    try:
        return [_counters(fleet, engine) for engine in fleet.engines]
    except OSError as error:
        raise FleetError(f"an engine's counters cannot be read: {error}") from error


def _counters(fleet: Fleet, engine: Engine) -> Counters:
    with urllib.request.urlopen(engine.counters, timeout=30.0) as answer:
        found = samples(answer.read(), (fleet.prompt_counter, fleet.cached_counter))
    prompt, cached = total(found, fleet.prompt_counter), total(found, fleet.cached_counter)
    if prompt is None or cached is None:
        raise FleetError(f"{engine.counters} has no {fleet.prompt_counter}")
    return Counters(prompt - cached if fleet.prompt_counter_has_cached else prompt, cached)


def quiet_ports(count: int) -> list[int]:
    """Free ones below those that Linux gives to outgoing connections: with dozens of processes on
    their way up, one of these would be taken now and then before it is bound."""
    candidates = random.SystemRandom().sample(range(10_000, 32_000), 50 * count)
    found: list[int] = []
    with ExitStack() as stack:
        for port in candidates:
            probe = stack.enter_context(socket.socket())
            with suppress(OSError):
                probe.bind(("127.0.0.1", port))
                found.append(port)
            if len(found) == count:
                return found
    raise FleetError(f"no {count} free ports")


def ask(url: str, text: str) -> bool:
    """Whether a chat of one token is answered at `url`."""
    body = {"model": MODEL, "messages": [{"role": "user", "content": text}], "max_tokens": 1}
    raw = json.dumps(body).encode()
    request = urllib.request.Request(
        f"{url}/v1/chat/completions", raw, {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=30.0) as answer:
            answer.read()
            return bool(answer.status == 200)
    except OSError:
        return False


def warm_up(fleet: Fleet) -> None:
    """One short prompt each, past the proxy: an engine that never answered has no KV events, which
    a follower cannot tell from having missed them. Raises FleetError."""
    for engine in fleet.engines:
        if not ask(engine.url, WARM_UP):
            raise FleetError(f"{engine.url} does not answer")
