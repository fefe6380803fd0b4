"""Any split of any stream: the client sees what it would have seen directly, or an error by rule.

The upstream's connection, the relay and the client's answer are the real ones, on transports that
only record; the model reads the whole body at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from multidict import CIMultiDict

from prefold.backends.errors import BackendError
from prefold.backends.http1 import Connection, Limits, Upstream
from prefold.proxy.chunks import ChunkMeter
from prefold.proxy.event_stream import EventStream
from prefold.proxy.http.answer import Answer
from prefold.proxy.protocol import CHUNKS
from tests.support.proxy import BASE, proxy_before
from tests.support.sse_model import Expected, expected_of_chat, streams, whole_events
from tests.support.upstream import END, Script, Step, chunk, head, scripted
from tests.wire.raw_client import BodyEnd, RawAnswer, ask, post, read_answer

PATIENT = replace(BASE, health=replace(BASE.health, failures_to_eject=1000))
ENDINGS = st.sampled_from(["clean", "fin", "reset"])
CUTS = st.lists(st.integers(1, 2000), max_size=12)
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


class Recorder(asyncio.Transport):
    """Keeps what is written, and whether it was closed."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.written += b"".join(list_of_data)

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


def pieces(body: bytes, cuts: Sequence[int]) -> list[bytes]:
    bounds = sorted({0, *(cut for cut in cuts if cut < len(body)), len(body)})
    return [body[start:end] for start, end in pairwise(bounds)]


async def relayed(reads: Sequence[bytes], end: str, *, early: int) -> RawAnswer | None:
    """What the client is sent; None if no event came. The first `early` reads come before the
    answer begins."""
    theirs, ours = Recorder(), Recorder()
    connection = Connection(
        on_idle=lambda _: None, on_unused=lambda _: None, on_lost=lambda _: None
    )
    connection.connection_made(theirs)
    upstream = Upstream(connection, Limits(), head_only=False)
    upstream.sent = True
    connection.data_received(HEAD)
    await upstream.answered()
    stream = EventStream(upstream, ChunkMeter(), clock=lambda: 0.0, on_first_token=lambda: None)
    relaying = None
    for number, read in enumerate(reads):
        if number == early:
            relaying = asyncio.ensure_future(_relay(stream, ours))
            await asyncio.sleep(0)
        if not theirs.closed:
            connection.data_received(read)
        await asyncio.sleep(0)
    if not connection.lost and (end != "clean" or theirs.closed):
        connection.connection_lost(ConnectionResetError() if end == "reset" else None)
    began = await (relaying if relaying is not None else _relay(stream, ours))
    upstream.close()
    return await _parsed(ours) if began else None


async def _relay(stream: EventStream, transport: Recorder) -> bool:
    try:
        await stream.first()
    except BackendError:
        return False
    out = Answer(transport, lambda: "Date: -", http_1_0=False, head_only=False, close=False)
    out.begin(200, CIMultiDict({"Content-Type": "text/event-stream"}), None)
    await stream.relay(out, CHUNKS, 60.0)
    return True


async def _parsed(transport: Recorder) -> RawAnswer:
    reader = asyncio.StreamReader()
    reader.feed_data(transport.written)
    reader.feed_eof()
    return await read_answer(reader)


def hold(answer: RawAnswer | None, expected: Expected) -> None:
    """The answer against the model's: equal bytes and a proper end, or whole events, one error
    event and an abort."""
    if expected.body is None or answer is None:
        assert (answer is None) == (expected.body is None)
        return
    if not expected.cut:
        assert (answer.body, answer.end) == (expected.body, BodyEnd.WHOLE)
        return
    assert answer.body[: len(expected.body)] == expected.body
    told = answer.body[len(expected.body) :]
    assert told.startswith(b'data: {"error":{')
    assert whole_events(told) == [told]
    assert answer.end is BodyEnd.ABORTED


@settings(max_examples=400, deadline=None)
@given(stream=streams(), chunk_cuts=CUTS, read_cuts=CUTS, end=ENDINGS, early=st.integers(0, 4))
def test_any_split_is_relayed_as_the_whole_is_read(
    stream: bytes, chunk_cuts: list[int], read_cuts: list[int], end: str, early: int
) -> None:
    """Wherever chunks and reads end, before or after the answer began, and however it ends."""
    framed = b"".join(chunk(piece) for piece in pieces(stream, chunk_cuts) if piece)
    framed += END if end == "clean" else b""
    answer = asyncio.run(relayed(pieces(framed, read_cuts), end, early=early))

    hold(answer, expected_of_chat(stream, clean=end == "clean"))


@pytest.mark.parametrize("end", ["fin", "reset"])
def test_a_done_that_only_the_end_shows_to_be_whole_ends_the_answer(end: str) -> None:
    """Its blank line is a lone CR, behind which half of a CRLF may be missing; an error event came
    before it."""
    stream = b'data: {"error":{"message":"The kettle broke."}}\r\rdata: [DONE]\r\r'
    answer = asyncio.run(relayed([chunk(stream)], end, early=0))

    assert answer is not None
    assert (answer.body, answer.end) == (stream, BodyEnd.WHOLE)


@settings(max_examples=40, deadline=None)
@given(stream=streams(), cuts=CUTS)
def test_a_split_does_not_matter(stream: bytes, cuts: list[int]) -> None:
    """Byte by byte, in one piece, or anyhow: the same answer."""
    framed = chunk(stream) + END if stream else END
    splits = [[framed], [framed[n : n + 1] for n in range(len(framed))], pieces(framed, cuts)]
    answers = [asyncio.run(relayed(split, "clean", early=0)) for split in splits]

    assert answers[0] == answers[1] == answers[2]


def _script(stream: bytes, cuts: Sequence[int], end: str) -> Script:
    last: dict[str, bytes | Step] = {"clean": END, "fin": Step.CLOSE, "reset": Step.RESET}
    return [head(), *(chunk(piece) for piece in pieces(stream, cuts) if piece), last[end]]


@settings(max_examples=3, deadline=None)
@given(st.lists(st.tuples(streams(), CUTS, ENDINGS), min_size=40, max_size=40))
def test_on_sockets(examples: list[tuple[bytes, list[int], str]]) -> None:
    """A few dozen of them through the whole proxy."""
    asyncio.run(_through_the_proxy(examples))


async def _through_the_proxy(examples: list[tuple[bytes, list[int], str]]) -> None:
    body = b'{"model":"m","messages":[],"stream":true,"stream_options":{"include_usage":true}}'
    async with scripted([]) as upstream, proxy_before([upstream.url], settings=PATIENT) as server:
        for stream, cuts, end in examples:
            upstream.received.clear()
            upstream.scripts = [_script(stream, cuts, end)]
            answer = await ask(server.url, post("/v1/chat/completions", body))
            expected = expected_of_chat(stream, clean=end == "clean")
            if expected.body is None:
                assert answer.status == 502
            else:
                assert answer.status == 200
                hold(answer, expected)
