"""The benchmark itself, in its smallest form: that it counts right, and never that it is fast."""

from __future__ import annotations

import io
import json
from itertools import islice
from pathlib import Path

import pytest
from rich.console import Console

from tests.benchmark.wire.__main__ import compare
from tests.benchmark.wire.answers import Answer, WrongAnswer, check
from tests.benchmark.wire.bodies import bodies, messages
from tests.benchmark.wire.plan import tiny
from tests.benchmark.wire.processes import Cores, ProcessError
from tests.benchmark.wire.scene import (
    CONTENT,
    LAST_CHUNK,
    STREAM_HEAD,
    Scene,
    http_chunk,
    last_events,
    text_event,
    whole_answer,
)
from tests.support.requirements import skip_or_fail


@pytest.fixture(scope="module")
def cores() -> Cores:
    try:
        return Cores.of_this_machine()
    except ProcessError as error:
        skip_or_fail(str(error))


def streamed(chunks: int) -> bytes:
    end = http_chunk(last_events(Scene(chunks=chunks))) + LAST_CHUNK
    return STREAM_HEAD + http_chunk(text_event()) * chunks + end


def test_prefold_is_measured_beside_the_stub_itself(model_path: Path, cores: Cores) -> None:
    """Every row has its figures, from as many right answers as were asked for, exact tokens and
    all; no figure is judged."""
    plan = tiny()
    written = io.StringIO()
    report = compare(["prefold"], model_path, cores, plan, Console(file=written, width=140))
    rows = {(row["peer"], row["prompt"], row["mode"]): row for row in report["rows"]}
    assert len(rows) == len(report["rows"]) == 8
    for (peer, _, mode), row in rows.items():
        assert row["error"] is None
        assert row["ttft_requests"] == 12
        assert 0 < row["ttft_ms"]["p50"] <= row["ttft_ms"]["p99"]
        if peer == "direct":
            assert row["cpu_us_per_request"] is None
            assert row["added_ttft_ms"] == {"p50": 0.0, "p99": 0.0}
            continue
        assert row["cpu_us_per_request"] > 0
        assert row["rss_mb"] > 0
        if mode == "stream":
            assert all(cost > 0 for cost in row["cpu_us_per_request_by_kind"].values())
            assert isinstance(row["cpu_us_per_chunk"], float)
    assert json.loads(json.dumps(report))["plan"]["rounds"] == 1
    assert "CPU us per request" in written.getvalue()


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("size", [1024, 16 * 1024, 128 * 1024])
def test_bodies_have_the_size_and_share_what_they_should(size: int, shared: bool) -> None:
    """A body is JSON of exactly its size; the question is always new, the system prompt only where
    prompts are unique, whatever the seed."""
    made = [
        body
        for seed in ("a", "b")
        for body in islice(bodies(size=size, shared=shared, stream=True, seed=seed), 3)
    ]
    assert {len(body) for body in made} == {size}
    systems, questions = zip(*(messages(body) for body in made), strict=True)
    assert len({question["content"] for question in questions}) == 6
    assert len({system["content"] for system in systems}) == (1 if shared else 6)


@pytest.mark.parametrize("step", [1, 7, 1000, 100_000])
def test_an_answer_ends_where_it_ends(step: int) -> None:
    """However its bytes are cut, a stream is complete with its last byte, and not before; so is a
    whole answer; and the first event is clocked at the read that brings its mark."""
    for raw, chunks in ((streamed(5), 5), (whole_answer(Scene(chunks=0)), 0)):
        answer = Answer(CONTENT, bytearray())
        cuts = range(0, len(raw), step)
        done = [answer.take(raw[at : at + step], float(at)) for at in cuts]
        assert done == [False] * (len(cuts) - 1) + [True]
        assert answer.first_at == (raw.index(CONTENT) + len(CONTENT) - 1) // step * step
        check(answer.raw, chunks=chunks, needs=b"200")


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (streamed(4), "4 events"),
        (streamed(5).replace(b"data: [DONE]\n\n", b"data: [DONE?\n\n"), "no end"),
        (streamed(5).removesuffix(LAST_CHUNK), "no end"),
        (streamed(5).replace(b"prompt_tokens_details", b"prompt_tokens_detailz"), "no usage"),
        (streamed(5).replace(b"text/event-stream", b"text/event-dreams"), "no text/event-stream"),
    ],
)
def test_a_wrong_answer_is_found(raw: bytes, reason: str) -> None:
    """Too few events, a missing end, missing usage and a missing header are errors, so that they
    cannot count as speed."""
    with pytest.raises(WrongAnswer, match=reason):
        check(raw, chunks=5, needs=b"text/event-stream")


def test_an_error_status_is_found_at_once() -> None:
    """An answer with another status than 200 is not waited for."""
    answer = Answer(CONTENT, bytearray())
    with pytest.raises(WrongAnswer, match="status 503"):
        answer.take(b"HTTP/1.1 503 X\r\n", 0.0)
