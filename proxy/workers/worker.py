"""A worker: the data port in a process of its own, beside others on the same port.

`python -m prefold.proxy.workers.worker PARENT CHANNEL TABLE`, started by the parent, with its pid
and two inherited descriptors. The settings, which hold keys, come over the channel.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import sys
import time
from contextlib import AbstractAsyncContextManager, AsyncExitStack

import uvloop

from prefold.backends.parent_death import die_with_parent
from prefold.proxy.app import Proxy, build
from prefold.proxy.handlers import DataPort
from prefold.proxy.http.server import serving
from prefold.proxy.serve import Ending, connection_rules, freeze, lame_duck, tls_of
from prefold.proxy.workers.channel import Channel
from prefold.proxy.workers.messages import Frame, Listening, Start
from prefold.proxy.workers.shared import numbers
from prefold.proxy.workers.sharing import Sharing
from prefold.proxy.workers.table import Table

STATUS_S = 1.0
LAST_WORDS_S = 1.0
log = logging.getLogger(__name__)


def main() -> None:
    parent, channel, table = (int(text) for text in sys.argv[1:])
    die_with_parent(parent)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # the parent's to hear
    uvloop.run(_work(channel, table))


async def _work(channel_fd: int, table_fd: int) -> None:
    ending = Ending()
    loop = asyncio.get_running_loop()
    inbox = Inbox()
    _, channel = await loop.create_unix_connection(
        lambda: Channel(on_frame=inbox.on_frame, on_recovery=lambda: inbox.on_recovery()),
        sock=socket.socket(fileno=channel_fd),
    )
    channel.closed.add_done_callback(lambda _: ending.tell())  # the parent is gone
    start = await inbox.start()
    logging.basicConfig(
        level=start.log_level,
        format=f"%(asctime)s %(levelname)s %(name)s [worker {start.number}] %(message)s",
    )
    table = Table(table_fd, workers=start.rows, numbers=numbers(len(start.settings.keys)))
    sharing = Sharing(start, table, channel, time.perf_counter)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(_last_words, channel)
        proxy = await stack.enter_async_context(
            build(start.settings, sharing.settings, sharing.own)
        )
        sharing.attach(proxy, start.slots)
        proxy.reloader.reload_or_log()  # of compression, what changed since the parent started
        inbox.pass_to(sharing)
        await _first_look(proxy)
        for backend in proxy.pool:
            proxy.watches.start(backend)
        await stack.enter_async_context(_data_port(proxy))
        sharing.report(Listening())
        telling = asyncio.create_task(_tell_status(sharing, proxy), name="status")
        stack.callback(telling.cancel)
        freeze()
        await lame_duck(ending, proxy.lifecycle, start.settings.server)


async def _first_look(proxy: Proxy) -> None:
    """Others serve meanwhile: a worker that is started again must not turn away, not knowing the
    backends yet, what they would have taken."""
    looks = [asyncio.create_task(proxy.monitor.probe(backend)) for backend in proxy.pool]
    if looks:
        await asyncio.wait(looks, timeout=proxy.settings.health.timeout_s)
    for look in looks:
        look.cancel()
    await asyncio.gather(*looks, return_exceptions=True)


def _data_port(proxy: Proxy) -> AbstractAsyncContextManager[str]:
    port, server = DataPort(proxy), proxy.settings.server
    return serving(
        port.serve,
        port.tell,
        server.host,
        server.port,
        rules=connection_rules(proxy.settings),
        drain_s=server.drain_s,
        tls=tls_of(server),
        reuse_port=True,
    )


async def _tell_status(sharing: Sharing, proxy: Proxy) -> None:
    while True:
        sharing.learn_rates()
        sharing.status(proxy)
        await asyncio.sleep(STATUS_S)


async def _last_words(channel: Channel) -> None:
    """The records of the last requests are on their way when the process ends."""
    channel.close()
    await asyncio.wait([channel.closed], timeout=LAST_WORDS_S)


class Inbox:
    """Holds what comes before there is somebody to take it."""

    def __init__(self) -> None:
        self._sharing: Sharing | None = None
        self._early: list[Frame] = []
        self._start: asyncio.Future[Start] = asyncio.get_running_loop().create_future()

    async def start(self) -> Start:
        return await self._start

    def pass_to(self, sharing: Sharing) -> None:
        self._sharing = sharing
        for frame in self._early:
            sharing.on_frame(frame)
        self._early.clear()

    def on_frame(self, frame: Frame) -> None:
        if self._sharing is not None:
            self._sharing.on_frame(frame)
        elif self._start.done():
            self._early.append(frame)
        else:
            [first] = frame.messages()
            if not isinstance(first, Start):
                raise ValueError("the first order is another one")
            self._start.set_result(first)

    def on_recovery(self) -> None:
        if self._sharing is not None:
            self._sharing.recovered()


if __name__ == "__main__":
    main()
