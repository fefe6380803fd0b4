"""A compressor in a process of its own: `python -m` this, with the number of a connected socket.

It serves until the other end is closed. It knows no settings and no requests: texts and rates come
in, spans go out. Whoever starts it sees to it that it dies with its parent.
"""

from __future__ import annotations

import resource
import signal
import socket
import sys
import time
from itertools import chain

from prefold.compression.catalog import open_compressor
from prefold.compression.compressor import (
    Compressed,
    Compressor,
    CompressorUnavailable,
    Passage,
    compress_checked,
    digest_of,
)
from prefold.compression.protect import Protection, protect
from prefold.compression.worker.messages import (
    LENGTH_BYTES,
    MAX_FRAME_BYTES,
    Batch,
    Done,
    Open,
    Ready,
    Refused,
    framed,
    order_of,
)

# Its own text, for a first measure of its speed: words that no list can tell by heart.
SAMPLE = " ".join(f"The harbour office counted crates near the {n}th quay." for n in range(120))
SAMPLE_RATE = 0.5


def main(fd: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to hear
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # it would hold prompts
    with socket.socket(fileno=fd) as parent:
        order = order_of(_receive(parent))
        if not isinstance(order, Open):
            raise ValueError("the first order is another one")
        try:
            worker = Worker(open_compressor(order.choice), order.protection)
        except (CompressorUnavailable, ValueError, OSError) as error:
            parent.sendall(framed(Refused(str(error))))
            return
        parent.sendall(framed(worker.ready()))
        while body := _receive(parent):
            order = order_of(body)
            if not isinstance(order, Batch):
                raise ValueError("it is open already")
            parent.sendall(framed(worker.done(order)))


class Worker:
    """What it does, without the socket."""

    def __init__(self, compressor: Compressor, protection: Protection) -> None:
        self._compressor = compressor
        self._protection = protection

    def ready(self) -> Ready:
        """Takes as long as two small batches: the first one loads what is loaded late."""
        seconds = 0.0
        for _ in range(2):
            begun = time.perf_counter()
            self.done(Batch([(SAMPLE, SAMPLE_RATE)]))
            seconds = max(time.perf_counter() - begun, 1e-6)
        compressor = self._compressor
        parts = {"compressor": compressor.digest, "protection": self._protection.digest}
        return Ready(
            name=compressor.name,
            digest=digest_of("worker", "1", parts),
            chars_per_s=len(SAMPLE) / seconds,
        )

    def done(self, batch: Batch) -> Done:
        """All in one call, so that a model sees full batches; where that fails, one by one, so that
        a text that cannot be compressed is no other one's harm."""
        passages = [
            Passage(text=text, rate=rate, protected=protect(text, self._protection))
            for text, rate in batch.jobs
        ]
        try:
            results = compress_checked(self._compressor, passages)
            return Done([_flat(result) for result in results])
        except Exception:  # noqa: BLE001 - a model's library may raise anything
            return Done([self._alone(passage) for passage in passages])

    def _alone(self, passage: Passage) -> list[int] | None:
        try:
            [result] = compress_checked(self._compressor, [passage])
        except MemoryError:
            raise
        except Exception:  # noqa: BLE001 - as above; the request goes out as it came
            return None
        return _flat(result)


def _flat(result: Compressed) -> list[int]:
    return list(chain.from_iterable(result.kept))


def _receive(parent: socket.socket) -> bytes:
    """b"" when the parent is gone."""
    length = int.from_bytes(_exactly(parent, LENGTH_BYTES))
    if length > MAX_FRAME_BYTES:
        raise ValueError("too long a frame")
    return _exactly(parent, length)


def _exactly(parent: socket.socket, length: int) -> bytes:
    data = bytearray()
    while len(data) < length:
        piece = parent.recv(min(length - len(data), 1 << 20))
        if not piece:
            return b""
        data += piece
    return bytes(data)


if __name__ == "__main__":
    main(int(sys.argv[1]))
