"""`prefold serve --workers N`: the parent, which serves no client. It has the admin port and the
books, watches the backends for restarts, and passes on what workers tell each other.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import uvloop

from prefold.backends.backend import Backend
from prefold.backends.client import Client
from prefold.backends.engine import EngineFacts
from prefold.backends.monitor import Monitor, Watches
from prefold.backends.pool import BackendPool
from prefold.measurement.books import Books
from prefold.measurement.ledger.writer import Ledger
from prefold.measurement.prometheus import Metrics
from prefold.prefix_index.index import PrefixIndex
from prefold.proxy.admin import admin_app
from prefold.proxy.discovery.following import following
from prefold.proxy.errors import SettingsError
from prefold.proxy.gauges import gauges
from prefold.proxy.ledger_keeping import deployment_secret, ledger_of
from prefold.proxy.lifecycle import Lifecycle
from prefold.proxy.listener import listening
from prefold.proxy.reload import Load, Reloader, backend_of
from prefold.proxy.serve import Ending, freeze, say_where, tls_of
from prefold.proxy.settings import Settings
from prefold.proxy.wiring import limits
from prefold.proxy.workers.figures import (
    WorkerMetrics,
    believed_of,
    capacity_of,
    error_of,
    tokenizers_of,
    waiting_of,
)
from prefold.proxy.workers.health import HealthTeller
from prefold.proxy.workers.hub import Hub
from prefold.proxy.workers.messages import Backends, Start
from prefold.proxy.workers.port import reserved
from prefold.proxy.workers.processes import WorkerFailed, Workers
from prefold.proxy.workers.reload import TellingReloader
from prefold.proxy.workers.replicas import WorkersReplica
from prefold.proxy.workers.shared import MAX_BACKENDS, SharedLoad, SharedRate, numbers, rows
from prefold.proxy.workers.slots import Slots
from prefold.proxy.workers.table import Table


def run(settings: Settings, *, exit_with_stdin: bool = False, reload: Load | None = None) -> None:
    """As `serve.run`. Raises OSError if a port is taken, SettingsError if no worker comes up."""
    try:
        uvloop.run(_serve(settings, exit_with_stdin, reload))
    except* WorkerFailed as failed:
        raise SettingsError(str(_first(failed))) from None


def _first(group: BaseExceptionGroup[WorkerFailed]) -> WorkerFailed:
    one = group.exceptions[0]
    return _first(one) if isinstance(one, BaseExceptionGroup) else one


async def _serve(settings: Settings, exit_with_stdin: bool, reload: Load | None) -> None:
    ending = Ending()
    if exit_with_stdin:
        ending.with_stdin()
    tls_of(settings.server)  # a mistake there is told here, once
    loop = asyncio.get_running_loop()
    async with parent_of(settings, reload) as parent, asyncio.TaskGroup() as group:
        loop.add_signal_handler(signal.SIGHUP, parent.reloader.reload_or_log)
        running = group.create_task(parent.workers.run(), name="workers")
        saying = group.create_task(_say_where(parent), name="all listen")
        await ending.wait()
        saying.cancel()
        parent.lifecycle.draining = True
        parent.workers.end(signal.SIGTERM if ending.patient else signal.SIGINT)
        server = settings.server
        patience_s = server.drain_s + (server.lame_duck_s if ending.patient else 0.0)
        killing = group.create_task(parent.workers.kill_after(patience_s), name="kill")
        await running
        killing.cancel()


async def _say_where(parent: Parent) -> None:
    await parent.workers.all_listen()
    say_where(parent.lifecycle.url, parent.admin_url)
    freeze()


@dataclass(slots=True, kw_only=True)
class Parent:
    """What the admin port shows and changes, and the workers."""

    settings: Settings
    pool: BackendPool
    reloader: Reloader
    metrics: Metrics
    books: Books
    lifecycle: Lifecycle
    hub: Hub
    workers: Workers
    admin_url: str = ""

    def tokenizers(self) -> dict[str, dict[str, int]]:
        return tokenizers_of(self.hub)


@asynccontextmanager
async def parent_of(settings: Settings, load: Load | None) -> AsyncIterator[Parent]:
    """The admin port listens, the data port is reserved, backends are watched; no worker runs."""
    server, clock = settings.server, time.perf_counter
    async with AsyncExitStack() as stack:
        port = stack.enter_context(reserved(server.host, server.port))
        replicas = bool(settings.redis.url)
        table_rows = rows(server.workers, replicas=replicas)
        replicas_row = table_rows - 1 if replicas else None
        table, table_fd = Table.new(workers=table_rows, numbers=numbers(len(settings.keys)))
        stack.callback(os.close, table_fd)
        pool = BackendPool(
            [backend_of(backend, settings.health) for backend in settings.backends],
            settings.routing.initial_prefill_tokens_per_s,
        )
        books = Books()
        secret = deployment_secret(settings)
        ledger: Ledger | None = None
        if settings.ledger.path:
            ledger = ledger_of(settings, secret.encode(), lambda: reloader.settings.backends, pool)
            ledger.start()
            stack.callback(ledger.close)
        hub = Hub(
            pool=pool,
            books=books,
            clock=clock,
            on_listening=lambda source: workers.listens(source),
            ledger=ledger,
        )
        slots = Slots(MAX_BACKENDS, lambda slot: SharedLoad(table, slot, None).is_idle)
        witness = HealthTeller(hub.tell)

        def attach() -> None:
            """Also those that came since."""
            assigned = slots.assign(backend.name for backend in pool)
            for backend in pool:
                if backend.witness is None:
                    hub.emptied(backend.name)  # one of this name may have been another
                    backend.load = SharedLoad(
                        table, assigned[backend.name], replicas_row, replicas_row
                    )
                    backend.rate = SharedRate(_nothing_to_tell)
                    backend.witness = witness

        def changed(new: Settings) -> None:
            attach()
            hub.order(Backends(new.backends, slots.assigned, new.arms, new.compression))

        async def ready(backend: Backend, facts: EngineFacts, restarted: bool) -> bool:
            if restarted and backend.facts is not None:
                hub.emptied(backend.name)
                if replica is not None:
                    replica.emptied(backend.name)
            return True

        def start(number: int) -> Start:
            return Start(
                settings=dataclasses.replace(
                    settings,
                    server=dataclasses.replace(server, port=port),
                    routing=dataclasses.replace(settings.routing, secret=secret),
                    backends=reloader.settings.backends,
                    arms=reloader.settings.arms,
                ),
                number=number,
                rows=table_rows,
                log_level=logging.getLogger().level,
                slots=slots.assigned,
                compression=reloader.settings.compression,
            )

        attach()
        replica = WorkersReplica(settings, pool, hub, clock) if replicas else None
        client = await stack.enter_async_context(Client(limits(settings)))
        monitor = Monitor(
            client=client,
            interval_s=settings.health.interval_s,
            timeout_s=settings.health.timeout_s,
            on_ready=ready,
            clock=clock,
            quiet=True,
        )
        watches = await stack.enter_async_context(Watches(monitor))
        reloader = TellingReloader(
            settings=settings,
            load=load,
            pool=pool,
            index=PrefixIndex(),  # the parent places nothing
            watches=watches,
            changed=changed,
        )
        workers = Workers(
            count=server.workers, table=table, table_fd=table_fd, hub=hub, make_start=start
        )
        lifecycle = Lifecycle()
        scheme = "https" if server.tls_certificate else "http"
        lifecycle.url = f"{scheme}://{server.host}:{port}"
        parent = Parent(
            settings=settings,
            pool=pool,
            reloader=reloader,
            metrics=WorkerMetrics(
                hub,
                books,
                lambda: gauges(
                    pool,
                    lambda name: believed_of(hub, name),
                    lambda backend: error_of(hub, backend.name),
                    lambda name: capacity_of(hub, name),
                ),
                lambda: waiting_of(hub),
                ledger=None if ledger is None else ledger.figures,
            ),
            books=books,
            lifecycle=lifecycle,
            hub=hub,
            workers=workers,
        )
        if replica is not None:
            await stack.enter_async_context(replica.sharing(parent.metrics))
        parent.admin_url = await stack.enter_async_context(
            listening(admin_app(parent), server.admin_host, server.admin_port)
        )
        for backend in pool:
            watches.start(backend)
        await stack.enter_async_context(following(settings.discovery, reloader.discovered))
        yield parent


def _nothing_to_tell(tokens: int, seconds: float) -> None:
    """The parent observes no prefill of its own."""
