"""`prefold check`: the effective settings, and a round of questions to each backend."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from rich.console import Console

from prefold.backends.backend import Backend
from prefold.backends.engine import BlockCapacity, EngineFacts, NoPrefixCache, SlotCapacity
from prefold.backends.errors import BackendError, ConnectRefused
from prefold.proxy.app import Own, Proxy, build
from prefold.proxy.discovery.following import Following, sources_of
from prefold.proxy.discovery.sources import beside
from prefold.proxy.progress import working
from prefold.proxy.settings import Settings
from prefold.proxy.settings_checks import SECRETS

EVENTS_S = 2.0
"""How long a stream of KV events may take to tell what there is."""


def print_settings(settings: Settings, *, every: bool = False) -> None:
    """As TOML-like lines, those that are not at their defaults, or `every` one; secrets are only
    said to be set."""
    console = Console(highlight=False, markup=False)
    left_out = 0
    for where, value, is_default in _flat("", settings):
        if is_default and not every:
            left_out += 1
            continue
        secret = where.rpartition(".")[2] in SECRETS
        console.print(f"{where} = {_shown(value, secret)}", soft_wrap=True)
    if left_out:
        console.print(f"({left_out} settings at their defaults: prefold check --settings)")


async def check_backends(settings: Settings) -> bool:
    """True if every backend answered. Prints one row each."""
    console = Console(highlight=False, markup=False)
    settings = await _with_discovered(console, settings)
    if not settings.backends:
        console.print("No backends are configured: give --backend URL or --config FILE.")
        return False
    async with build(settings, own=Own(keeps_ledger=False)) as proxy:
        for backend in proxy.pool:
            with working(f"asking {backend.name}"):
                problem = await _look(proxy, backend)
            _print_backend(console, proxy, backend, problem)
        for model in proxy.pool.models():
            encoder = proxy.catalog.encoder(model)
            known = encoder.describe() if encoder is not None else proxy.catalog.problem(model)
            console.print(f"\nmodel {model}")
            for line in known.splitlines():
                console.print(f"  {line}", soft_wrap=True)
        return all(backend.health.reachable for backend in proxy.pool)


async def _look(proxy: Proxy, backend: Backend) -> str:
    """Its facts and events, as far as they are told in time; why there are none, else ""."""
    await proxy.monitor.probe(backend)
    if (feed := proxy.feeds.get(backend.name)) is not None:
        with suppress(TimeoutError):
            await asyncio.wait_for(feed.trusted.wait(), EVENTS_S)
    return "" if backend.facts is not None else await _why(proxy, backend)


async def _with_discovered(console: Console, settings: Settings) -> Settings:
    """One look at what discovery finds; prints its backends' names, and what went wrong."""
    if not settings.discovery.wanted:
        return settings
    follows = Following(sources_of(settings.discovery), lambda found: None)
    await follows.look()
    found = beside(settings.backends, follows.backends)[len(settings.backends) :]
    names = ", ".join(backend.name for backend in found) or "none beside those that are named"
    console.print(f"\ndiscovered: {names}", soft_wrap=True)
    for problem in follows.problems:
        console.print(f"  {problem}", soft_wrap=True)
    return dataclasses.replace(settings, backends=(*settings.backends, *found))


async def _why(proxy: Proxy, backend: Backend) -> str:
    """What keeps it from being ready, and what to do."""
    if backend.problem:
        return backend.problem
    try:
        status, _ = await proxy.monitor.endpoint(backend).get("/v1/models")
    except ConnectRefused:
        return f"nothing listens at {backend.url}: is it running, is it this port?"
    except BackendError as error:
        return str(error)
    match status:
        case 200 | 503:
            return "it answers, and its model is not loaded yet: try again in a while"
        case 401 | 403:
            return f"it refuses its key (status {status}): set api_key in its [[backends]] table"
        case 404 | 405:
            return f"what answers at {backend.url} has no /v1/models: it is no OpenAI-like server"
    return f"{backend.url}/v1/models answers with status {status}: look at the engine's log"


def _print_backend(console: Console, proxy: Proxy, backend: Backend, problem: str) -> None:
    facts = backend.facts
    state = backend.health.state(time.perf_counter())
    console.print(f"\nbackend {backend.name}: {state}")
    if facts is None:
        console.print(f"  {problem}", soft_wrap=True)
        return
    lines = {
        "engine": _engine(backend, facts),
        "models": ", ".join(model.id for model in facts.models),
        "KV cache": _capacity(backend),
        "cached": _reporting(backend, facts),
        "KV events": _events(proxy, backend),
        "mode": f"{backend.shown_mode}: {backend.shown_reason}",
        "policy": proxy.settings.routing.policy,
    }
    for name, text in lines.items():
        console.print(f"  {name:<9} {text}", soft_wrap=True)
    for sentence in facts.advice:
        console.print(f"  advice    {sentence}", soft_wrap=True)


def _engine(backend: Backend, facts: EngineFacts) -> str:
    name = backend.engine.name if backend.engine is not None else "unknown"
    rank = "" if backend.rank is None else f", data-parallel rank {backend.rank}"
    return f"{name} {facts.version or ''}".rstrip() + rank


def _reporting(backend: Backend, facts: EngineFacts) -> str:
    """How it tells the cached tokens of a request."""
    if facts.reports_cached is False:
        return "cached tokens are not told"
    how = backend.engine.reporting if backend.engine is not None else "not known"
    return "cached tokens are told in usage" if facts.reports_cached else how


def _capacity(backend: Backend) -> str:
    capacity = backend.facts.capacity if backend.facts is not None else None
    match capacity:
        case SlotCapacity(slots=slots, context_tokens=tokens):
            return f"{slots} slots x {tokens} tokens"
        case BlockCapacity(blocks=blocks, block_tokens=tokens):
            return f"{blocks} blocks x {tokens} tokens"
        case NoPrefixCache():
            return "none: prefix caching is off in this engine"
        case None:
            return "unknown"


def _events(proxy: Proxy, backend: Backend) -> str:
    feed = proxy.feeds.get(backend.name)
    if feed is None or not feed.alive:
        wanted = backend.event_source is not None
        return "not followed: see the mode" if wanted else "not followed: kv_events is not set"
    held = f"{feed.cache.size_tokens} tokens held"
    return f"followed at {feed.source.endpoint}: {feed.cache.problem or held}"


def _flat(where: str, value: Any) -> Iterator[tuple[str, Any, bool]]:
    """Name, value, and whether that is the default, of every setting in a table."""
    for field in dataclasses.fields(value):
        inner = getattr(value, field.name)
        name = f"{where}.{field.name}" if where else field.name
        if dataclasses.is_dataclass(inner):
            yield from _flat(name, inner)
        elif isinstance(inner, tuple) and inner and dataclasses.is_dataclass(inner[0]):
            for number, one in enumerate(inner):
                yield from _flat(f"{name}[{number}]", one)
        elif isinstance(inner, dict) and any(map(dataclasses.is_dataclass, inner.values())):
            for key, one in inner.items():
                yield from _flat(f"{name}.{key}", one)
        else:
            yield name, inner, inner == _default(field)


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


def _shown(value: Any, secret: bool) -> str:
    if secret:
        return "(set)" if value else '""'
    return json.dumps(value)
