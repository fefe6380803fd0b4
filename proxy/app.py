"""The composition root: builds the parts from the settings and ties their lives together."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING

from prefold.backends.admission import Admission
from prefold.backends.backend import Backend
from prefold.backends.client import Client
from prefold.backends.engine import EngineFacts
from prefold.backends.monitor import Monitor, Watches
from prefold.backends.pool import BackendPool
from prefold.measurement.books import Books
from prefold.measurement.ledger.writer import Ledger
from prefold.measurement.prometheus import Metrics
from prefold.measurement.record import RequestRecord
from prefold.prefix_index.index import PrefixIndex
from prefold.proxy.arms import Arms
from prefold.proxy.attempts import AttemptRules, Attempts
from prefold.proxy.catalog import ModelCatalog
from prefold.proxy.compression.forms import Forms
from prefold.proxy.compression.shared_figures import SharedSegmentMetrics
from prefold.proxy.compression.wiring import Compressing, compressing, wanted
from prefold.proxy.conversations import Conversations
from prefold.proxy.documents.order import DocumentOrders
from prefold.proxy.feedback import Feedback
from prefold.proxy.fleet import Fleet
from prefold.proxy.gate import Gate
from prefold.proxy.kv_events import Feeds
from prefold.proxy.ledger_keeping import deployment_secret, ledger_of
from prefold.proxy.ledger_notes import LedgerNotes
from prefold.proxy.lifecycle import Lifecycle
from prefold.proxy.pins import Pins
from prefold.proxy.pipeline import Pipeline, PipelineOptions
from prefold.proxy.preparing import Preparing
from prefold.proxy.rate_limit import RateLimiter
from prefold.proxy.reload import Load, Reloader, backend_of
from prefold.proxy.retries import RetryBudget, Suspects
from prefold.proxy.routing import Policy
from prefold.proxy.selection import Selector
from prefold.proxy.settings import Settings

if TYPE_CHECKING:
    pass
from prefold.proxy.gauges import gauges
from prefold.proxy.wiring import (
    arms_of,
    catalog_of,
    divergences_of,
    gate_of,
    limits,
    preparing_options,
    request_log_of,
    slices_of,
    tracing_of,
    weights_of,
)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Proxy:
    """The parts that the HTTP surface and `prefold check` use."""

    settings: Settings
    pool: BackendPool
    index: PrefixIndex
    catalog: ModelCatalog
    monitor: Monitor
    pipeline: Pipeline
    gate: Gate
    lifecycle: Lifecycle
    reloader: Reloader
    watches: Watches
    feeds: Feeds
    metrics: Metrics
    books: Books
    waiting: Callable[[], int]
    """Requests in the queue."""
    compression: Compressing | None
    """None: nothing can be compressed."""

    def tokenizers(self) -> dict[str, dict[str, int]]:
        """What each model's encoder has to say of itself."""
        return {
            model: encoder.stats()
            for model in self.pool.models()
            if (encoder := self.catalog.encoder(model)) is not None
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Own:
    """What belongs to this process alone, unless several serve together: then it is shared."""

    index: PrefixIndex = field(default_factory=PrefixIndex)
    pins: Pins = field(default_factory=Pins)
    limiter: RateLimiter = field(default_factory=RateLimiter)
    books: Books = field(default_factory=Books)
    suspects: Callable[[Callable[[bytes], bytes]], Suspects] = Suspects
    document_orders: DocumentOrders = field(default_factory=DocumentOrders)
    forms: Forms = field(default_factory=Forms)
    keeps_ledger: bool = True
    """Otherwise the parent does."""
    emptied: Callable[[str], None] | None = None
    """Is told of a backend that is back without its cache, before anything is placed there."""
    look_s: float | None = None
    """As in Admission."""


@asynccontextmanager
async def build(
    settings: Settings, load: Load | None = None, own: Own | None = None
) -> AsyncIterator[Proxy]:
    """All parts, unstarted: nothing is probed until `watches` are started. `load` reads the
    settings again, for a reload."""
    clock = time.perf_counter
    own = own or Own()
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(Client(limits(settings)))
        pool = BackendPool(
            [backend_of(backend, settings.health) for backend in settings.backends],
            settings.routing.initial_prefill_tokens_per_s,
        )
        admission = Admission(
            pool,
            queue=settings.limits.queue,
            queue_s=settings.timeouts.queue_s,
            clock=clock,
            look_s=own.look_s,
        )
        index = own.index
        catalog = catalog_of(settings)
        stack.callback(catalog.close)
        books = own.books
        request_log = request_log_of(settings)
        if request_log is not None:
            stack.callback(request_log.flush)
        secret = deployment_secret(settings, keeps_ledger=own.keeps_ledger).encode()
        ledger: Ledger | None = None
        if own.keeps_ledger and settings.ledger.path:
            ledger = ledger_of(settings, secret, lambda: reloader.settings.backends, pool)
            ledger.start()
            stack.callback(ledger.close)
        compression: Compressing | None = None
        metrics = Metrics(
            books,
            lambda: gauges(pool, index.size_tokens, capacity=index.capacity_tokens),
            lambda: admission.waiting,
            ledger=None if ledger is None else ledger.figures,
            compressor=lambda: None if compression is None else compression.state(),
        )

        def observe(record: RequestRecord) -> None:
            try:
                books.add(record)
                if request_log is not None:
                    request_log.add(record)
                if ledger is not None:
                    ledger.add(record)
            except Exception as error:  # noqa: BLE001 - a fault in the books fails no request
                log.error("a request could not be recorded: %s", type(error).__name__)

        conversations = Conversations(secret)
        wanted_notes = settings.ledger.path and settings.ledger.digests
        notes = LedgerNotes(conversations) if wanted_notes else None
        slices = slices_of(settings, secret)
        arms = Arms(secret, conversations.key, arms_of(settings.arms))
        fleet = Fleet(
            index=index,
            catalog=catalog,
            endpoint=lambda backend: monitor.endpoint(backend),
            default_capacity_tokens=settings.index.default_capacity_tokens,
            default_block_tokens=settings.index.default_block_tokens,
            secret=secret,
        )
        await stack.enter_async_context(fleet.feeds)

        async def ready(backend: Backend, facts: EngineFacts, restarted: bool) -> bool:
            if own.emptied is not None and restarted and backend.facts is not None:
                own.emptied(backend.name)
            return await fleet.ready(backend, facts, restarted)

        monitor = Monitor(
            client=client,
            interval_s=settings.health.interval_s,
            timeout_s=settings.health.timeout_s,
            on_ready=ready,
            clock=clock,
        )
        watches = await stack.enter_async_context(Watches(monitor))
        pins, isolate = own.pins, bool(settings.keys)
        selector = Selector(
            pool=pool,
            index=index,
            policy=Policy(settings.routing.policy),
            weights=weights_of(settings),
            clock=clock,
        )
        if wanted(settings):
            compression = await stack.enter_async_context(
                compressing(settings, pool, selector, secret, clock, own.forms)
            )
            if compression.shared is not None:
                metrics.add(SharedSegmentMetrics(compression.shared))
        attempts = Attempts(
            client=client,
            pool=pool,
            admission=admission,
            selector=selector,
            index=index,
            budget=RetryBudget(settings.retry.budget, clock()),
            suspects=own.suspects(lambda body: blake2b(body, key=secret[:64]).digest()),
            rules=AttemptRules(
                after_first_byte_timeout=settings.retry.after_first_byte_timeout,
                normalise_errors=settings.server.normalise_errors,
            ),
            clock=clock,
        )
        tracing = tracing_of(settings, pool, clock)
        if tracing is not None:
            stack.callback(tracing.close)
        pipeline = Pipeline(
            preparing=Preparing(
                pool=pool,
                catalog=catalog,
                pins=pins,
                options=preparing_options(settings, secret, own.document_orders, isolate=isolate),
                clock=clock,
                notes=notes,
                arms=arms if slices is None else None,
                slices=slices,
                compression=None if compression is None else compression.stage,
                divergences=divergences_of(settings, secret),
            ),
            attempts=attempts,
            pins=pins,
            options=PipelineOptions(
                # What others sent before is not for a tenant to know.
                decision_header=settings.server.decision_header and not isolate,
                write_s=settings.timeouts.write_s,
                total_s=settings.timeouts.total_s,
                heartbeat_s=settings.timeouts.heartbeat_s,
            ),
            observe=observe,
            clock=clock,
            feedback=Feedback(fleet, clock),
            notes=notes,
            tracing=tracing,
        )
        reloader = Reloader(
            settings=settings,
            load=load,
            pool=pool,
            index=index,
            watches=watches,
            feeds=fleet.feeds,
            set_arms=lambda given: (slices or arms).become(arms_of(given)),
            set_compression=None if compression is None else compression.set_anew,
        )
        yield Proxy(
            settings=settings,
            pool=pool,
            index=index,
            catalog=catalog,
            monitor=monitor,
            pipeline=pipeline,
            gate=gate_of(settings, own.limiter, clock),
            lifecycle=Lifecycle(),
            reloader=reloader,
            watches=watches,
            feeds=fleet.feeds,
            metrics=metrics,
            books=books,
            waiting=lambda: admission.waiting,
            compression=compression,
        )
