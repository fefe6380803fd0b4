"""Reading an answer off its raw bytes: where it ends, and whether it is the right one."""

import re
from dataclasses import dataclass

from tests.benchmark.wire.scene import CONTENT, DONE, LAST_CHUNK

LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
USAGE = b'"prompt_tokens_details":'


class WrongAnswer(Exception):
    """Says what is wrong with it."""


@dataclass(slots=True)
class Answer:
    """One answer as it comes in; `first_at` and `ended_at` are of the caller's clock."""

    first_mark: bytes
    """Bytes that the first event (or the body) holds, and no head does."""
    raw: bytearray
    first_at: float | None = None
    ended_at: float | None = None
    _whole_size: int | None = None

    def take(self, data: bytes, now: float) -> bool:
        """True once it is complete. Raises WrongAnswer for any other status than 200."""
        self.raw += data
        if self.first_at is None:
            if len(self.raw) >= 12 and self.raw[9:12] != b"200":
                raise WrongAnswer(f"status {self.raw[9:12].decode()}")
            at = self.raw.find(self.first_mark)
            if at < 0:
                return False
            self.first_at = now
            head = self.raw[: self.raw.index(b"\r\n\r\n")]
            if length := LENGTH.search(head):
                self._whole_size = len(head) + 4 + int(length[1])
        if self._whole_size is None:
            done = self.raw.endswith(LAST_CHUNK)
        else:
            done = len(self.raw) >= self._whole_size
        if done:
            self.ended_at = now
        return done


def check(raw: bytes | bytearray, *, chunks: int, needs: bytes) -> None:
    """`chunks` events with text (0: one whole answer), usage at the end, and `needs` in the head.
    Raises WrongAnswer."""
    head, _, body = bytes(raw).partition(b"\r\n\r\n")
    if needs not in head:
        raise WrongAnswer(f"no {needs.decode()} in the head")
    text = _dechunked(body) if LENGTH.search(head) is None else body
    found = text.count(CONTENT)
    if found != max(chunks, 1):
        raise WrongAnswer(f"{found} events with text, not {max(chunks, 1)}")
    if text.count(USAGE) != 1:
        raise WrongAnswer("no usage")
    if chunks and not text.endswith(DONE):
        raise WrongAnswer("the stream has no end")


def _dechunked(body: bytes) -> bytes:
    """Without the framing of a chunked body. Raises WrongAnswer."""
    pieces: list[bytes] = []
    at = 0
    while True:
        line_end = body.find(b"\r\n", at)
        if line_end < 0:
            raise WrongAnswer("the chunked body has no end")
        size = int(body[at:line_end], 16)
        if size == 0:
            return b"".join(pieces)
        pieces.append(body[line_end + 2 : line_end + 2 + size])
        at = line_end + 4 + size
