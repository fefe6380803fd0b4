"""What lives on one backend: stored responses, files, uploads that are passed on as they come."""

import io
import json
from dataclasses import replace
from typing import Any

import aiohttp
import pytest

from prefold.proxy.settings import Model, Routing
from tests.support.proxy import BASE, proxy_before, until
from tests.support.upstream import Script, Step, event, scripted, stream, whole


def made(response_id: str, **more: Any) -> Script:
    return whole({"id": response_id, "object": "response", "status": "completed", **more})


ASK = {"model": "m", "input": "hi"}


async def code_of(answer: aiohttp.ClientResponse) -> str:
    told = await answer.json()
    return str(told["error"]["code"])


async def test_a_response_is_gone_on_with_where_it_was_made() -> None:
    """By previous_response_id and by its id, whichever backend another request would get."""
    first = [made("resp_a"), made("resp_b"), made("resp_c")]
    async with (
        scripted(*first) as one,
        scripted(*[made(f"resp_{n}") for n in (1, 2, 3)]) as two,
        proxy_before([one.url, two.url]) as server,
        aiohttp.ClientSession(server.url) as http,
    ):
        async with http.post("/v1/responses", json=ASK) as answer:
            response_id = (await answer.json())["id"]
        holder, other = (one, two) if response_id == "resp_a" else (two, one)
        goes_on = {**ASK, "previous_response_id": response_id}
        for method, path, body in (
            ("POST", "/v1/responses", goes_on),
            ("GET", f"/v1/responses/{response_id}?include=x", None),
        ):
            async with http.request(method, path, json=body) as answer:
                assert answer.status == 200
            assert holder.received[-1].path == path
        assert other.received == []


async def test_the_id_of_a_stream_is_known_while_it_runs() -> None:
    """A client may cancel what it only saw begin."""
    begun = event(type="response.created", response={"id": "resp_s"})
    running = [*stream(begun)[:-1], Step.WAIT, Step.CLOSE]
    async with (
        scripted(running, whole({"id": "resp_s"})) as one,
        scripted(running, whole({"id": "resp_s"})) as two,
        proxy_before([one.url, two.url]) as server,
        aiohttp.ClientSession(server.url) as http,
    ):
        async with http.post("/v1/responses", json={**ASK, "stream": True}) as begins:
            assert b"response.created" in await begins.content.readany()
            async with http.post("/v1/responses/resp_s/cancel") as answer:
                assert answer.status == 200
        holder = one if one.received else two
        assert [got.path for got in holder.received] == [
            "/v1/responses",
            "/v1/responses/resp_s/cancel",
        ]


@pytest.mark.parametrize("path", ["/v1/responses/resp_x", "/v1/responses/resp_x/input_items"])
async def test_an_unknown_id_is_not_asked_of_just_anybody(path: str) -> None:
    """Another backend would not know it, or worse, know another one by that name."""
    async with (
        scripted(made("resp_a")) as one,
        scripted(made("resp_b")) as two,
        proxy_before([one.url, two.url]) as server,
        aiohttp.ClientSession(server.url) as http,
    ):
        async with http.get(path) as answer:
            assert (answer.status, await code_of(answer)) == (404, "previous_response_not_found")
        goes_on = {**ASK, "previous_response_id": "resp_x"}
        async with http.post("/v1/responses", json=goes_on) as answer:
            assert answer.status == 404
        assert one.received == two.received == []


async def test_what_a_dead_backend_held_is_not_served_by_another() -> None:
    """503 while it is away: it may come back."""
    async with (
        scripted(made("resp_a")) as one,
        scripted(made("resp_a")) as two,
        proxy_before([one.url, two.url]) as server,
        aiohttp.ClientSession(server.url) as http,
    ):
        async with http.post("/v1/responses", json=ASK) as answer:
            assert answer.status == 200
        holder, other = ("b0", two) if one.received else ("b1", one)
        server.proxy.pool[holder].health.down()
        async with http.get("/v1/responses/resp_a") as answer:
            assert (answer.status, await code_of(answer)) == (503, "no_backend_available")
            assert 1 <= int(answer.headers["Retry-After"]) <= 60
        assert other.received == []


