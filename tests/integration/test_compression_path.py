"""Compression in the path of a request: real proxy, real compressor process, scripted backends."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from hashlib import sha256
from typing import Any

import aiohttp
import pytest

from prefold.proxy.compression.switch import HEADER
from prefold.proxy.compression.wiring import Compressing
from prefold.proxy.serve import Running
from prefold.proxy.settings import Compression, Key, Model, Routing
from tests.support.prose import prose
from tests.support.proxy import BASE, proxy_before, until
from tests.support.requirements import skip_or_fail
from tests.support.upstream import DONE, delta, scripted, stream, whole
from tests.support.workers import Connection, workers
from tests.wire.raw_client import post

PATH = "/v1/chat/completions"
ANSWER = whole({"id": "a", "choices": [{"message": {"role": "assistant", "content": "Yes."}}]})
STREAM = stream(delta("Yes"), delta("."), delta(finish="stop"), DONE)
RULES = Compression(mode="on", min_tokens=100, min_chars=200, deadline_s=10.0)
SETTINGS = replace(BASE, compression=RULES)
QUESTION = "What did the porter count?"


@pytest.fixture(autouse=True)
def _wordfreq() -> None:
    try:
        import wordfreq  # noqa: F401
    except ImportError:
        skip_or_fail("needs wordfreq: pip install 'prefold[compression-lexical]'")


def parts_of(server: Running) -> Compressing:
    assert server.proxy.compression is not None
    return server.proxy.compression


async def ready(server: Running) -> None:
    pool = parts_of(server).pool
    await until(lambda: pool.up > 0, tries=3000)


@asynccontextmanager
async def compressing(url: str, **rules: Any) -> AsyncIterator[Running]:
    """A proxy whose compressor is ready."""
    settings = replace(SETTINGS, compression=replace(RULES, **rules))
    async with proxy_before([url], settings=settings) as server:
        await ready(server)
        yield server


def rag(*documents: str, **more: Any) -> dict[str, Any]:
    parts = [{"type": "text", "text": text} for text in (*documents, QUESTION)]
    messages = [
        {"role": "system", "content": "Answer from the documents. " + prose(0, 20)},
        {"role": "user", "content": parts},
    ]
    return {"model": "m", "messages": messages, **more}


def then(body: dict[str, Any], *documents: str, answer: str = "Crates.") -> dict[str, Any]:
    """The next turn."""
    more = rag(*documents)["messages"][1]
    said = {"role": "assistant", "content": answer}
    return {**body, "messages": [*body["messages"], said, more]}


def texts(body: dict[str, Any], message: int) -> list[str]:
    return [part["text"] for part in body["messages"][message]["content"]]


def is_subsequence(short: str, text: str) -> bool:
    rest = iter(text)
    return all(character in rest for character in short)


async def ask(
    http: aiohttp.ClientSession, body: dict[str, Any], **headers: str
) -> tuple[str, bytes]:
    """What the header says ("" for none), and the answer."""
    async with http.post(PATH, json=body, headers=headers) as answer:
        assert answer.status == 200, await answer.text()
        return answer.headers.get(HEADER, ""), await answer.read()


async def test_documents_are_compressed_and_nothing_else() -> None:
    """What the client marked is shorter, and a subsequence; every other byte is as it came, in the
    answer too; the same document comes out the same in another prompt and place."""
    async with (
        scripted(ANSWER, STREAM) as upstream,
        compressing(upstream.url) as server,
        aiohttp.ClientSession(server.url) as http,
    ):
        body = rag(prose(1, 30), prose(2, 30), temperature=0.25, big=10**30)
        told, _ = await ask(http, body)
        assert told.startswith("mode=on; form=compressed; compressor=lexical; tokens=~")
        sent = json.loads(upstream.received[0].body)
        first, second, question = texts(sent, 1)
        assert is_subsequence(first, prose(1, 30))
        assert len(first) < 0.7 * len(prose(1, 30))
        assert question == QUESTION
        for part, text in zip(sent["messages"][1]["content"], texts(body, 1), strict=True):
            part["text"] = text
        assert json.dumps(sent).encode() == json.dumps(body).encode()

        _, answer = await ask(http, rag(prose(3, 30), prose(2, 30), stream=True))
        assert texts(json.loads(upstream.received[1].body), 1)[1] == second
        assert answer.count(b"data: ") == 4
        assert answer.endswith(DONE)
        assert HEADER.lower() not in upstream.received[0].headers

        exposition = server.proxy.metrics.exposition().decode()
        labels = 'form="compressed",model="m",reason="on"'
        assert f"prefold_compression_requests_total{{{labels}}} 2.0" in exposition
        assert 'prefold_compression_segments_total{result="hit"} 1.0' in exposition
        assert "prefold_compression_workers 1.0" in exposition


async def test_without_settings_nothing_is_there() -> None:
    """No process, no header, the same bytes."""
    async with (
        scripted(ANSWER) as upstream,
        proxy_before([upstream.url]) as server,
        aiohttp.ClientSession(server.url) as http,
    ):
        assert server.proxy.compression is None
        raw = json.dumps(rag(prose(1, 30))).encode()
        headers = {"Content-Type": "application/json", HEADER: "on"}
        async with http.post(PATH, data=raw, headers=headers) as answer:
            assert HEADER not in answer.headers
        assert upstream.received[0].body == raw


async def test_who_may_ask_for_what() -> None:
    """A request's header comes before the model's setting, and a key may be left out for good."""
    secrets = {name: f"key-{name}" for name in ("a", "b")}
    keys = tuple(
        Key(tenant=name, sha256=sha256(key.encode()).hexdigest(), compression=name == "a")
        for name, key in secrets.items()
    )
    settings = replace(SETTINGS, keys=keys)
    async with (
        scripted(ANSWER) as upstream,
        proxy_before(
            [upstream.url], settings=settings, models={"m": Model(compression="shadow")}
        ) as server,
        aiohttp.ClientSession(server.url) as http,
    ):
        await ready(server)
        ours, other = ({"Authorization": f"Bearer {secrets[name]}"} for name in "ab")
        body = rag(prose(1, 30))
        assert "form=shadow" in (await ask(http, body, **ours))[0]
        assert (await ask(http, rag(prose(2, 30)), **ours, **{HEADER: "off"}))[0] == ""
        assert (
            "form=compressed" in (await ask(http, rag(prose(3, 30)), **ours, **{HEADER: "On"}))[0]
        )
        assert (await ask(http, body, **other, **{HEADER: "on"}))[0] == ""
        lengths = [len(request.body) for request in upstream.received]
        assert lengths[2] < 0.8 * lengths[3] == 0.8 * lengths[0]
        async with http.post(PATH, json=body, headers={**ours, HEADER: "half"}) as answer:
            assert answer.status == 400
            assert (await answer.json())["error"]["type"] == "invalid_request_error"


async def test_a_message_keeps_the_form_in_which_it_was_sent() -> None:
    """Compressed documents stay compressed and the question of then stays whole, though it is an
    earlier turn now; what went out as it came stays so too."""
    async with (
        scripted(ANSWER) as upstream,
        compressing(upstream.url) as server,
        aiohttp.ClientSession(server.url) as http,
    ):
        long_question = rag(prose(1, 30), prose(2, 20))
        long_question["messages"][1]["content"].pop()  # the last part is a question of 20 sentences
        second = then(long_question, prose(3, 30))
        for body in (long_question, second, then(second, prose(4, 30))):
            assert "form=compressed" in (await ask(http, body))[0]
        one, two, three = [json.loads(request.body)["messages"] for request in upstream.received]
        assert texts(long_question, 1)[1] == one[1]["content"][1]["text"]
        assert two[:2] == one
        assert three[:4] == two

        asked = rag(prose(7, 30))
        await ask(http, asked, **{HEADER: "off"})
        told, _ = await ask(http, then(asked, prose(8, 30)))
        assert "form=compressed" in told
        last = json.loads(upstream.received[-1].body)["messages"]
        assert last[1] == asked["messages"][1]
        assert len(last[3]["content"][0]["text"]) < 0.7 * len(prose(8, 30))


async def test_earlier_turns_that_were_never_seen_are_compressed() -> None:
    """A conversation that comes with its past: the user's earlier turns, not the model's."""
    async with (
        scripted(ANSWER) as upstream,
        compressing(upstream.url) as server,
        aiohttp.ClientSession(server.url) as http,
    ):
        body = then(rag(prose(1, 30)), answer=prose(5, 30))
        assert "form=compressed" in (await ask(http, body))[0]
        sent = json.loads(upstream.received[0].body)
        assert len(texts(sent, 1)[0]) < 0.7 * len(prose(1, 30))
        assert sent["messages"][0] == body["messages"][0]
        assert sent["messages"][2:] == body["messages"][2:]


async def test_documents_of_messages_are_compressed_too() -> None:
    """As Anthropic's clients mark them; their cache breakpoints stay."""
    source = {"type": "text", "media_type": "text/plain", "data": prose(1, 30)}
    mark = {"cache_control": {"type": "ephemeral"}}
    parts = [{"type": "document", "source": source, **mark}, {"type": "text", "text": QUESTION}]
    body = {"model": "m", "max_tokens": 8, "messages": [{"role": "user", "content": parts}]}
    said = {"type": "message", "role": "assistant", "content": [{"type": "text", "text": "Yes."}]}
    async with (
        scripted(whole({"id": "msg_1", **said})) as upstream,
        compressing(upstream.url) as server,
        aiohttp.ClientSession(server.url) as http,
    ):
        async with http.post("/v1/messages", json=body) as answer:
            assert answer.status == 200
            assert "form=compressed" in answer.headers[HEADER]
        document, question = json.loads(upstream.received[0].body)["messages"][0]["content"]
        assert is_subsequence(document["source"]["data"], prose(1, 30))
        assert len(document["source"]["data"]) < 0.7 * len(prose(1, 30))
        assert document["cache_control"] == mark["cache_control"]
        assert question["text"] == QUESTION


