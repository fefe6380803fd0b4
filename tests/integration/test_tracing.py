"""Requests as spans, as a collector sees them, and as the backend and the client are told."""

from __future__ import annotations

import dataclasses
import json
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from prefold.proxy.errors import SettingsError
from prefold.proxy.settings import Settings, Tracing
from prefold.proxy.settings_file import load
from tests.support.collector import Collector, attributes, collecting
from tests.support.proxy import BASE, proxy_before
from tests.support.upstream import DONE, delta, event, scripted, stream, whole
from tests.support.workers import workers
from tests.wire.raw_client import RawAnswer, ask, post

CHAT = "/v1/chat/completions"
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TEXT = "the-text-of-this-prompt"
USAGE = event(
    choices=[],
    usage={
        "prompt_tokens": 40,
        "completion_tokens": 2,
        "prompt_tokens_details": {"cached_tokens": 32},
    },
)
SOUND = stream(delta("Hi"), delta(" you"), delta(finish="stop"), USAGE, DONE)
BUSY = whole({"error": {"message": "busy"}}, 503)
BODY = json.dumps(
    {"model": "m", "stream": True, "messages": [{"role": "user", "content": TEXT}]}
).encode()


def traced(collector: Collector, **more: Any) -> Settings:
    return dataclasses.replace(BASE, tracing=Tracing(endpoint=collector.url, **more))


def chat(traceparent: str = "", **headers: str) -> bytes:
    given = {"traceparent": traceparent} if traceparent else {}
    return post(CHAT, BODY, {**given, **headers})


def ids(traceparent: str | None) -> tuple[str, str, str]:
    """Trace, span and flags."""
    found = re.fullmatch(r"00-([0-9a-f]{32})-([0-9a-f]{16})-(0[0-3])", traceparent or "")
    assert found is not None, traceparent
    return found[1], found[2], found[3]


async def one(
    settings: Settings, request: bytes, *scripts: Any
) -> tuple[RawAnswer, dict[str, str]]:
    """The answer to a request, and the headers that the last backend got. Spans are out then."""
    scripts = scripts or (SOUND,)
    async with scripted(*scripts) as upstream:
        urls = [upstream.url] * min(len(scripts), 2)
        async with proxy_before(urls, settings=settings) as proxy:
            answer = await ask(proxy.url, request)
    return answer, upstream.received[-1].headers


async def test_a_request_is_two_spans_in_its_clients_trace() -> None:
    """Client, SERVER, CLIENT, backend: each is told its parent."""
    with collecting() as collector:
        answer, got = await one(traced(collector), chat(f"00-{TRACE}-{PARENT}-01"))

    (server,) = collector.of_kind(Span.SPAN_KIND_SERVER)
    (client,) = collector.of_kind(Span.SPAN_KIND_CLIENT)
    assert {span.trace_id.hex() for span in (server, client)} == {TRACE}
    assert server.parent_span_id.hex() == PARENT
    assert client.parent_span_id == server.span_id
    assert ids(got["traceparent"])[:2] == (TRACE, client.span_id.hex())
    assert ids(answer.header("traceresponse"))[:2] == (TRACE, server.span_id.hex())
    assert collector.resource()["service.name"] == "prefold"


async def test_spans_say_what_the_engine_reported_and_what_was_expected() -> None:
    """By the names of the GenAI conventions; ours have their own."""
    with collecting() as collector:
        await one(traced(collector), chat())
    (client,) = collector.of_kind(Span.SPAN_KIND_CLIENT)
    (server,) = collector.of_kind(Span.SPAN_KIND_SERVER)
    told = attributes(client)
    conventional = {
        value for name, value in vars(gen_ai_attributes).items() if name.startswith("GEN_AI")
    }

    assert client.name == "chat m"
    assert told["gen_ai.operation.name"] == "chat"
    assert told["gen_ai.request.model"] == "m"
    assert told["gen_ai.request.stream"] is True
    assert told["gen_ai.usage.input_tokens"] == 40
    assert told["gen_ai.usage.output_tokens"] == 2
    assert told["gen_ai.usage.cache_read.input_tokens"] == 32
    assert told["gen_ai.response.time_to_first_chunk"] > 0
    assert told["server.address"] == "127.0.0.1"
    assert told["prefold.backend"] == "b0"
    assert told["prefold.cached_tokens.expected"] == 0
    assert {name for name in told if name.startswith("gen_ai.")} <= conventional
    assert attributes(server)["http.route"] == CHAT
    assert attributes(server)["http.response.status_code"] == 200


