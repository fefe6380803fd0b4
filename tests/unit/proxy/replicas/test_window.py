"""How much of a stream is kept, against a list that forgets one entry at a time."""

from hypothesis import given
from hypothesis import strategies as st

from prefold.proxy.replicas.window import BEGIN, ENTRY_BYTES, PARTS, Window

ENTRIES = st.lists(st.tuples(st.integers(0, 500), st.integers(0, 3000)), max_size=200)
"""Milliseconds since the one before, and bytes."""


@given(ENTRIES)
def test_the_bound_is_that_of_the_entries_but_for_one_part(steps: list[tuple[int, int]]) -> None:
    """What is kept is within the bytes, but for one part; and nothing is given up that is young
    and would have had room, but for one part."""
    window = Window(max_bytes=20_000, ttl_s=5.0)
    entries: list[tuple[tuple[int, int], int]] = []
    now = 0
    for number, (step, size) in enumerate(steps):
        now += step
        entries.append(((now, number), size + ENTRY_BYTES))
        before = window.least
        window.add((now, number), size)
        kept = [one for one in entries if one[0] >= window.least]
        part = 20_000 // PARTS + 3000 + ENTRY_BYTES

        assert window.bytes == sum(size for _, size in kept)
        assert window.bytes <= 20_000 + part
        if number and window.least != before:
            newest_lost = max(entry for entry, _ in entries if entry < window.least)
            assert newest_lost[0] <= now - 5000 or window.bytes + part > 20_000


def test_old_entries_are_given_up_whatever_their_size() -> None:
    """By the clock of the newest."""
    window = Window(max_bytes=10**9, ttl_s=1.0)
    for second in range(10):
        window.add((second * 1000, 0), 10**8 // 2)

    assert window.least == (8000, 0)


def test_one_large_entry_is_kept() -> None:
    """A bound that nothing meets would empty the stream."""
    window = Window(max_bytes=100, ttl_s=1.0)
    window.add((1, 0), 10_000)
    assert window.least == (1, 0)
    window.add((2, 0), 10_000)
    assert window.least == (2, 0)


def test_numbers_to_hold_are_few() -> None:
    """However many entries there are."""
    window = Window(max_bytes=10**7, ttl_s=1e9)
    for number in range(50_000):
        window.add((number, 0), 10)

    assert len(window._parts) <= PARTS + 1
    window.clear()
    assert window.least == BEGIN
