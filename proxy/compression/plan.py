"""One request's texts that may be compressed: which of them are to be, since that was decided in an
earlier turn, and about which the decision is open. Pure but for the caches that it is given.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import msgspec

from prefold.compression.compressor import Passage, cache_key
from prefold.compression.segment_cache import Kept, SegmentCache
from prefold.proxy.compression.forms import Forms, message_keys
from prefold.proxy.compression.segments import Turn
from prefold.proxy.compression.texts import Segment, without


class Piece(msgspec.Struct, frozen=True, eq=False):
    """A text under the key of its compressed form; `turn` is the number of its message."""

    segment: Segment
    key: bytes
    turn: int
    fixed: bool
    """It was compressed in an earlier turn, so it is again."""
    rate: float

    @property
    def at(self) -> tuple[int, int]:
        """Where it begins in the body, for an order."""
        return self.segment.string.start, self.segment.offset


class Plan:
    """Mutable: what was compressed meanwhile is looked up again."""

    def __init__(
        self,
        text: str,
        turns: Sequence[Turn],
        forms: Forms,
        cache: SegmentCache,
        *,
        compressor: str,
        rates: Sequence[float],
        min_chars: int,
        secret: bytes,
    ) -> None:
        """`compressor`: its digest. `rates`: the one for what is new, and those that were before
        it, for what was sent then. Of new texts, those shorter than `min_chars` stay. `secret`
        parts what must not be told from each other."""
        self.text = text
        self._forms = forms
        self._cache = cache
        self._messages = list(message_keys(turns, secret))
        self._new: list[int] = []
        """Turns of which it is to be remembered how they are sent."""
        self.pieces: list[Piece] = []
        """Those about which something is to be done, in the order of the body."""
        self.kept: dict[bytes, Kept] = {}
        for number, turn in enumerate(turns):
            if not turn.notable:
                continue
            sent = forms.recall(self._messages[number])
            if sent is None:
                self._new.append(number)
            for segment in turn.segments if sent is None or sent else ():
                if sent is None and len(segment.text) < min_chars:
                    continue
                for rate in rates[:1] if sent is None else rates:
                    passage = Passage(text=segment.text, rate=rate)
                    key = cache_key(compressor, passage, key=secret)
                    if sent is None or key in sent:
                        self.pieces.append(Piece(segment, key, number, sent is not None, rate))
                        break
        self.pieces.sort(key=lambda piece: piece.at)
        for key in {piece.key for piece in self.pieces}:
            if (found := cache.get(key)) is not None:
                self.kept[key] = found

    def look_again(self) -> None:
        for key in {piece.key for piece in self.pieces} - self.kept.keys():
            if (found := self._cache.peek(key)) is not None:
                self.kept[key] = found

    def missing(self, *, fixed_only: bool = False) -> list[Piece]:
        """Not compressed yet."""
        return [
            piece
            for piece in self.pieces
            if piece.key not in self.kept and (piece.fixed or not fixed_only)
        ]

    def usable(self, *, fixed_only: bool = False) -> list[Piece]:
        """Compressed, and shorter for it."""
        return [
            piece
            for piece in self.pieces
            if (kept := self.kept.get(piece.key)) is not None
            and kept.chars < len(piece.segment.text)
            and (piece.fixed or not fixed_only)
        ]

    def body(self, pieces: Sequence[Piece]) -> bytes:
        cuts = [(piece.segment, self.kept[piece.key].spans) for piece in pieces]
        return without(self.text, cuts).encode()

    def note(self, sent: Collection[Piece]) -> None:
        """What is being sent compressed, of all; the rest goes as it came."""
        by_turn: Mapping[int, set[bytes]] = {number: set() for number in self._new}
        for piece in sent:
            if piece.turn in by_turn:
                by_turn[piece.turn].add(piece.key)
        for number, keys in by_turn.items():
            self._forms.note(self._messages[number], keys)