async def test_moments_are_in_order_and_of_this_day() -> None:
    """They come from a clock that has no date."""
    with collecting() as collector:
        before = time.time_ns()
        await one(traced(collector), chat())
        after = time.time_ns()
    (client,) = collector.of_kind(Span.SPAN_KIND_CLIENT)
    (server,) = collector.of_kind(Span.SPAN_KIND_SERVER)
    (first,) = client.events
    moments = [
        server.start_time_unix_nano,
        *(one.time_unix_nano for one in server.events),
        first.time_unix_nano,
        client.end_time_unix_nano,
    ]

    assert [one.name for one in server.events] == [
        "prefold.parsed",
        "prefold.encoded",
        "prefold.chosen",
    ]
    assert moments == sorted(moments)
    assert client.end_time_unix_nano == server.end_time_unix_nano
    slack = 50_000_000  # the wall's clock is read anew for each
    assert before - slack <= moments[0] <= moments[-1] <= after + slack


async def test_no_text_goes_to_the_collector() -> None:
    """Neither the prompt's nor the answer's."""
    with collecting() as collector:
        await one(traced(collector), chat())

    sent = b"".join(collector.bodies)
    assert sent
    assert TEXT.encode() not in sent
    assert b" you" not in sent


async def test_a_second_attempt_is_in_the_same_span() -> None:
    """The conventions have one span for an operation with all its retries."""
    with collecting() as collector:
        answer, _ = await one(traced(collector), chat(), BUSY, SOUND)
    (client,) = collector.of_kind(Span.SPAN_KIND_CLIENT)

    assert answer.status == 200
    assert attributes(client)["prefold.attempts"] == 2
    assert len(attributes(client)["prefold.backends.failed"]) == 1
    assert client.status.code == Status.STATUS_CODE_UNSET


async def test_a_failure_of_the_backend_is_an_error_with_its_class() -> None:
    """A bad request of the client is not one."""
    with collecting() as collector:
        await one(traced(collector), chat(), BUSY)
        async with (
            scripted(SOUND) as upstream,
            proxy_before([upstream.url], settings=traced(collector)) as proxy,
        ):
            refused = await ask(proxy.url, post(CHAT, b"no JSON"))
    failed, sound = collector.of_kind(Span.SPAN_KIND_SERVER)

    assert failed.status.code == Status.STATUS_CODE_ERROR
    assert attributes(failed)["error.type"]
    assert refused.status == 400
    assert sound.status.code == Status.STATUS_CODE_UNSET
    assert attributes(sound)["http.response.status_code"] == 400
    assert len(collector.of_kind(Span.SPAN_KIND_CLIENT)) == 1, "nothing was sent of the other one"


@pytest.mark.parametrize(
    ("given", "sample"), [(f"00-{TRACE}-{PARENT}-00", 1.0), ("", 0.0)], ids=["client", "share"]
)
async def test_what_is_not_sampled_is_not_sent_but_told_on(given: str, sample: float) -> None:
    """The backend must not begin a trace of its own where it was decided against one."""
    with collecting() as collector:
        _, got = await one(traced(collector, sample=sample), chat(given))

    assert collector.spans() == []
    assert ids(got["traceparent"])[2] in ("00", "02")


@pytest.mark.parametrize(
    "given",
    [
        f"00-{'0' * 32}-{PARENT}-01",
        f"ff-{TRACE}-{PARENT}-01",
        f"00-{TRACE}-{PARENT}",
        "nonsense",
    ],
)
async def test_a_broken_traceparent_begins_a_new_trace(given: str) -> None:
    """And what came with it says nothing any more: W3C Trace Context, 3.3."""
    with collecting() as collector:
        _, got = await one(traced(collector), chat(given, tracestate="vendor=1"))

    assert ids(got["traceparent"])[0] not in (TRACE, "0" * 32)
    assert "tracestate" not in got


async def test_tracestate_goes_on_with_its_trace() -> None:
    """It is other vendors'."""
    with collecting() as collector:
        _, got = await one(
            traced(collector), chat(f"00-{TRACE}-{PARENT}-01", tracestate="vendor=1,other=2")
        )

    assert got["tracestate"] == "vendor=1,other=2"


