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
    CompressorGone,
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
    Failed,
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
            _serve(parent, order)
        except CompressorGone as error:
            parent.sendall(framed(Failed(error.cause, str(error))))
        except MemoryError:
            parent.sendall(framed(Failed("MemoryError", "it is out of memory")))


def _serve(parent: socket.socket, order: Open) -> None:
    """Until the parent is gone. Raises CompressorGone, MemoryError."""
    try:
        worker = Worker(open_compressor(order.choice), order.protection)
        ready = worker.ready()
    except (CompressorUnavailable, ValueError, OSError) as error:
        parent.sendall(framed(Refused(str(error))))
        return
    parent.sendall(framed(ready))
    while body := _receive(parent):
        batch = order_of(body)
        if not isinstance(batch, Batch):
            raise ValueError("it is open already")
        parent.sendall(framed(worker.done(batch)))


class Worker:
    """What it does, without the socket."""

    def __init__(self, compressor: Compressor, protection: Protection) -> None:
        self._compressor = compressor
        self._protection = protection

    def ready(self) -> Ready:
        """Takes as long as two small batches: the first one loads what is loaded late. Raises
        CompressorUnavailable where it fails on plain words of its own: it would on all."""
        seconds = 0.0
        for _ in range(2):
            begun = time.perf_counter()
            done = self.done(Batch([(SAMPLE, SAMPLE_RATE)]))
            if done.failed:
                raise CompressorUnavailable(f"it fails on any text, with {done.failed[0]}")
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
        except CompressorGone:
            raise
        except Exception:  # noqa: BLE001 - a model's library may raise anything
            failed: dict[int, str] = {}
            kept = [self._alone(passage, number, failed) for number, passage in enumerate(passages)]
            return Done(kept, failed)

    def _alone(self, passage: Passage, number: int, failed: dict[int, str]) -> list[int] | None:
        """Of a failure its class is noted, and not its message, which may quote the text."""
        try:
            [result] = compress_checked(self._compressor, [passage])
        except (MemoryError, CompressorGone):
            raise
        except Exception as error:  # noqa: BLE001 - as above; the request goes out as it came
            failed[number] = type(error).__name__
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
