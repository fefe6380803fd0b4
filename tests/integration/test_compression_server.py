"""`prefold compress-server`, and a proxy whose compressor it is."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import aiohttp
import pytest

from prefold.proxy.compress_server import serving
from prefold.proxy.compression.switch import HEADER
from prefold.proxy.settings import Compression
from tests.support.prose import prose
from tests.support.proxy import BASE, proxy_before, until
from tests.support.requirements import skip_or_fail
from tests.support.upstream import scripted, whole

LEXICAL = Compression(compressor="lexical", api_key="k3y")
ANSWER = whole({"id": "a", "choices": [{"message": {"role": "assistant", "content": "Yes."}}]})


@pytest.fixture(autouse=True)
def _wordfreq() -> None:
    try:
        import wordfreq  # noqa: F401
    except ImportError:
        skip_or_fail("needs wordfreq: pip install 'prefold[compression-lexical]'")


async def test_a_proxy_uses_a_compressor_elsewhere() -> None:
    """As it would use one of its own; while it is not there, prompts go out as they came."""
    parts = [{"type": "text", "text": text} for text in (prose(1, 30), "Why?")]
    body = {"model": "m", "messages": [{"role": "user", "content": parts}]}
    async with scripted(ANSWER) as upstream, serving(LEXICAL, "127.0.0.1", 0) as url:
        rules = Compression(mode="on", min_tokens=100, deadline_s=10.0, url=url, api_key="k3y")
        async with (
            proxy_before([upstream.url], settings=replace(BASE, compression=rules)) as server,
            aiohttp.ClientSession(server.url) as http,
        ):
            compression = server.proxy.compression
            assert compression is not None
            await until(lambda: compression.pool.up > 0, tries=3000)
            async with http.post("/v1/chat/completions", json=body) as answer:
                assert "form=compressed; compressor=lexical" in answer.headers[HEADER]
            sent = json.loads(upstream.received[0].body)["messages"][0]["content"]
            assert len(sent[0]["text"]) < 0.7 * len(prose(1, 30))
            assert sent[1] == parts[1]


async def test_it_answers_who_has_its_key_and_asks_aright() -> None:
    """Spans for each text, errors as objects."""
    null = Compression(compressor="null", api_key="k3y")
    key = {"Authorization": "Bearer k3y"}
    async with serving(null, "127.0.0.1", 0) as url, aiohttp.ClientSession(url) as http:

        async def ask(asked: object, headers: dict[str, str] = key) -> tuple[int, object]:
            async with http.post("/compress", json=asked, headers=headers) as answer:
                return answer.status, await answer.json()

        async def ready() -> dict[str, object] | None:
            async with http.get("/compressor", headers=key) as answer:
                told: dict[str, object] = await answer.json()
                return told if answer.status == 200 else None

        for _ in range(3000):
            if (described := await ready()) is not None:
                break
            await asyncio.sleep(0.01)  # its process is starting
        assert described is not None
        assert described["name"] == "null"
        status, answered = await ask({"jobs": [["a b", 0.5], ["", 1.0]]})
        same = {"digest": described["digest"], "failed": {}}
        assert (status, answered) == (200, {**same, "kept": [[0, 3], []]})
        assert (await ask({"jobs": []}))[1] == {**same, "kept": []}
        assert (await ask({"jobs": []}, headers={}))[0] == 401
        rates: list[object] = [{"jobs": [["a", rate]]} for rate in (0, 2.0, "x")]
        for wrong in (*rates, {"jobs": "a"}, []):
            status, answered = await ask(wrong)
            assert status == 400
            assert isinstance(answered, dict)
            assert "message" in answered["error"]


async def test_a_refused_key_is_told_once_and_costs_nothing() -> None:
    """The proxy goes on without."""
    async with serving(LEXICAL, "127.0.0.1", 0) as url:
        rules = Compression(mode="on", url=url, api_key="wrong")
        async with proxy_before([], settings=replace(BASE, compression=rules)) as server:
            compression = server.proxy.compression
            assert compression is not None
            await until(lambda: compression.pool.failures > 0)
            assert compression.pool.up == 0
