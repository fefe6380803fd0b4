"""Outbox and inbox: what one replica puts, others hear in order, whatever is lost between them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from prefold.prefix_index.deltas import Finished, Placed, placed
from prefold.prefix_index.prefix import Prefix
from prefold.proxy.replicas.inbox import FORGET_S, Inbox
from prefold.proxy.replicas.messages import Loads, Stream, Told, encode
from prefold.proxy.replicas.outbox import ENTRY_BYTES, Entry, Outbox
from prefold.proxy.replicas.seal import Seal
from prefold.proxy.workers.messages import Forgot, Pinned

SECRET = b"a secret of some length"


class Listener:
    """A Receiver that writes down what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[int, Told]] = []
        self.losses: list[int] = []

    def heard(self, source: int, messages: Sequence[Told], now: float) -> None:
        self.told += [(source, message) for message in messages]

    def lost(self, source: int, now: float) -> None:
        self.losses.append(source)


def long_one(number: int, tokens: int) -> Placed:
    prefix = Prefix.of_tokens(np.arange(tokens, dtype=np.uint32), seed=number)
    return placed("b", number, prefix, 16)


def put(outbox: Outbox, *messages: Told) -> None:
    for message in messages:
        outbox.put(lambda message=message: message)  # type: ignore[misc]
    outbox.gather()


def deliver(inbox: Inbox, entries: Sequence[Entry], now: float = 0.0) -> None:
    for entry in entries:
        inbox.take(entry.stream, entry.content, now)


def test_what_is_put_is_heard_in_its_order() -> None:
    """Streams are apart; within each of them nothing is out of turn."""
    outbox, listener = Outbox(Seal(SECRET), 10**6), Listener()
    deltas: list[Told] = [long_one(1, 100), Finished("b", 1, True), Forgot()]
    pin = Pinned(b"0" * 16, "b")
    put(outbox, *deltas, pin)
    deliver(Inbox(Seal(SECRET), listener, 0.0), outbox.first(10**6))

    assert [message for _, message in listener.told if message != pin] == deltas
    assert (listener.told[0][0], pin) in listener.told
    assert listener.losses == []


def test_a_message_that_came_to_nothing_is_not_sent() -> None:
    """Of a backend that was removed meanwhile, say."""
    outbox = Outbox(Seal(SECRET), 10**6)
    outbox.put(lambda: None)
    outbox.gather()

    assert outbox.first(10**6) == []


def test_long_prompts_make_entries_of_their_own() -> None:
    """What is taken in at one go is bounded."""
    outbox = Outbox(Seal(SECRET), 10**8)
    put(outbox, *(long_one(number, 16 * 3000) for number in range(20)))

    sizes = [len(entry.content) for entry in outbox.first(10**8)]
    assert len(sizes) == 7
    assert max(sizes) < ENTRY_BYTES + 8 * 3000 + 1000


@given(st.lists(st.integers(1, 40), min_size=1, max_size=60), st.integers(1000, 20_000))
def test_the_oldest_is_dropped_and_the_gap_is_noticed(sizes: list[int], room: int) -> None:
    """Bytes are bounded but for one entry, every message is either heard or counted, the newest is
    heard, and whoever heard something before a gap is told that something is missing."""
    outbox, listener = Outbox(Seal(SECRET), room), Listener()
    inbox = Inbox(Seal(SECRET), listener, 0.0)
    first = long_one(0, 16)
    put(outbox, first)
    sent = outbox.first(10**9)
    deliver(inbox, sent)
    outbox.done(sent)
    for number, blocks in enumerate(sizes, 1):
        put(outbox, long_one(number, 16 * blocks))
    entries = outbox.first(10**9)
    deliver(inbox, entries)

    assert outbox.bytes <= room or len(entries) == 1
    assert outbox.dropped + len(listener.told) == len(sizes) + 1
    assert listener.told[-1][1] == long_one(len(sizes), 16 * sizes[-1])
    assert bool(listener.losses) == bool(outbox.dropped)


def test_what_was_sent_leaves_even_if_some_of_it_was_dropped_meanwhile() -> None:
    """A batch is under way while more comes in."""
    outbox = Outbox(Seal(SECRET), 3000)
    for number in range(3):
        put(outbox, long_one(number, 16 * 100))
    under_way = outbox.first(10**6)
    for number in range(3, 5):
        put(outbox, long_one(number, 16 * 100))
    outbox.done(under_way)

    assert [entry.number for entry in outbox.first(10**6)] == [4, 5]
    assert outbox.bytes == sum(len(entry.content) for entry in outbox.first(10**6))


def test_an_entry_that_comes_twice_is_heard_once() -> None:
    """A write whose answer was late is repeated."""
    outbox, listener = Outbox(Seal(SECRET), 10**6), Listener()
    inbox = Inbox(Seal(SECRET), listener, 0.0)
    put(outbox, Finished("b", 1, True))
    put(outbox, Finished("b", 2, True))
    entries = outbox.first(10**6)
    deliver(inbox, [*entries, *entries])

    assert [message for _, message in listener.told] == [
        Finished("b", 1, True),
        Finished("b", 2, True),
    ]
    assert listener.losses == []


def test_who_hears_itself_learns_the_way_it_took_and_nothing_else() -> None:
    """The lag is that of its own entries: no two machines' clocks are compared."""
    seal, listener = Seal(SECRET), Listener()
    outbox, inbox = Outbox(seal, 10**6), Inbox(seal, listener, 0.0)
    put(outbox, Finished("b", 1, True))
    [entry] = outbox.first(10**6)
    inbox.sent(entry.stream, entry.number, 1.0)
    assert inbox.lag_s is None
    inbox.take(entry.stream, entry.content, 1.25)

    assert inbox.lag_s == 0.25
    assert (listener.told, inbox.received) == ([], 0)


def test_what_another_secret_sealed_is_counted_and_not_heard() -> None:
    """So is another version of the format."""
    listener = Listener()
    inbox = Inbox(Seal(SECRET), listener, 0.0)
    other = Outbox(Seal(b"another secret"), 10**6)
    put(other, Finished("b", 1, True))
    deliver(inbox, other.first(10**6))
    seal = Seal(SECRET)
    newer = encode([Finished("b", 1, True)]).replace(b"\x01", b"\x02", 1)
    inbox.take(Stream.DELTAS, seal.close(Stream.DELTAS, 1, newer), 0.0)
    inbox.take(Stream.DELTAS, seal.close(Stream.DELTAS, 2, b"\xc1"), 0.0)

    assert (inbox.refused, listener.told) == (3, [])


def test_a_silent_replica_is_forgotten_but_not_for_a_silent_redis() -> None:
    """What it had under way it will not finish. Time in which nobody could be heard is not
    silence."""
    outbox, listener = Outbox(Seal(SECRET), 10**6), Listener()
    inbox = Inbox(Seal(SECRET), listener, 0.0)
    put(outbox, Loads(()))
    deliver(inbox, outbox.first(10**6), now=0.0)
    inbox.alive(100.0)
    for second in range(int(FORGET_S)):
        inbox.alive(101.0 + second)
        assert listener.losses == []
    inbox.alive(101.0 + FORGET_S)
    assert listener.losses == [listener.told[0][0]]


def test_sources_are_told_apart() -> None:
    """Two replicas number their placements each for itself."""
    listener = Listener()
    inbox = Inbox(Seal(SECRET), listener, 0.0)
    for _ in range(2):
        outbox = Outbox(Seal(SECRET), 10**6)
        put(outbox, Finished("b", 1, True))
        deliver(inbox, outbox.first(10**6))

    assert len({source for source, _ in listener.told}) == 2
