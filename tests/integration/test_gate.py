"""The data port with keys: who is let in, what is counted, what browsers and logs are told."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from hashlib import sha256
from typing import Any

import aiohttp
import pytest
from yarl import URL

from prefold.proxy.routes import ROUTES
from prefold.proxy.serve import Running, running
from prefold.proxy.settings import Backend, Key, Settings
from tests.support.proxy import BASE, proxy_before, until
from tests.support.upstream import (
    Script,
    ScriptedUpstream,
    Step,
    chunk,
    delta,
    head,
    scripted,
    whole,
)

CHAT = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
ANSWER: dict[str, Any] = {"id": "c1", "choices": [], "usage": {"prompt_tokens": 1}}
PAGE = "https://app.example"
OPEN_BEARER = {"Authorization": "Bearer alpha"}
LIMITED = {"x-api-key": "limited"}
SINGLE = {"api-key": "single"}


def key(text: str, **limits: Any) -> Key:
    return Key(tenant=f"team-{text}", sha256=sha256(text.encode()).hexdigest(), **limits)


KEYS = (key("alpha"), key("limited", requests_per_minute=2.0), key("single", parallel=1))
WITH_KEYS = replace(BASE, keys=KEYS)
WITH_CORS = replace(WITH_KEYS, server=replace(BASE.server, cors_origins=(PAGE,)))


@asynccontextmanager
async def gated(
    *scripts: Script, settings: Settings = WITH_KEYS
) -> AsyncIterator[tuple[aiohttp.ClientSession, ScriptedUpstream, Running]]:
    async with (
        scripted(*(scripts or (whole(ANSWER),))) as upstream,
        proxy_before([upstream.url], settings=settings) as server,
        aiohttp.ClientSession(server.url) as http,
    ):
        yield http, upstream, server


async def status_of(http: aiohttp.ClientSession, headers: dict[str, str]) -> int:
    async with http.post("/v1/chat/completions", json=CHAT, headers=headers) as answer:
        await answer.read()
        return answer.status


async def test_every_path_but_two_needs_a_key() -> None:
    """Paths that are not there too: what exists is not told to strangers. Load balancers ask
    /health and /ready."""
    async with gated() as (http, upstream, server):
        paths = {re.sub(r"\{[^}]*\}+\)?\}?", "x", route.path) for route in ROUTES}
        for path in {
            *paths,
            "/",
            "/junk",
            "/v1/../health",
            "/health/",
            "/healthx",
            "/HEALTH",
            "/%68ealth",
        }:
            for method in ("GET", "POST", "OPTIONS"):
                url = URL(server.url + path, encoded=True)  # not normalised
                async with http.request(method, url) as answer:
                    is_open = path in ("/health", "/ready")
                    assert (answer.status != 401) == is_open, (method, path)
        assert not upstream.received


async def test_a_refusal_is_in_the_form_of_the_path() -> None:
    """OpenAI's object, or Anthropic's for its own paths; both official clients raise their
    AuthenticationError of it."""
    async with gated() as (http, _, _):
        async with http.post("/v1/chat/completions", json=CHAT) as answer:
            assert answer.headers["WWW-Authenticate"] == "Bearer"
            assert answer.headers["X-Request-Id"].startswith("req-")
            assert (await answer.json())["error"]["code"] == "invalid_api_key"
        async with http.post("/v1/messages", json=CHAT) as answer:
            assert answer.status == 401
            body = await answer.json()
            assert (body["type"], body["error"]["type"]) == ("error", "authentication_error")


async def test_two_different_credentials_are_refused() -> None:
    """Also where both are known; the same one twice is one."""
    async with gated() as (http, _, _):
        assert await status_of(http, OPEN_BEARER) == 200
        assert await status_of(http, {**OPEN_BEARER, "x-api-key": "alpha"}) == 200
        assert await status_of(http, {**OPEN_BEARER, "x-api-key": "single"}) == 401
        assert await status_of(http, {**OPEN_BEARER, "api-key": "unknown"}) == 401


async def test_the_clients_key_stays_here() -> None:
    """And so does each other place of it: the engine sees none."""
    async with gated() as (http, upstream, _):
        await status_of(http, {**OPEN_BEARER, "x-api-key": "alpha", "api-key": "alpha"})
        assert b"alpha" not in upstream.received[0].head


@pytest.mark.parametrize("host", ["localhost:4000/#@x", "evil.example/health", "a b", ""])
async def test_a_strange_host_opens_nothing(host: str) -> None:
    """What is checked and served is the request line's path; the engine is told its own host."""
    async with gated() as (_, upstream, server):
        reader, writer = await asyncio.open_connection(
            *server.url.removeprefix("http://").split(":")
        )
        for credentials in ("", "Authorization: Bearer alpha\r\n"):
            writer.write(
                f"POST /v1/embeddings HTTP/1.1\r\nHost: {host}\r\n{credentials}"
                "Content-Type: application/json\r\nContent-Length: 13\r\n\r\n".encode()
                + b'{"model":"m"}'
            )
            first = (await reader.readuntil(b"\r\n\r\n")).split(b" ")[1]
            if first == b"400":
                break
            assert first == (b"200" if credentials else b"401")
            if not credentials:
                await reader.readuntil(b"}}")
        writer.close()
        for request in upstream.received:
            assert request.headers["host"] == upstream.url.removeprefix("http://")


