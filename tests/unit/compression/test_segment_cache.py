"""The cache of compressed segments, and that each text is compressed once."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefold.compression.segment_cache import ENTRY_BYTES, Flights, Kept, SegmentCache, kept_of
from prefold.compression.worker.pool import Job, Unavailable

TEXT = "one two three four"
SPANS = (0, 3, 7, 13)


def kept(chars: int) -> Kept:
    return Kept(array("I", [0, chars]), chars)


def test_what_is_kept_is_made_of_the_text() -> None:
    """Offsets only are stored."""
    found = kept_of(SPANS, len(TEXT))
    assert found is not None
    assert found.of(TEXT) == "one three"
    assert found.chars == 9


@pytest.mark.parametrize(
    "spans", [(), (0,), (3, 0), (0, 3, 2, 5), (0, 19), (-1, 4), (0, 3, 3, 3), (4, 4)]
)
def test_what_is_no_subsequence_is_nothing(spans: Sequence[int]) -> None:
    """Whatever a compressor answers."""
    assert kept_of(spans, len(TEXT)) is None


@given(st.text(min_size=1), st.lists(st.integers(-2, 20), max_size=8))
def test_an_accepted_answer_is_a_subsequence(text: str, spans: list[int]) -> None:
    """And never more than the text."""
    found = kept_of(spans, len(text))
    if found is not None:
        rest = iter(text)
        assert all(character in rest for character in found.of(text))
        assert found.chars == len(found.of(text)) <= len(text)


def test_the_least_used_goes_first() -> None:
    """Bytes are bounded; hits and misses are counted."""
    cache = SegmentCache(3 * (ENTRY_BYTES + 8))
    for name in (b"a", b"b", b"c"):
        cache.put(name, kept(1))
    assert cache.get(b"a") == kept(1)
    cache.put(b"d", kept(1))
    assert cache.peek(b"b") is None
    assert cache.get(b"b") is None
    assert (len(cache), cache.hits, cache.misses) == (3, 1, 1)
    cache.put(b"e", Kept(array("I", range(1000)), 1))
    assert (len(cache), cache.bytes) == (0, 0)


class Submitted:
    """Stands for the pool."""

    def __init__(self, room: int = 10) -> None:
        self.jobs: list[Job] = []
        self._room = room

    def __call__(self, text: str, rate: float) -> Job:
        if len(self.jobs) == self._room:
            raise Unavailable("full")
        job = Job(text, rate, asyncio.get_running_loop().create_future())
        self.jobs.append(job)
        return job


async def test_a_text_is_compressed_once_for_all_who_wait() -> None:
    """And is there for those who come later."""
    cache, submitted = SegmentCache(10_000), Submitted()
    flights = Flights(cache, submitted)
    waiting = [asyncio.create_task(flights.wait([(b"k", TEXT)], 0.5, 10.0)) for _ in range(3)]
    await asyncio.sleep(0)
    [job] = submitted.jobs
    job.spans.set_result(SPANS)
    await asyncio.gather(*waiting)
    assert cache.get(b"k") == kept_of(SPANS, len(TEXT))
    assert (len(flights), flights.shared) == (0, 2)


async def test_what_nobody_waits_for_is_given_up() -> None:
    """When the last one leaves, or its time is over; but not what is wanted for later."""
    cache, submitted = SegmentCache(10_000), Submitted()
    flights = Flights(cache, submitted)
    one, two = [asyncio.create_task(flights.wait([(b"k", TEXT)], 0.5, 10.0)) for _ in range(2)]
    await asyncio.sleep(0)
    one.cancel()
    await asyncio.gather(one, return_exceptions=True)
    [job] = submitted.jobs
    assert not job.spans.cancelled()
    two.cancel()
    await asyncio.gather(two, return_exceptions=True)
    assert job.spans.cancelled()

    await flights.wait([(b"late", TEXT)], 0.5, 0.0)
    assert submitted.jobs[1].spans.cancelled()
    again = asyncio.create_task(flights.wait([(b"late", TEXT)], 0.5, 10.0))
    await asyncio.sleep(0)
    submitted.jobs[2].spans.set_result(SPANS)  # what was given up is begun anew
    await again
    assert cache.peek(b"late") is not None

    flights.start(b"later", TEXT, 0.5)
    await flights.wait([(b"later", TEXT)], 0.5, 0.0)
    assert not submitted.jobs[3].spans.done()
    submitted.jobs[3].spans.set_result(SPANS)
    await asyncio.sleep(0)
    assert cache.peek(b"later") is not None


async def test_no_room_and_no_answer_are_no_error() -> None:
    """The text goes out as it came."""
    cache, submitted = SegmentCache(10_000), Submitted(room=1)
    flights = Flights(cache, submitted)
    waiting = asyncio.create_task(flights.wait([(b"a", TEXT), (b"b", TEXT)], 0.5, 10.0))
    await asyncio.sleep(0)
    submitted.jobs[0].spans.set_exception(Unavailable("it broke"))
    await waiting
    flights.start(b"c", TEXT, 0.5)
    assert (len(cache), len(flights)) == (0, 0)


async def test_what_came_is_told_to_whoever_wants_it() -> None:
    """With the length of its text, once, and only what may be used; what it took is told to the one
    who asked first."""
    cache, submitted = SegmentCache(10_000), Submitted()
    told: list[tuple[bytes, Kept, int]] = []
    first: list[float] = []
    second: list[float] = []
    flights = Flights(cache, submitted, lambda *one: told.append(one))
    for spent in (first, second):
        flights.start(b"k", TEXT, 0.5, spent.append)
    assert b"k" in flights
    flights.start(b"bad", TEXT, 0.5)
    for job, spans in zip(submitted.jobs, (SPANS, (3, 0)), strict=True):
        if job.spent is not None:
            job.spent(0.25)
        job.spans.set_result(spans)
    await asyncio.sleep(0)
    assert told == [(b"k", kept_of(SPANS, len(TEXT)), len(TEXT))]
    assert (first, second) == ([0.25], [])
    assert b"k" not in flights