async def test_files_go_to_the_backend_that_is_set_for_them() -> None:
    """All methods, all paths below, query included; never to another one."""
    settings = replace(BASE, routing=Routing(pinned_backend="b1"))
    async with (
        scripted(whole({})) as one,
        scripted(whole({"id": "file-1"})) as two,
        proxy_before([one.url, two.url], settings=settings) as server,
        aiohttp.ClientSession(server.url) as http,
    ):
        form = aiohttp.FormData({"purpose": "batch"})
        form.add_field("file", b"x" * 200_000, filename="a.jsonl")
        async with http.post("/v1/files", data=form) as answer:
            assert (await answer.json())["id"] == "file-1"
        async with http.delete("/v1/files/file-1?x=1") as answer:
            assert answer.status == 200
        sent = two.received[0]
        assert sent.headers["content-type"].startswith("multipart/form-data; boundary=")
        assert sent.body.count(b"x") >= 200_000
        assert two.received[1].path == "/v1/files/file-1?x=1"
        assert one.received == []


@pytest.mark.parametrize("model_first", [True, False])
async def test_an_upload_goes_to_a_backend_that_serves_its_model(model_first: bool) -> None:
    """The form names it, before the file or after a small one; an alias is replaced in it."""
    async with (
        scripted(whole({"text": "a"}), model="whisper") as one,
        scripted(whole({"text": "b"}), model="other") as two,
        proxy_before(
            [one.url, two.url], models={"whisper": Model(aliases=("whisper-1",))}
        ) as server,
        aiohttp.ClientSession(server.url) as http,
    ):
        form = aiohttp.FormData()
        if model_first:
            form.add_field("model", "whisper-1")
        form.add_field("file", b"RIFF" + bytes(1000), filename="a.wav")
        if not model_first:
            form.add_field("model", "whisper-1")
        async with http.post("/v1/audio/transcriptions", data=form) as answer:
            assert (await answer.json()) == {"text": "a"}
        assert b"whisper\r\n" in one.received[0].body
        assert b"whisper-1" not in one.received[0].body
        assert two.received == []


async def test_an_upload_is_passed_on_before_it_is_all_here() -> None:
    """200 MiB of audio must not be held in memory, and cannot be sent twice."""
    settings = replace(BASE, server=replace(BASE.server, max_body_mib=0.1, max_upload_mib=1.0))
    async with (
        scripted(whole({"error": {"message": "busy"}}, 503)) as one,
        scripted(whole({"text": "b"})) as two,
        proxy_before([one.url, two.url], settings=settings) as server,
        aiohttp.ClientSession(server.url) as http,
    ):
        for size, status in ((500_000, (200, 503)), (2_000_000, (413,))):
            form = aiohttp.FormData({"model": "m"})
            form.add_field("file", io.BytesIO(bytes(size)), filename="a.wav")
            async with http.post("/v1/audio/transcriptions", data=form) as answer:
                assert answer.status in status
        assert len(one.received) + len(two.received) == 1
        await until(lambda: all(not backend.in_flight for backend in server.proxy.pool))


async def test_an_upload_without_a_length_is_bounded_too() -> None:
    """It is cut off at the limit."""
    settings = replace(BASE, server=replace(BASE.server, max_upload_mib=0.5))

    async def endless() -> Any:
        yield b'--b\r\nContent-Disposition: form-data; name="file"\r\n\r\n'
        for _ in range(64):
            yield bytes(64 * 1024)

    async with (
        scripted(whole({"text": "a"})) as one,
        proxy_before([one.url], settings=settings) as server,
        aiohttp.ClientSession(server.url) as http,
    ):
        kind = {"Content-Type": "multipart/form-data; boundary=b"}
        try:
            async with http.post(
                "/v1/audio/transcriptions", data=endless(), headers=kind
            ) as answer:
                assert answer.status == 413
                assert json.loads(await answer.read())["error"]["code"] == "request_too_large"
        except aiohttp.ClientError:
            pass  # the answer may come while it is still sending
        [backend] = server.proxy.pool
        await until(lambda: not backend.in_flight)
        assert one.received == []
