"""An engine that forgets, or does not say what it had cached, behind the whole proxy."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp
import pytest

from prefold.backends.prediction import SILENT_ANSWERS
from prefold.measurement.report import report
from prefold.proxy.serve import Running, running
from prefold.proxy.settings import Backend as BackendSettings
from tests.support.proxy import BASE
from tests.support.telling_engine import MODEL, TellingEngine, telling_engine


class Scene:
    def __init__(self, engine: TellingEngine, server: Running, http: aiohttp.ClientSession) -> None:
        self.engine = engine
        self.server = server
        self._http = http

    async def ask(self, text: str) -> tuple[str, int]:
        """Mode and expected cached tokens of a chat."""
        body = {"model": MODEL, "messages": [{"role": "user", "content": text}]}
        async with self._http.post("/v1/chat/completions", json=body) as answer:
            told = answer.headers["X-Prefold-Decision"]
        decision = dict(pair.split("=", 1) for pair in told.split("; "))
        return decision["mode"], int(decision["expected_cached_tokens"])

    def exposed(self) -> str:
        return self.server.proxy.metrics.exposition().decode()


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    """Its events are not followed."""
    async with AsyncExitStack() as stack:
        engine = await stack.enter_async_context(telling_engine(tmp_path))
        backend = BackendSettings(name="b0", url=engine.url, engine="vllm")
        settings = dataclasses.replace(BASE, backends=(backend,))
        server = await stack.enter_async_context(running(settings))
        [one] = server.proxy.pool
        await server.proxy.monitor.probe(one)
        http = await stack.enter_async_context(aiohttp.ClientSession(server.url))
        yield Scene(engine, server, http)


async def test_an_engine_that_does_not_report_is_unverified_until_it_does(scene: Scene) -> None:
    """The header, the metric and the reason say so; what is expected is expected all the same."""
    scene.engine.reports = False
    modes = [(await scene.ask("hello " * 99))[0] for _ in range(SILENT_ANSWERS)]
    assert modes == ["feedback"] * SILENT_ANSWERS
    mode, expected = await scene.ask("hello " * 99)
    assert (mode, expected) == ("unverified", scene.engine.cached[-1])
    assert expected > 100
    assert 'prefold_backend_mode{backend="b0",mode="unverified"} 1.0' in scene.exposed()
    [backend] = scene.server.proxy.pool
    assert backend.shown_reason.endswith("it never reports cached tokens")

    scene.engine.reports = True
    await scene.ask("hello " * 99)
    assert (await scene.ask("hello " * 99))[0] == "feedback"


async def test_a_flush_is_seen_and_what_came_after_it_is_believed(scene: Scene) -> None:
    """Of ten conversations none is there any more. The first shows it by the head that all share
    and that was used last: nothing more is expected of the others than that."""
    texts = [f"{chr(97 + number) * 3} " * 40 for number in range(10)]
    for text in texts:
        await scene.ask(text)
    scene.engine.held.clear()  # POST /reset_prefix_cache, say
    expected = [(await scene.ask(text))[1] for text in texts]
    assert expected[0] > 100
    assert scene.engine.cached[10] == 0
    assert expected[1:] == scene.engine.cached[11:]
    again = [(await scene.ask(text))[1] for text in texts]
    assert again == scene.engine.cached[-10:]
    total = report(scene.server.proxy.books)["total"]
    assert total["index_corrections"]["caches_emptied"] == 1
    assert 'prefold_caches_emptied_total{backend="b0"} 1.0' in scene.exposed()
