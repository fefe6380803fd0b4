"""The data port's surface: bad input, paths, aliases, passthrough, metrics. Never a 500."""

import asyncio
import gzip
import json
import re
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import aiohttp
import pytest

from prefold.measurement.report import report
from prefold.proxy.routes import ROUTES, Passage, Route
from prefold.proxy.serve import Running
from prefold.proxy.settings import Model, Routing, Server, Timeouts
from tests.support.proxy import BASE, proxy_before, until
from tests.support.upstream import END, ScriptedUpstream, chunk, delta, head, scripted, whole

ANSWER = {"id": "c1", "choices": [], "usage": {"prompt_tokens": 1}}
CHAT = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
SMALL = replace(BASE, server=replace(BASE.server, max_body_mib=0.01))


@pytest.fixture
async def upstream() -> AsyncIterator[ScriptedUpstream]:
    async with scripted(whole(ANSWER)) as running:
        yield running


@pytest.fixture
async def server(upstream: ScriptedUpstream) -> AsyncIterator[Running]:
    async with proxy_before(
        [upstream.url], settings=SMALL, models={"m": Model(aliases=("gpt-4o", "best"))}
    ) as running:
        yield running


@pytest.fixture
async def http(server: Running) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(server.url) as session:
        yield session


async def error_of(answer: aiohttp.ClientResponse) -> dict[str, Any]:
    """OpenAI's error object, all four members of it."""
    assert answer.content_type == "application/json"
    error = (await answer.json())["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert "Traceback" not in error["message"]
    return dict(error)


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b'"text"',
        b"\xff\xfe\x00",
        b'{"model":"m"}',
        b'{"model":1,"messages":[{}],"prompt":"x"}',
        b'{"model":"m","messages":{},"prompt":{}}',
        b'{"model":"m","stream":[],"messages":[{}],"prompt":"x"}',
        b'{"model":"m","prompt":[{}],"messages":[[]]}',
        b"[" * 5000,
        b'{"messages":' + b"[" * 2000 + b"]" * 2000 + b"}",
    ],
)
async def test_bad_bodies_are_400(
    http: aiohttp.ClientSession, upstream: ScriptedUpstream, path: str, body: bytes
) -> None:
    """And never reach a backend."""
    async with http.post(path, data=body) as answer:
        assert answer.status == 400
        assert (await error_of(answer))["type"] == "invalid_request_error"
    assert upstream.received == []


@pytest.mark.parametrize(
    "prompt", [[], [-1], [2**33], [1.5], [[]], ["a", 1], [1, "a"], [[1], "a"], ""]
)
async def test_odd_completion_prompts_are_never_a_500(
    http: aiohttp.ClientSession, prompt: Any
) -> None:
    """Refused or passed on to the engine, whose business it is."""
    async with http.post("/v1/completions", json={"model": "m", "prompt": prompt}) as answer:
        assert answer.status in (200, 400)


@pytest.mark.parametrize(
    "message",
    [
        {},
        {"role": 3},
        {"role": "user"},
        {"role": "user", "content": 5},
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]},
        {"role": "user", "content": [{"type": "text"}]},
        {"role": "user", "content": [None]},
        {"role": "assistant", "tool_calls": "x"},
        {"role": "x" * 100, "content": "\ud800"},
    ],
)
async def test_odd_messages_are_passed_to_the_engine(
    http: aiohttp.ClientSession, message: dict[str, Any]
) -> None:
    """What we cannot encode is routed by its bytes; whether it is valid, the engine says."""
    async with http.post("/v1/chat/completions", json={**CHAT, "messages": [message]}) as answer:
        assert answer.status == 200


async def test_no_messages_at_all_are_the_engines_business_too(
    http: aiohttp.ClientSession,
) -> None:
    """An empty prompt matches nothing and is routed by load."""
    async with http.post("/v1/chat/completions", json={**CHAT, "messages": []}) as answer:
        assert answer.status == 200


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/embeddings"])
async def test_a_model_that_is_given_twice_is_refused(
    http: aiohttp.ClientSession, upstream: ScriptedUpstream, path: str
) -> None:
    """Proxy and engine could read different ones."""
    raw = b'{"model":"m","messages":[{"role":"user","content":"x"}],"model":"gpt-4o"}'
    async with http.post(path, data=raw) as answer:
        assert answer.status == 400
        assert (await error_of(answer))["param"] == "model"
    assert upstream.received == []


