"""Numbers of an event stream: gaps, replays, restarts and duplicates."""

from __future__ import annotations

from prefold.backends.kv_events.sequence import Mark, Ruling, Sequence


def at(number: int, life: int = 0) -> Mark:
    """A batch of an engine's nth life; each takes a second, and each life a thousand."""
    return Mark(number, life * 1000.0 + number)


def following(last: int, life: int = 0) -> Sequence:
    """One that has seen all up to a number."""
    sequence = Sequence()
    sequence.replay_from()
    for number in range(last + 1):
        sequence.replayed(at(number, life))
    assert sequence.replay_ended() is Ruling.SKIP
    return sequence


def test_a_stream_from_its_start_is_complete() -> None:
    """Number 0 begins it, and each next one is applied."""
    sequence = Sequence()
    assert sequence.live(at(0)) is Ruling.BEGIN
    assert sequence.live(at(1)) is Ruling.APPLY


def test_a_late_joiner_asks_for_what_came_before() -> None:
    """The replay begins with 0: the history is complete, and the live message is in it."""
    sequence = Sequence()
    assert sequence.live(at(2)) is Ruling.ASK
    assert sequence.replay_from() == 0
    assert sequence.replayed(at(0)) is Ruling.BEGIN
    assert sequence.replayed(at(1)) is Ruling.APPLY
    assert sequence.replayed(at(2)) is Ruling.APPLY
    assert sequence.replay_ended() is Ruling.SKIP
    assert sequence.live(at(2)) is Ruling.SKIP
    assert sequence.live(at(3)) is Ruling.APPLY


def test_a_replay_that_goes_not_back_to_the_start_is_only_joined() -> None:
    """The publisher keeps the latest batches only."""
    sequence = Sequence()
    sequence.replay_from()
    assert sequence.replayed(at(700)) is Ruling.JOIN
    assert sequence.replayed(at(701)) is Ruling.APPLY


def test_an_empty_replay_leaves_it_to_the_first_message() -> None:
    """Number 0: nothing was published before. Another: the publisher keeps no messages."""
    sequence = Sequence()
    sequence.replay_from()
    assert sequence.replay_ended() is Ruling.JOIN
    assert sequence.live(at(3)) is Ruling.ASK
    assert sequence.live(at(0)) is Ruling.BEGIN


def test_a_gap_is_filled_by_a_replay_that_begins_with_the_last_known_batch() -> None:
    """That it is the same one proves that the engine is."""
    sequence = following(5)
    assert sequence.live(at(8)) is Ruling.ASK
    assert sequence.replay_from() == 5
    assert sequence.replayed(at(5)) is Ruling.SKIP
    for number in (6, 7, 8):
        assert sequence.replayed(at(number)) is Ruling.APPLY
    assert sequence.replay_ended() is Ruling.SKIP
    assert sequence.live(at(8)) is Ruling.SKIP
    assert sequence.live(at(9)) is Ruling.APPLY


def test_a_gap_that_the_replay_does_not_reach_asks_again_from_the_start() -> None:
    """What is left there begins a history of its own."""
    sequence = following(5)
    assert sequence.live(at(900)) is Ruling.ASK
    sequence.replay_from()
    assert sequence.replayed(at(100)) is Ruling.ASK
    sequence.forget()
    assert sequence.replay_from() == 0
    assert sequence.replayed(at(100)) is Ruling.JOIN


def test_without_a_replay_the_next_message_begins_a_history() -> None:
    """It is joined and not complete; if it is the engine's first, it is complete after all."""
    sequence = following(5)
    assert sequence.live(at(8)) is Ruling.ASK
    sequence.give_up()
    assert sequence.live(at(8)) is Ruling.JOIN
    assert sequence.live(at(9)) is Ruling.APPLY
    sequence.give_up()
    assert sequence.live(at(0, life=1)) is Ruling.BEGIN


def test_a_number_that_goes_back_is_a_restart() -> None:
    """Its batch is newer than the last known one, which no duplicate is."""
    sequence = following(5)
    assert sequence.live(at(3)) is Ruling.SKIP
    assert sequence.live(at(3, life=1)) is Ruling.ASK
    sequence.replay_from()
    assert sequence.replay_ended() is Ruling.ASK
    sequence.forget()
    assert sequence.replay_from() == 0
    assert sequence.replayed(at(0, life=1)) is Ruling.BEGIN


def test_a_restarted_engine_that_is_further_than_before_is_told() -> None:
    """The number fits, but the batch that it had is another."""
    sequence = following(5)
    assert sequence.replay_from() == 5
    assert sequence.replayed(at(5, life=1)) is Ruling.ASK


def test_a_restarted_engine_that_has_published_nothing_is_told() -> None:
    """An empty reply does not mean that nothing was missed: the last known batch is missing."""
    sequence = following(5)
    sequence.replay_from()
    assert sequence.replay_ended() is Ruling.ASK
    sequence.forget()
    sequence.replay_from()
    assert sequence.replay_ended() is Ruling.JOIN


def test_a_hole_in_a_replay_is_no_history() -> None:
    """Whatever the reason, it is not what was asked for."""
    sequence = following(5)
    sequence.replay_from()
    sequence.replayed(at(5))
    assert sequence.replayed(at(7)) is Ruling.ASK
