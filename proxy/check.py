"""`prefold check`: the effective settings, and a round of questions to each backend."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import time
from contextlib import suppress
from typing import Any

from rich.console import Console

from prefold.backends.backend import Backend
from prefold.backends.engine import BlockCapacity, EngineFacts, NoPrefixCache, SlotCapacity
from prefold.proxy.app import Own, Proxy, build
from prefold.proxy.discovery.following import Following, sources_of
from prefold.proxy.discovery.sources import beside
from prefold.proxy.settings import Settings
from prefold.proxy.settings_checks import SECRETS

EVENTS_S = 2.0
"""How long a stream of KV events may take to tell what there is."""


def print_settings(settings: Settings) -> None:
    """As TOML-like lines; secrets are only said to be set."""
    console = Console(highlight=False, markup=False)
    for table, values in dataclasses.asdict(settings).items():
        for where, value in _flat(table, values):
            secret = where.rpartition(".")[2] in SECRETS
            console.print(f"{where} = {_shown(value, secret)}", soft_wrap=True)


async def check_backends(settings: Settings) -> bool:
    """True if every backend answered. Prints one row each."""
    console = Console(highlight=False, markup=False)
    settings = await _with_discovered(console, settings)
    if not settings.backends:
        console.print("No backends are configured.")
        return False
    async with build(settings, own=Own(keeps_ledger=False)) as proxy:
        for backend in proxy.pool:
            await proxy.monitor.probe(backend)
            if (feed := proxy.feeds.get(backend.name)) is not None:
                with suppress(TimeoutError):
                    await asyncio.wait_for(feed.trusted.wait(), EVENTS_S)
            _print_backend(console, proxy, backend)
        for model in proxy.pool.models():
            encoder = proxy.catalog.encoder(model)
            known = encoder.describe() if encoder is not None else proxy.catalog.problem(model)
            console.print(f"\nmodel {model}")
            for line in known.splitlines():
                console.print(f"  {line}", soft_wrap=True)
        return all(backend.health.reachable for backend in proxy.pool)


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


def _print_backend(console: Console, proxy: Proxy, backend: Backend) -> None:
    facts = backend.facts
    state = backend.health.state(time.perf_counter())
    console.print(f"\nbackend {backend.name}: {state}")
    if facts is None:
        console.print(f"  {backend.problem or 'no answer, or its model is not loaded yet'}")
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
    return "cached tokens are told in usage" if facts.reports_cached else f"cached tokens: {how}"


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


def _flat(where: str, value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, dict):
        return [pair for key, inner in value.items() for pair in _flat(f"{where}.{key}", inner)]
    if isinstance(value, tuple) and value and isinstance(value[0], dict):
        return [
            pair
            for number, inner in enumerate(value)
            for pair in _flat(f"{where}[{number}]", inner)
        ]
    return [(where, value)]


def _shown(value: Any, secret: bool) -> str:
    if secret:
        return "(set)" if value else '""'
    return json.dumps(value)