async def test_a_body_over_the_limit_is_413(http: aiohttp.ClientSession) -> None:
    """Also one that only grows over it when it is decompressed."""
    body = json.dumps({**CHAT, "user": "x" * 20_000}).encode()
    async with http.post("/v1/chat/completions", data=body) as answer:
        assert answer.status == 413
        assert (await error_of(answer))["code"] == "request_too_large"
    packed = gzip.compress(body)
    headers = {"Content-Encoding": "gzip"}
    async with http.post("/v1/chat/completions", data=packed, headers=headers) as answer:
        assert answer.status == 413


async def test_a_compressed_body_is_passed_on_decompressed(
    http: aiohttp.ClientSession, upstream: ScriptedUpstream
) -> None:
    """And its Content-Encoding header does not stay behind."""
    body = json.dumps(CHAT).encode()
    headers = {"Content-Encoding": "gzip"}
    async with http.post(
        "/v1/chat/completions", data=gzip.compress(body), headers=headers
    ) as answer:
        assert answer.status == 200
    assert upstream.received[0].body == body
    assert "content-encoding" not in upstream.received[0].headers


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nothing", 404),
        ("POST", "/v1/nothing", 404),
        ("GET", "/v1/chat/completions/x", 501),
        ("PUT", "/v1/chat/completions", 405),
        ("GET", "/v1/models/none", 404),
        ("POST", "/v1/models", 405),
        ("GET", "/v1/../admin", 404),
        ("POST", "/invocations", 404),
        ("GET", "/metrics", 404),
        ("GET", "/report", 404),
    ],
)
async def test_paths_that_are_not_served(
    http: aiohttp.ClientSession, method: str, path: str, status: int
) -> None:
    """OpenAI's error object, and nothing is forwarded that is not in the table."""
    async with http.request(method, path) as answer:
        assert answer.status == status
        await error_of(answer)


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
async def test_every_path_does_what_the_table_says(
    http: aiohttp.ClientSession, upstream: ScriptedUpstream, route: Route
) -> None:
    """Passed to a backend, answered here, or refused with 501."""
    path = example_of(route)
    method = "POST" if route.method == "*" else route.method
    async with http.request(method, path, json={**CHAT, "prompt": "x"}) as answer:
        if route.passage in (Passage.REFUSED, Passage.STATEFUL):  # no backend is set for state
            assert answer.status == 501
            assert (await error_of(answer))["code"] == "not_supported"
        else:
            assert answer.status == 200
    passed = route.passage in (Passage.PREFIX, Passage.LOAD, Passage.PINNED)
    assert [one.path for one in upstream.received if one.path == path] == [path] * passed


def example_of(route: Route) -> str:
    """A path that the route serves."""
    return (
        re.sub(r"\{rest:[^}]*\}", "/x", route.path)
        .replace("{model:.+}", "m")
        .replace("{response}", "resp_1")
    )


async def test_an_alias_is_replaced_by_the_models_name(
    http: aiohttp.ClientSession, upstream: ScriptedUpstream
) -> None:
    """In the bytes of that member only; aliases are listed as models too."""
    raw = (
        b'{"seed":123456789012345678901234567890, "model" : "gpt-4o","messages":[{"role":"user"}]}'
    )
    for path in ("/v1/chat/completions", "/v1/embeddings"):
        async with http.post(path, data=raw) as answer:
            assert answer.status == 200
        assert upstream.received[-1].body == raw.replace(b'"gpt-4o"', b'"m"')
    async with http.get("/v1/models") as answer:
        listed = await answer.json()
    assert [model["id"] for model in listed["data"]] == ["m", "gpt-4o", "best"]
    assert {model["owned_by"] for model in listed["data"]} == {"test"}, "the engine's own cards"


@pytest.mark.parametrize(
    "body",
    [
        b'{"model":"gpt-4o","messages":[{}],"x":"\xff"}',
        b'{"model":"m","stream":true,"messages":[{}],"x":"\xff"}',
    ],
)
async def test_a_fault_in_a_member_that_is_not_read_is_a_400_where_it_matters(
    http: aiohttp.ClientSession, body: bytes
) -> None:
    """Where the body is to be changed, it must be understood."""
    async with http.post("/v1/chat/completions", data=body) as answer:
        assert answer.status == 400