async def test_results_of_tools_are_compressed_where_that_is_wanted() -> None:
    """As Anthropic's clients send them; errors stay, and so does what the user says beside them."""
    results = [
        {"type": "tool_result", "tool_use_id": "a", "content": prose(1, 30)},
        {"type": "tool_result", "tool_use_id": "b", "content": prose(2, 30), "is_error": True},
        {"type": "text", "text": prose(3, 30)},
    ]
    call = {"type": "tool_use", "id": "a", "name": "read", "input": {"text": prose(4, 30)}}
    messages = [
        {"role": "user", "content": QUESTION},
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": results},
    ]
    said = {"type": "message", "role": "assistant", "content": [{"type": "text", "text": "Yes."}]}
    async with (
        scripted(whole({"id": "msg_1", **said})) as upstream,
        compressing(upstream.url, tools=True) as server,
        aiohttp.ClientSession(server.url) as http,
    ):
        body = {"model": "m", "max_tokens": 8, "messages": messages}
        async with http.post("/v1/messages", json=body) as answer:
            assert answer.status == 200
            assert "form=compressed" in answer.headers[HEADER]
        sent = json.loads(upstream.received[0].body)["messages"]
        assert is_subsequence(sent[2]["content"][0]["content"], prose(1, 30))
        assert len(sent[2]["content"][0]["content"]) < 0.7 * len(prose(1, 30))
        assert (sent[:2], sent[2]["content"][1:]) == (messages[:2], results[1:])