@contextmanager
def nobody() -> Iterator[Collector]:
    """A port that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield Collector(url=f"http://127.0.0.1:{listener.getsockname()[1]}/v1/traces")


@contextmanager
def refusing() -> Iterator[Collector]:
    with collecting() as collector:
        collector.status = 500
        yield collector


@pytest.mark.timeout(25)  # the SDK alone would wait for 30 s
@pytest.mark.parametrize("broken", [nobody, refusing])
async def test_a_collector_that_fails_fails_no_request(broken: Any) -> None:
    """Nor does it keep the process from ending: hence the time limit of this test."""
    with broken() as collector:
        answer, _ = await one(traced(collector), chat())

    assert answer.status == 200
    assert b"[DONE]" in answer.body


async def test_without_tracing_the_clients_trace_passes_as_it_came() -> None:
    """And nothing is said of a span, since there is none."""
    answer, got = await one(BASE, chat(f"00-{TRACE}-{PARENT}-01", tracestate="vendor=1"))

    assert got["traceparent"] == f"00-{TRACE}-{PARENT}-01"
    assert got["tracestate"] == "vendor=1"
    assert answer.header("traceresponse") is None


def test_without_tracing_nothing_of_opentelemetry_is_loaded() -> None:
    """It is an extra, and takes 0.2 s."""
    code = "import sys, prefold.proxy.serve; sys.exit('opentelemetry' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_an_endpoint_that_is_none_is_refused_by_name() -> None:
    """Before anything listens."""
    with pytest.raises(SettingsError, match=r"tracing\.endpoint"):
        load(None, overrides={"tracing": {"endpoint": "collector:4318"}}, env={})


async def test_workers_export_for_themselves_and_give_out_all_when_they_end() -> None:
    """The parent serves no client, and has no spans; a client's connections go to any worker."""
    with collecting() as collector:
        async with scripted(SOUND) as upstream:
            tables = {"tracing": {"endpoint": collector.url}}
            async with workers([upstream.url], tables) as fleet:
                for pid in fleet.pids():
                    answer = await (await fleet.connect(pid)).ask(chat())
                    assert answer.status == 200

    assert len(collector.of_kind(Span.SPAN_KIND_SERVER)) == 2
    assert len(collector.of_kind(Span.SPAN_KIND_CLIENT)) == 2


async def scraped(url: str, accept: str = "") -> RawAnswer:
    return await ask(url, post("/metrics", b"", {"Host": "127.0.0.1", "Accept": accept}, "GET"))


async def test_a_bucket_of_ttft_names_the_trace_of_its_latest_request() -> None:
    """To a scraper that asks for OpenMetrics; the text that others get has none."""
    with collecting() as collector:
        settings = traced(collector)
        async with (
            scripted(SOUND) as upstream,
            proxy_before([upstream.url], settings=settings) as proxy,
        ):
            for trace, flags in (("2" * 32, "01"), (TRACE, "01"), ("1" * 32, "00")):
                await ask(proxy.url, chat(f"00-{trace}-{PARENT}-{flags}"))
            plain = await scraped(proxy.admin_url)
            opened = await scraped(
                proxy.admin_url, "application/openmetrics-text;version=1.0.0,text/plain;q=0.5"
            )
    families = text_string_to_metric_families(opened.body.decode())  # type: ignore[no-untyped-call]
    shown = [
        sample.exemplar
        for family in families
        for sample in family.samples
        if sample.name == "prefold_ttft_seconds_bucket" and sample.exemplar is not None
    ]

    assert (opened.header("content-type") or "").startswith("application/openmetrics-text")
    assert {"trace_id": TRACE} in [one.labels for one in shown]
    assert {"trace_id": "1" * 32} not in [one.labels for one in shown]
    assert (plain.header("content-type") or "").startswith("text/plain")
    assert TRACE.encode() not in plain.body


async def test_without_traces_the_text_is_the_usual_one() -> None:
    """Whatever a scraper would accept."""
    async with scripted(SOUND) as upstream, proxy_before([upstream.url]) as proxy:
        told = await scraped(proxy.admin_url, "application/openmetrics-text")

    assert (told.header("content-type") or "").startswith("text/plain")