async def test_integers_of_any_length_survive_a_change_of_the_body(
    http: aiohttp.ClientSession, upstream: ScriptedUpstream
) -> None:
    """Python converts no more than 4,300 digits; there is nothing to convert."""
    raw = b'{"model":"gpt-4o","messages":[{}],"x":' + b"7" * 5000 + b"}"
    async with http.post("/v1/chat/completions", data=raw) as answer:
        assert answer.status == 200
    assert upstream.received[0].body == raw.replace(b"gpt-4o", b"m")


async def test_what_cannot_be_read_does_not_get_into_the_log(
    server: Running, caplog: pytest.LogCaptureFixture
) -> None:
    """aiohttp would quote it: a header that is too long, a body that is no chunk."""
    caplog.set_level("DEBUG")
    port = int(server.url.rpartition(":")[2])
    start = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n"
    for rest in (
        b"Authorization: sentinel" + b"x" * 100_000 + b"\r\n\r\n",
        b"Transfer-Encoding: chunked\r\n\r\nsentinel\r\n",
    ):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(start + rest)
        assert b" 4" in await reader.readline()
        told = await reader.read()
        assert "error" in json.loads(told.partition(b"\r\n\r\n")[2])
        writer.close()
    assert "sentinel" not in caplog.text


async def test_a_client_that_does_not_read_is_let_go() -> None:
    """It must not hold a slot of an engine for ever."""
    settings = replace(BASE, timeouts=Timeouts(write_s=0.2))
    big = [head(), *[chunk(delta("x" * 2**20)) for _ in range(64)], END]
    async with (
        scripted(big) as upstream,
        proxy_before([upstream.url], settings=settings) as server,
    ):
        port = int(server.url.rpartition(":")[2])
        _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
        body = json.dumps({**CHAT, "stream": True}).encode()
        writer.write(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s"
            % (len(body), body)
        )
        await until(lambda: server.proxy.pool["b0"].in_flight == 1)
        await until(lambda: server.proxy.pool["b0"].in_flight == 0)
        assert report(server.proxy.books)["total"]["outcomes"] == {"client_gone": 1}
        writer.close()


async def test_an_unknown_model_is_404(
    http: aiohttp.ClientSession, upstream: ScriptedUpstream
) -> None:
    """In OpenAI's form; routing is only among backends that list the model."""
    for path in ("/v1/chat/completions", "/v1/embeddings"):
        async with http.post(path, json={**CHAT, "model": "sentinel"}) as answer:
            assert answer.status == 404
            error = await error_of(answer)
        assert (error["code"], error["param"]) == ("model_not_found", "model")
        assert "sentinel" not in error["message"]
    assert upstream.received == []


async def test_headers_that_stay_behind_and_headers_that_pass(
    http: aiohttp.ClientSession, upstream: ScriptedUpstream
) -> None:
    """Hop-by-hop, Connection-named, cookies, the key of our client, our own and the Host stay."""
    sent = {
        "Authorization": "Bearer key",
        "X-Request-Id": "r1",
        "traceparent": "00-1-2-03",
        "Cookie": "a=b",
        "Connection": "x-private, keep-alive",
        "X-Private": "1",
        "Proxy-Authorization": "x",
        "TE": "trailers",
        "X-Prefold-Anything": "1",
        "Accept-Encoding": "gzip",
    }
    async with http.post("/v1/chat/completions", json=CHAT, headers=sent) as answer:
        assert answer.status == 200
    got = upstream.received[0].headers
    assert (got["x-request-id"], got["traceparent"]) == ("r1", "00-1-2-03")
    assert got["accept-encoding"] == "identity"
    assert got["host"] == upstream.url.removeprefix("http://")
    dropped = {
        "authorization",
        "cookie",
        "x-private",
        "proxy-authorization",
        "te",
        "x-prefold-anything",
    }
    assert not dropped & got.keys()