async def test_documents_of_a_plain_prompt_are_compressed() -> None:
    """Those between delimiters; a prompt that goes on begins with the same bytes."""

    def document(number: int) -> str:
        return f"<document>{prose(number, 30)}</document>"

    said = whole({"id": "c", "object": "text_completion", "choices": [{"text": "Yes."}]})
    first = f"{prose(9, 10)}\n{document(1)}\n{QUESTION}"
    async with (
        scripted(said) as upstream,
        compressing(upstream.url) as server,
        aiohttp.ClientSession(server.url) as http,
    ):

        async def sent(prompt: str, **more: Any) -> tuple[str, str]:
            body = {"model": "m", "prompt": prompt, **more}
            async with http.post("/v1/completions", json=body) as answer:
                assert answer.status == 200
                told = answer.headers.get(HEADER, "")
            return told, json.loads(upstream.received[-1].body)["prompt"]

        told, one = await sent(first)
        assert "form=compressed" in told
        assert one.startswith(f"{prose(9, 10)}\n<document>")
        assert one.endswith(f"</document>\n{QUESTION}")
        assert len(one) < len(first) - 0.3 * len(prose(1, 30))
        _, two = await sent(f"{first} Yes. {document(2)} Why?")
        assert two.startswith(one)
        echoed = f"{document(3)} {QUESTION}"
        assert (await sent(echoed, echo=True))[1] == echoed