async def test_a_rate_limit_is_shown_and_then_kept() -> None:
    """429 with Retry-After; a key without a limit is told nothing of limits, nor is it limited."""
    async with gated() as (http, upstream, _):
        for remaining in ("1", "0"):
            async with http.post("/v1/chat/completions", json=CHAT, headers=LIMITED) as answer:
                assert answer.status == 200
                assert answer.headers["x-ratelimit-limit-requests"] == "2"
                assert answer.headers["x-ratelimit-remaining-requests"] == remaining
        async with http.post("/v1/chat/completions", json=CHAT, headers=LIMITED) as answer:
            assert answer.status == 429
            assert 1 <= int(answer.headers["Retry-After"]) <= 60
            assert answer.headers["x-ratelimit-remaining-requests"] == "0"
            error = (await answer.json())["error"]
            assert (error["type"], error["code"]) == ("rate_limit_error", "rate_limit_exceeded")
        assert len(upstream.received) == 2
        async with http.post("/v1/chat/completions", json=CHAT, headers=OPEN_BEARER) as answer:
            assert answer.status == 200
            assert "x-ratelimit-limit-requests" not in answer.headers


async def test_a_parallel_request_counts_to_the_end_of_its_stream() -> None:
    """And not longer: a client that leaves in the middle gives its place back."""
    stream: Script = [head(), chunk(delta("a")), Step.WAIT]
    async with gated(stream, stream, whole(ANSWER)) as (http, _, server):
        limiter, digest = server.proxy.gate.limiter, sha256(b"single").digest()
        async with http.post(
            "/v1/chat/completions", json={**CHAT, "stream": True}, headers=SINGLE
        ) as answer:
            assert await answer.content.readany()
            assert limiter.parallel(digest) == 1
            assert await status_of(http, SINGLE) == 429
            answer.close()
        await until(lambda: limiter.parallel(digest) == 0)


@pytest.mark.parametrize(
    "script", [[Step.CLOSE], [Step.RESET], whole({"error": {}}, 500), [head(), Step.RESET]]
)
async def test_a_failed_request_gives_its_place_back(script: Script) -> None:
    """However its backend failed."""
    async with gated(script) as (http, _, server):
        for _ in range(3):
            with suppress(aiohttp.ClientPayloadError):  # it was cut, and says so
                assert await status_of(http, SINGLE) not in (401, 429)
        assert server.proxy.gate.limiter.parallel(sha256(b"single").digest()) == 0


async def test_request_ids_are_made_taken_over_or_the_engines() -> None:
    """A client's own is kept if it is printable and short; an engine's wins over ours."""
    async with gated(whole(ANSWER), whole(ANSWER, 200, "X-Request-Id: engine-7")) as (http, _, _):
        seen = []
        for sent in ("mine-1", "x" * 129, "tab\tbed", ""):
            async with http.get("/health", headers={"X-Request-Id": sent}) as answer:
                seen.append(answer.headers["X-Request-Id"])
        assert seen[0] == "mine-1"
        assert all(re.fullmatch(r"req-[0-9a-f]{24}", made) for made in seen[1:])
        assert len(set(seen)) == 4
        for expected in ("mine-2", "engine-7"):
            headers = {**OPEN_BEARER, "X-Request-Id": "mine-2"}
            async with http.post("/v1/chat/completions", json=CHAT, headers=headers) as answer:
                assert answer.headers.getall("X-Request-Id") == [expected]