async def test_nothing_of_a_prompt_gets_into_metrics_report_or_logs(
    upstream: ScriptedUpstream,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Prompt, key, user and unknown model names: none is ever a label or a log entry."""
    caplog.set_level("DEBUG")
    headers = {"Authorization": "Bearer sentinel"}
    chat = {**CHAT, "user": "sentinel", "messages": [{"role": "user", "content": "sentinel"}]}
    async with (
        proxy_before([upstream.url]) as server,
        aiohttp.ClientSession(server.url) as http,
        aiohttp.ClientSession(server.admin_url) as admin,
    ):
        for body in (chat, {**chat, "model": "sentinel"}, {**chat, "stream": "sentinel"}):
            async with http.post("/v1/chat/completions", json=body, headers=headers) as answer:
                await answer.read()
        for path in ("/metrics", "/report"):
            async with admin.get(path) as answer:
                assert answer.status == 200
                assert "sentinel" not in await answer.text()
    lines = capsys.readouterr().err
    assert "sentinel" not in caplog.text + lines
    assert "/v1/chat/completions 200 ok" in lines


async def test_ready_and_health_tell_different_things(upstream: ScriptedUpstream) -> None:
    """The process lives without a backend, but is not ready."""
    statuses = {}
    for url in ("http://127.0.0.1:9", upstream.url):
        async with proxy_before([url]) as server, aiohttp.ClientSession(server.url) as http:
            for path in ("/health", "/ready"):
                async with http.get(path) as answer, http.head(path) as head_only:
                    statuses[url, path] = answer.status
                    assert head_only.status == answer.status
    assert list(statuses.values()) == [200, 503, 200, 200]


@pytest.mark.parametrize("policy", ["prefix", "round_robin", "least_load", "rendezvous"])
async def test_every_policy_can_be_selected(policy: Any) -> None:
    """And says so in the decision."""
    settings = replace(BASE, routing=Routing(policy=policy), server=Server(port=0, admin_port=0))
    async with (
        scripted(whole(ANSWER)) as first,
        scripted(whole(ANSWER)) as second,
        proxy_before([first.url, second.url], settings=settings) as server,
        aiohttp.ClientSession(server.url) as http,
    ):
        reasons = set()
        for _ in range(4):
            async with http.post("/v1/chat/completions", json=CHAT) as answer:
                decision = answer.headers["X-Prefold-Decision"]
                reasons.add(decision.partition("reason=")[2].partition(";")[0])
        split = (len(first.received), len(second.received))
    assert ("round_robin" in reasons) == (policy == "round_robin")
    assert split == (2, 2) if policy == "round_robin" else split in ((4, 0), (0, 4))


@pytest.mark.parametrize(
    ("path", "members", "saved"),
    [
        ("/v1/chat/completions", CHAT, 224),
        ("/v1/chat/completions", CHAT | {"n": 2}, None),
        ("/v1/completions", {"model": "m", "prompt": "a"}, 224),
        ("/v1/completions", {"model": "m", "prompt": ["a", "b"]}, None),
    ],
)
async def test_cached_tokens_of_several_sequences_are_not_counted(
    path: str, members: dict[str, Any], saved: int | None
) -> None:
    """vLLM tells those of one sequence: the second of two copies finds all that the first left."""
    usage = {"prompt_tokens": 231, "prompt_tokens_details": {"cached_tokens": 224}}
    answer = {"id": "c1", "choices": [{"index": 0}], "usage": usage}
    async with scripted(whole(answer)) as upstream, proxy_before([upstream.url]) as server:
        async with aiohttp.ClientSession(server.url) as http, http.post(path, json=members) as got:
            assert got.status == 200
        total = report(server.proxy.books)["total"]
        assert total["prefill_tokens_saved"] == saved
        assert total["requests_without_reported_cache"] == (saved is None)


async def test_a_log_line_bears_the_id_that_the_client_was_told(
    upstream: ScriptedUpstream,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """So that a complaint finds its line; what is not written yet is when the proxy ends."""
    caplog.set_level("INFO")
    told = []
    async with proxy_before([upstream.url]) as server, aiohttp.ClientSession(server.url) as http:
        for headers in ({}, {"X-Request-Id": "mine-1"}):
            async with http.post("/v1/chat/completions", json=CHAT, headers=headers) as answer:
                told.append(answer.headers["X-Request-Id"])
    lines = capsys.readouterr().err.splitlines()

    assert told[1] == "mine-1"
    for line, request_id in zip(lines, told, strict=True):
        assert f" INFO prefold.requests {request_id} /v1/chat/completions 200 ok " in line
