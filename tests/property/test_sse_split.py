"""Any split of any stream gives the same events."""

import re
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from prefold.proxy.sse import EventSplitter

LINE_ENDS = st.sampled_from([b"\n", b"\r\n", b"\r"])
LINES = st.sampled_from([b"data: x", b"data:", b": c", b"id: 1", b"event: e", b"\xef\xbb\xbf"])
STREAMS = st.lists(st.one_of(LINES, LINE_ENDS), max_size=30).map(b"".join)


def naive(stream: bytes) -> list[bytes]:
    """Lines first, then a blank line after a line ends an event, bytes kept."""
    lines = re.findall(rb"[^\r\n]*(?:\r\n|\n|\r)", stream)
    events, event = [], b""
    for line in lines:
        ends_event = line.strip(b"\r\n") == b"" and event != b""
        event += line
        if ends_event:
            events.append(event)
            event = b""
    return events


@given(stream=STREAMS, cuts=st.lists(st.integers(0, 200), max_size=10))
def test_events_do_not_depend_on_where_reads_end(stream: bytes, cuts: list[int]) -> None:
    """The splitter agrees with a naive reader of lines, however the bytes arrive."""
    bounds = sorted({0, *(cut for cut in cuts if cut < len(stream)), len(stream)})
    splitter = EventSplitter()
    events = []
    for start, end in pairwise(bounds):
        events += splitter.feed(stream[start:end])
    tail = splitter.tail
    last = splitter.finish()

    assert b"".join(events) + tail == stream
    assert [*events, *([last] if last is not None else [])] == naive(stream)