async def test_in_the_shadow_the_original_goes_out() -> None:
    """And what would have been saved is known by the end of the request, if that is late enough."""
    async with (
        scripted(ANSWER) as upstream,
        compressing(upstream.url, mode="shadow") as server,
        aiohttp.ClientSession(server.url) as http,
    ):
        body = rag(prose(1, 30))
        flights = parts_of(server).flights
        for _ in range(2):
            assert "form=shadow" in (await ask(http, body))[0]
            await until(lambda: not len(flights))
        tally = server.proxy.books.compression
        await until(lambda: tally.requests["m", "shadow", "shadow"] == 2)
        assert [json.loads(request.body) for request in upstream.received] == [body, body]
        assert tally.shadow_tokens["m"] > 100
        assert not tally.removed_tokens


@pytest.mark.parametrize(("tokens_per_s", "form"), [(200.0, "compressed"), (1e7, "original")])
async def test_the_gate_decides_by_what_prefill_costs(tokens_per_s: float, form: str) -> None:
    """Before a slow backend it pays, before a fast one it does not; either way the text is there
    for the next request that shares it."""
    async with scripted(ANSWER, STREAM, ANSWER) as upstream:
        settings = replace(
            SETTINGS,
            compression=replace(RULES, mode="auto"),
            routing=Routing(initial_prefill_tokens_per_s=tokens_per_s),
        )
        async with (
            proxy_before([upstream.url], settings=settings) as server,
            aiohttp.ClientSession(server.url) as http,
        ):
            await ready(server)
            told, _ = await ask(http, rag(prose(1, 40)))
            assert f"form={form}" in told
            assert ("reason=pays" in told) == (form == "compressed")
            flights, cache = parts_of(server).flights, parts_of(server).cache
            await until(lambda: not len(flights))
            assert len(cache) == 1
            await ask(http, rag(prose(9, 40), stream=True))
            tally = server.proxy.books.compression
            await until(lambda: ("m", form) in tally.errors)
            assert ("m" in tally.gains) == (form == "compressed")


async def test_a_compressor_that_is_killed_costs_nobody_an_answer() -> None:
    """Under load: all are answered, those under way as they came, and it is started again."""
    async with (
        scripted(ANSWER) as upstream,
        compressing(upstream.url) as server,
        aiohttp.ClientSession(server.url) as http,
    ):
        upstream.pause_s = 0.0
        pool = parts_of(server).pool
        asking = [asyncio.create_task(ask(http, rag(prose(n, 200)))) for n in range(12)]
        await until(lambda: pool.load[0] > 0)
        for pid in pool.pids:
            os.kill(pid, signal.SIGKILL)
        told = [answer for answer, _ in await asyncio.gather(*asking)]
        assert any("form=original" in one and "reason=failed" in one for one in told)
        assert len(upstream.received) == 12
        await until(lambda: pool.starts == 2 and pool.up == 1, tries=3000)
        assert "form=compressed" in (await ask(http, rag(prose(50, 30))))[0]
        assert "prefold_compression_worker_failures_total 1.0" in (
            server.proxy.metrics.exposition().decode()
        )


async def test_a_compressor_that_hangs_is_replaced() -> None:
    """Requests wait for it no longer than they may; then it is killed."""
    async with (
        scripted(ANSWER) as upstream,
        compressing(upstream.url, deadline_s=0.3, hang_s=1.0) as server,
        aiohttp.ClientSession(server.url) as http,
    ):
        pool = parts_of(server).pool
        [stopped] = pool.pids
        os.kill(stopped, signal.SIGSTOP)
        told, _ = await ask(http, rag(prose(1, 30)))
        assert "form=original" in told
        assert "reason=late" in told
        await until(lambda: stopped not in pool.pids and pool.up == 1, tries=3000)
        with pytest.raises(ProcessLookupError):
            os.kill(stopped, 0)


