"""From an event stream's messages to what a cache model is told. Pure: somebody else has sockets.

`sequence` says which messages may be believed, `changes` what they mean; here the two meet.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence as Frames
from enum import Enum
from typing import Protocol

from prefold.backends.kv_events import codec
from prefold.backends.kv_events.changes import Change, changes
from prefold.backends.kv_events.codec import EventBatch, MalformedEvents, Message
from prefold.backends.kv_events.sequence import Mark, Ruling, Sequence

log = logging.getLogger(__name__)


class Sink(Protocol):
    """Where the changes go, in order. Must not raise."""

    def apply(self, changes: list[Change]) -> None:
        """One batch."""

    def void(self, *, complete: bool) -> None:
        """All that was known is void. Complete: the engine holds nothing from before either, so
        what is told from here on is all there is."""

    def distrust(self, reason: str) -> None:
        """Something may be missing: nothing is to be claimed until `trust`."""

    def trust(self) -> None:
        """Nothing is missing since the last `void`."""


class Progress(Enum):
    """Of a replay."""

    MORE = "more"
    DONE = "done"  # nothing is missing any more
    AGAIN = "again"  # not what was asked for: ask once more, for what the engine has


class Follower:
    """Mutable; one for each stream, across its connections."""

    def __init__(self, sink: Sink, *, name: str, topic: str = "") -> None:
        """`name` is for logs. Messages of other topics are passed over; "" takes all."""
        self._sink = sink
        self._name = name
        self._topic = topic.encode()
        self._sequence = Sequence()
        self._rank: int | None = None
        self.batches = 0
        """That were applied."""
        self.unknown_events = 0
        self.malformed = 0
        sink.distrust("not connected to the event stream yet")

    def disconnected(self) -> None:
        """What happens meanwhile is missed."""
        log.warning("the event stream from %s is down", self._name)
        self._sink.distrust("the event stream is down")

    def live(self, frames: Frames[bytes]) -> bool:
        """A message of the stream. False: something before it is missing, and it was not looked
        at; it is to come again after a replay, or after `no_replay`, when this is True."""
        try:
            message = codec.message(frames)
            if self._topic and message.topic != self._topic:
                return True
            batch = self._decode(message)
        except MalformedEvents as error:
            self._malformed(error)
            return True
        ruling = self._sequence.live(Mark(message.sequence, batch.ts))
        if ruling is Ruling.ASK:
            return False
        self._obey(ruling, batch)
        self._sink.trust()
        return True

    def begin_replay(self) -> int:
        """The number to ask a replay from."""
        self._sink.distrust("events are missing, and a replay is awaited")
        return self._sequence.replay_from()

    def replayed(self, frames: Frames[bytes]) -> Progress:
        """A message of a replay. Raises MalformedEvents; then there is none to be had."""
        # The frames before the last two differ: the topic came to be among them.
        message = codec.message([b"", *frames[-2:]])
        if message.sequence < 0:
            ruling = self._sequence.replay_ended()
            if ruling is Ruling.JOIN:
                self._sink.void(complete=False)
        else:
            batch = self._decode(message)
            ruling = self._sequence.replayed(Mark(message.sequence, batch.ts))
            if ruling is not Ruling.ASK:
                self._obey(ruling, batch)
                return Progress.MORE
        if ruling is Ruling.ASK:
            self._sequence.forget()
            return Progress.AGAIN
        self._sink.trust()
        return Progress.DONE

    def no_replay(self) -> None:
        """What is missing is lost, and with it all that was known."""
        log.warning("events from %s are missing and cannot be had again", self._name)
        self._sequence.give_up()
        self._sink.void(complete=False)
        self._sink.trust()

    def _decode(self, message: Message) -> EventBatch:
        """Raises MalformedEvents, also for a batch of another data-parallel rank than the first:
        ranks have a cache, numbers and an endpoint each."""
        batch = codec.batch(message.payload)
        if batch.data_parallel_rank is not None:
            if self._rank is not None and self._rank != batch.data_parallel_rank:
                raise MalformedEvents("batches of several data-parallel ranks in one stream")
            self._rank = batch.data_parallel_rank
        return batch

    def _obey(self, ruling: Ruling, batch: EventBatch) -> None:
        if ruling is Ruling.BEGIN or ruling is Ruling.JOIN:
            self._sink.void(complete=ruling is Ruling.BEGIN)
        if ruling is not Ruling.SKIP:
            self.batches += 1
            self.unknown_events += batch.unknown_events
            self._sink.apply(changes(batch))

    def _malformed(self, error: MalformedEvents) -> None:
        """What it changed is not known: as if it were missing, and no replay would help."""
        self.malformed += 1
        log.warning("the event stream from %s sent %s", self._name, error)
        self._sequence.give_up()
        self._sink.void(complete=False)
        self._sink.distrust(f"the engine sent {error}")