async def test_a_configured_page_may_ask_and_no_other() -> None:
    """A preflight needs no key, the request does; others get no word of CORS, whatever the engine
    says."""
    allowing = whole(ANSWER, 200, "Access-Control-Allow-Origin: *", "Vary: Accept")
    async with gated(allowing, settings=WITH_CORS) as (http, upstream, _):
        preflight = {
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "authorization,x-stainless-os",
        }
        path = "/v1/chat/completions"
        async with http.options(path, headers={"Origin": PAGE, **preflight}) as answer:
            assert answer.status == 204
            assert answer.headers["Access-Control-Allow-Origin"] == PAGE
            assert answer.headers["Access-Control-Allow-Headers"] == "authorization,x-stainless-os"
        for origin in (
            "https://evil.example",
            "null",
            PAGE + ".evil.example",
            "http://app.example",
        ):
            async with http.options(path, headers={"Origin": origin, **preflight}) as answer:
                assert answer.status == 401
                assert "Access-Control-Allow-Origin" not in answer.headers
        async with http.post(path, json=CHAT, headers={"Origin": PAGE}) as answer:
            assert answer.status == 401
            assert answer.headers["Access-Control-Allow-Origin"] == PAGE  # so the page can read it
        assert not upstream.received
        for origin, allowed in ((PAGE, [PAGE]), ("https://evil.example", [])):
            headers = {"Origin": origin, **OPEN_BEARER}
            async with http.post(path, json=CHAT, headers=headers) as answer:
                assert answer.headers.getall("Access-Control-Allow-Origin", []) == allowed
                assert ("Origin" in answer.headers.getall("Vary")) == bool(allowed)
                exposed = answer.headers.get("Access-Control-Expose-Headers", "")
                assert ("X-Request-Id" in exposed) == bool(allowed)


async def test_a_stream_carries_the_same_headers() -> None:
    """Its head is written long before its handler ends."""
    stream: Script = [head(), chunk(delta("a")), Step.RESET]
    async with (
        gated(stream, settings=WITH_CORS) as (http, _, _),
        http.post(
            "/v1/chat/completions",
            json={**CHAT, "stream": True},
            headers={**LIMITED, "Origin": PAGE, "X-Request-Id": "mine"},
        ) as answer,
    ):
        assert answer.headers["X-Request-Id"] == "mine"
        assert answer.headers["x-ratelimit-remaining-requests"] == "1"
        assert answer.headers["Access-Control-Allow-Origin"] == PAGE


async def test_tenants_are_not_told_of_each_other() -> None:
    """With keys there is no decision header: it would tell what somebody else has asked."""
    async with (
        gated() as (http, _, _),
        http.post("/v1/chat/completions", json=CHAT, headers=OPEN_BEARER) as answer,
    ):
        assert "X-Prefold-Decision" not in answer.headers


async def test_a_tenants_prefixes_are_its_own() -> None:
    """The same prompt of two tenants carries two salts into an engine that knows them, neither of
    them telling who it is; two keys of one tenant, and the same one twice, carry one."""
    other = replace(key("beta"), tenant="team-alpha")
    async with scripted(whole(ANSWER)) as upstream:
        engine = Backend(name="b", url=upstream.url, engine="vllm")
        async with (
            running(replace(WITH_KEYS, keys=(*KEYS, other), backends=(engine,))) as server,
            aiohttp.ClientSession(server.url) as http,
        ):
            await server.proxy.monitor.probe(next(iter(server.proxy.pool)))
            for name in ("alpha", "alpha", "beta", "single"):
                assert await status_of(http, {"api-key": name}) == 200
        salts = [json.loads(request.body)["cache_salt"] for request in upstream.received]
        assert salts[0] == salts[1] == salts[2] != salts[3]
        assert "team" not in "".join(salts)


async def test_without_a_key_the_admin_port_is_asked_by_its_address() -> None:
    """A page whose name was made to resolve to 127.0.0.1 sends no Origin, but its name as Host.
    With a key that does not matter, since the page has none."""
    with_key = replace(BASE, server=replace(BASE.server, admin_key="k"))
    names = ("evil.example", "evil.example:80", "127.0.0.1.evil.example", "", "[::1].evil.example")
    for settings, expected in ((BASE, 403), (with_key, 200)):
        async with gated(settings=settings) as (http, _, server):
            for host in (*names, "localhost:1", "127.0.0.1", "[::1]:8001", "[::1]"):
                headers = {"Host": host, "Authorization": "Bearer k"}
                async with http.get(f"{server.admin_url}/metrics", headers=headers) as answer:
                    assert answer.status == (expected if host in names else 200), host
