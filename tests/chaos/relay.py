"""The network between prefold and one backend, as a process that can be told to fail.

    python -m tests.chaos.relay --port PORT --to PORT

Prints its address. Lines on its standard input set its state, and its end ends the process:
`pass`, `drop` (bytes vanish both ways, connections stay), `reset` (every connection is reset, new
ones too), `delay SECONDS` (each read is held back).
"""

from __future__ import annotations

import argparse
import asyncio
import socket
import struct
import sys
import threading


class Network:
    """Mutable: the state, and the connections that a `reset` breaks."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._state = "pass"
        self._delay_s = 0.0
        self._passing = asyncio.Event()
        self._passing.set()
        self._open: set[asyncio.StreamWriter] = set()

    def set(self, line: str) -> None:
        state, _, seconds = line.partition(" ")
        self._state = state
        self._delay_s = float(seconds) if seconds else 0.0
        if state == "drop":
            self._passing.clear()
        else:
            self._passing.set()
        if state == "reset":
            for writer in list(self._open):
                reset(writer)

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._state == "reset":
            reset(writer)
            return
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._port)
        except OSError:
            reset(writer)  # nothing listens: as near to a refusal as a relay can get
            return
        pair = {writer, far_writer}
        self._open |= pair
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._copy(reader, far_writer))
                tasks.create_task(self._copy(far_reader, writer))
        except* OSError:
            reset(writer)
            reset(far_writer)
        finally:
            self._open -= pair
            for each in pair:
                each.close()

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            if self._delay_s:
                await asyncio.sleep(self._delay_s)
            # What vanished on a real network is sent again by TCP once it is back: so it waits.
            await self._passing.wait()
            writer.write(data)
            await writer.drain()
        await self._passing.wait()
        if writer.can_write_eof():
            writer.write_eof()


def reset(writer: asyncio.StreamWriter) -> None:
    """RST instead of FIN."""
    sock = writer.get_extra_info("socket")
    if sock is not None and sock.fileno() >= 0:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--port", type=int, default=0)
    arguments.add_argument("--to", type=int, required=True)
    options = arguments.parse_args()
    network = Network(options.to)
    server = await asyncio.start_server(network.connected, "127.0.0.1", options.port)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()

    def obey() -> None:
        for line in sys.stdin:
            loop.call_soon_threadsafe(network.set, line.strip())
        loop.call_soon_threadsafe(ended.set)

    threading.Thread(target=obey, daemon=True).start()
    await ended.wait()


if __name__ == "__main__":
    asyncio.run(main())