@pytest.mark.parametrize("speculative", [True, False])
async def test_what_was_slow_is_not_thought_slow_for_ever(speculative: bool) -> None:
    """Nobody waits for what is expected to come too late; but a text goes there, and the speed is
    learned anew."""
    async with (
        scripted(ANSWER) as upstream,
        compressing(upstream.url, speculative=speculative) as server,
        aiohttp.ClientSession(server.url) as http,
    ):
        pool = parts_of(server).pool
        pool.speed.observe(1, 1000.0)
        told, _ = await ask(http, rag(prose(1, 30), prose(2, 40)))
        assert "reason=late" in told
        for n in range(200):
            told, _ = await ask(http, rag(prose(100 + n, 30)))
            if "form=compressed" in told:
                return
            await until(lambda: pool.load == (0, 0))
        raise AssertionError("it never was tried again")


async def test_what_cannot_be_opened_is_not_waited_for() -> None:
    """The log says why; prompts go out as they came, without a header."""
    async with (
        scripted(ANSWER) as upstream,
        proxy_before(
            [upstream.url],
            settings=replace(SETTINGS, compression=replace(RULES, language="xx")),
        ) as server,
        aiohttp.ClientSession(server.url) as http,
    ):
        pool = parts_of(server).pool
        await until(lambda: pool.failures > 0, tries=3000)
        assert (await ask(http, rag(prose(1, 30))))[0] == ""
        assert json.loads(upstream.received[0].body) == rag(prose(1, 30))


async def test_a_client_that_leaves_takes_its_work_with_it() -> None:
    """What nobody waits for any more is not compressed, unless it was begun."""
    async with (
        scripted(ANSWER) as upstream,
        compressing(upstream.url) as server,
        aiohttp.ClientSession(server.url) as http,
    ):
        pool = parts_of(server).pool
        [stopped] = pool.pids
        os.kill(stopped, signal.SIGSTOP)
        first = asyncio.create_task(ask(http, rag(prose(1, 30))))
        await until(lambda: pool.load[0] == 0 and pool.load[1] > 0)
        second = asyncio.create_task(ask(http, rag(prose(2, 30))))
        await until(lambda: pool.load[0] == 1)
        second.cancel()
        await until(lambda: pool.load[0] == 0)
        os.kill(stopped, signal.SIGCONT)
        assert "form=compressed" in (await first)[0]
        assert len(parts_of(server).cache) == 1
        assert len(upstream.received) == 1


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")
async def test_workers_agree_on_the_form_of_a_message() -> None:
    """What one sent as it came, the other sends so too, when the next turn comes to that one."""
    table = {"mode": "on", "min_tokens": 100, "min_chars": 200, "deadline_s": 10.0}
    async with (
        scripted(ANSWER) as upstream,
        workers([upstream.url], {"compression": table}) as made,
    ):
        first, second = [await made.connect(pid) for pid in made.pids()]

        async def told(worker: Connection, body: dict[str, Any], **headers: str) -> str:
            answer = await worker.ask(post(PATH, json.dumps(body).encode(), headers))
            assert answer.status == 200
            return answer.header(HEADER) or ""

        for n in range(600):  # the compressors start beside the workers
            forms = [await told(worker, rag(prose(1000 + n, 30))) for worker in (first, second)]
            if all("form=compressed" in form for form in forms):
                break
            await asyncio.sleep(0.05)
        for n in range(200):
            asked = rag(prose(n, 30))
            assert await told(first, asked, **{HEADER: "off"}) == ""
            assert "form=compressed" in await told(second, then(asked, prose(500, 30)))
            if json.loads(upstream.received[-1].body)["messages"][1] == asked["messages"][1]:
                return
            await asyncio.sleep(0.02)
        raise AssertionError("the other worker never knew")
