"""Cutting a byte stream into whole events."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefold.proxy.sse import EventSplitter, EventTooLong, event_data


def split(*chunks: bytes) -> list[bytes]:
    splitter = EventSplitter()
    events = [event for chunk in chunks for event in splitter.feed(chunk)]
    last = splitter.finish()
    return events if last is None else [*events, last]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_all_three_line_ends_end_events(end: bytes) -> None:
    """LF, CRLF and CR, each doubled, are event boundaries."""
    events = [b"data: a" + end * 2, b": note" + end + b"data: b" + end * 2]

    assert split(b"".join(events)) == events


def test_a_crlf_split_over_two_reads_is_one_line_end() -> None:
    """CR at the end of one read and LF at the start of the next do not end an event."""
    assert split(b"data: a\r", b"\ndata: b\r", b"\n\r", b"\n") == [b"data: a\r\ndata: b\r\n\r\n"]


def test_an_incomplete_event_is_held_back_and_dropped_at_the_end() -> None:
    """What has no blank line is not an event."""
    splitter = EventSplitter()

    assert splitter.feed(b"data: a\n\ndata: b\n") == [b"data: a\n\n"]
    assert splitter.tail == b"data: b\n"
    assert splitter.finish() is None


def test_an_event_over_the_limit_is_refused() -> None:
    """An upstream cannot make the proxy hold an endless event."""
    splitter = EventSplitter(max_event_bytes=10)

    with pytest.raises(EventTooLong):
        splitter.feed(b"data: 0123456789")


def test_an_event_of_megabytes_in_small_reads_is_joined_once() -> None:
    """Not at each read: that is quadratic."""
    event = b"data: " + b"x" * 6_000_000 + b"\n\n"
    pieces = [event[start : start + 200] for start in range(0, len(event), 200)]

    assert split(*pieces) == [event]


@pytest.mark.parametrize(
    ("event", "data"),
    [
        (b"data: x\n\n", b"x"),
        (b"data:x\n\n", b"x"),
        (b"data:  x\n\n", b" x"),
        (b"data: x\r\n\r\n", b"x"),
        (b"id: 7\ndata: x\n\n", b"x"),
        (b"data: x\ndata: y\n\n", b"x\ny"),
        (b"data:\n\n", b""),
        (b": comment\n\n", None),
        (b"event: ping\n\n", None),
        (b"\ndata: x\n\n", b"x"),
        (b"metadata: x\n\n", None),
        (b"\xef\xbb\xbfdata: x\n\n", b"x"),
    ],
)
def test_the_data_of_an_event(event: bytes, data: bytes | None) -> None:
    """One leading space is dropped, several data lines are joined, other fields ignored."""
    assert event_data(event) == data


@given(st.lists(st.sampled_from(["a", "\n", "\r", "\r\n", "\n\n", "data: x"]), max_size=8))
def test_whole_events_are_cut_as_byte_by_byte(pieces: list[str]) -> None:
    """The short way for the usual form of a read changes nothing."""
    raw = "".join(pieces).encode()

    assert split(raw) == split(*(bytes([byte]) for byte in raw))
