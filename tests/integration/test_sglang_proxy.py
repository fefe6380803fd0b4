"""SGLang through the whole proxy, on a server that answers as its source says: found out by itself,
its tokens equal ours, its events followed, and what it does not report stays unknown."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import aiohttp
import pytest

from prefold.backends.backend import Mode
from prefold.proxy.check import check_backends
from prefold.proxy.serve import running
from prefold.proxy.settings import Backend, Settings
from tests.support.proxy import BASE, until
from tests.support.sglang_engine import SgLangEngine, sglang_engine
from tests.support.telling_engine import BLOCK, MODEL

CHAT = "/v1/chat/completions"


def settings(engine: SgLangEngine, kv_events: str) -> Settings:
    backend = Backend(name="b", url=engine.url, kv_events=kv_events)
    return dataclasses.replace(BASE, backends=(backend,))


async def ask(http: aiohttp.ClientSession, salt: str | None, *texts: str) -> dict[str, str]:
    """What was decided."""
    messages = [{"role": "user", "content": text} for text in texts]
    body = {"model": MODEL, "messages": messages} | ({"cache_salt": salt} if salt else {})
    async with http.post(CHAT, json=body) as answer:
        assert answer.status == 200
        told = answer.headers["X-Prefold-Decision"]
    return dict(pair.split("=", 1) for pair in told.split("; "))


@pytest.mark.parametrize("kv_events", ["auto", ""])
async def test_what_is_expected_is_what_its_cache_holds(tmp_path: Path, kv_events: str) -> None:
    """Turn by turn, and apart by salt: by its events, or by what was sent."""
    async with (
        sglang_engine(tmp_path, reports=True) as engine,
        running(settings(engine, kv_events)) as server,
        aiohttp.ClientSession(server.url) as http,
    ):
        [backend] = server.proxy.pool
        await server.proxy.monitor.probe(backend)
        mode = Mode.EVENTS if kv_events else Mode.FEEDBACK
        await until(lambda: backend.mode is mode)
        assert backend.engine is not None
        assert backend.engine.name == "sglang"
        assert backend.waiting == 2
        expected, texts = [], ["hello and hello " * 20]
        for salt in (None, None, "a", "a"):
            told = await ask(http, salt, *texts)
            assert told["mode"] == mode
            expected.append(int(told["expected_cached_tokens"]))
            texts.append("and on")
            if kv_events:
                held = len(engine.held) * BLOCK
                await until(lambda: server.proxy.index.size_tokens("b") == held)  # noqa: B023
    assert expected == engine.cached
    assert [tokens > 100 for tokens in expected] == [False, True, False, True]


async def test_the_check_says_what_to_switch_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And nothing where it is on already."""
    async with sglang_engine(tmp_path, reports=False) as engine:
        assert await check_backends(settings(engine, "auto"))
        off = capsys.readouterr().out
        engine.reports = True
        assert await check_backends(settings(engine, "auto"))
        on = capsys.readouterr().out
    assert "engine    sglang 0.5.23" in off
    assert "cached tokens are not told" in off
    assert "--enable-cache-report" in off
    assert "512 blocks x 8 tokens" in off
    assert "KV events followed" in off
    assert "cached tokens are told in usage" in on
    assert "--enable-cache-report" not in on
