"""In which form each message of a conversation was sent, so that it is always sent in that form: a
message that changes would end the reuse of all that follows it in a KV cache.

Knows messages and texts by keyed digests only.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Sequence
from hashlib import blake2b

from prefold.proxy.compression.segments import Turn

DIGEST_BYTES = 16
MAX_MESSAGES = 65_536
"""Each takes some 200 bytes, and 50 for each compressed text in it."""


class Forms:
    """Mutable and bounded, the longest unused go first."""

    def __init__(
        self,
        max_messages: int = MAX_MESSAGES,
        decided: Callable[[bytes, Collection[bytes]], None] | None = None,
    ) -> None:
        """`decided` is told of what is noted here first."""
        self._max = max_messages
        self._decided = decided
        self._sent: OrderedDict[bytes, frozenset[bytes]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sent)

    def recall(self, message: bytes) -> frozenset[bytes] | None:
        """The keys of the texts in it that were compressed, the others were not; None: it was not
        sent, as far as is remembered."""
        sent = self._sent.get(message)
        if sent is not None:
            self._sent.move_to_end(message)
        return sent

    def note(self, message: bytes, compressed: Collection[bytes]) -> None:
        """It is being sent. What was noted first stays: it is what caches hold."""
        if message in self._sent:
            return
        self.take_in(message, compressed)
        if self._decided is not None:
            self._decided(message, compressed)

    def take_in(self, message: bytes, compressed: Collection[bytes]) -> None:
        """What another process noted; where both did before they knew, each goes by its own."""
        if message in self._sent:
            return
        self._sent[message] = frozenset(compressed)
        if len(self._sent) > self._max:
            self._sent.popitem(last=False)


def message_keys(turns: Sequence[Turn], key: bytes) -> Iterator[bytes]:
    """For each turn a digest of it and of all before it. `key`: a secret that parts what is not to
    be told from each other (models, tenants)."""
    before = b""
    for turn in turns:
        digest = blake2b(before, key=key, digest_size=DIGEST_BYTES, person=b"message")
        digest.update(turn.told.encode("utf-8", "surrogatepass"))
        before = digest.digest()
        yield before
