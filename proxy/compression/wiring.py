"""The parts of compression from the settings, and their lives. The one file of this folder that
sees the settings.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from prefold.backends.embedded import model_path
from prefold.backends.parent_death import command
from prefold.backends.pool import BackendPool
from prefold.compression.catalog import CompressorChoice, VllmPlace
from prefold.compression.protect import Protection
from prefold.compression.segment_cache import Flights, SegmentCache
from prefold.compression.torch_models import Placement
from prefold.compression.worker.child import started
from prefold.compression.worker.messages import Open
from prefold.compression.worker.pool import PoolRules, WorkerPool
from prefold.compression.worker.remote import connected
from prefold.measurement.compression import CompressorState
from prefold.proxy import settings as given
from prefold.proxy.compression.forecast import Forecast
from prefold.proxy.compression.forms import Forms
from prefold.proxy.compression.getting import Getting
from prefold.proxy.compression.outlook import Outlook
from prefold.proxy.compression.sealed_kept import SealedKept
from prefold.proxy.compression.shared_segments import SharedSegments, ShareRules
from prefold.proxy.compression.stage import Compression, StageOptions
from prefold.proxy.compression.switch import Switch, Switches
from prefold.proxy.compression.texts import SegmentRules
from prefold.proxy.documents.marks import Marks
from prefold.proxy.replicas.start import address_of, seal_of
from prefold.proxy.replicas.values import values_opened
from prefold.proxy.selection import Selector
from prefold.proxy.tokens.gguf_tokenizer import tokenizer_parts

MIB = 1024 * 1024


def wanted(settings: given.Settings) -> bool:
    """Whether any request can be compressed."""
    compression = settings.compression
    modes: set[str] = {arm.compression for arm in settings.arms}
    modes |= {compression.mode, *(model.compression for model in settings.models.values())}
    return compression.by_header or not modes <= {"", "off"}


class Compressing:
    """Compression and what the metrics ask of it."""

    def __init__(
        self,
        stage: Compression,
        pool: WorkerPool,
        cache: SegmentCache,
        flights: Flights,
        forms: Forms,
        shared: SharedSegments | None,
        set_anew: Callable[[given.Compression], None],
    ) -> None:
        """`shared`: with other processes, where there is a Redis. `set_anew` takes over what may
        change while requests pass."""
        self.set_anew = set_anew
        self.shared = shared
        self.stage = stage
        self.forms = forms
        self.pool = pool
        self.cache = cache
        self.flights = flights

    def state(self) -> CompressorState:
        return CompressorState(
            hits=self.cache.hits,
            misses=self.cache.misses,
            shared=self.flights.shared,
            cache_bytes=self.cache.bytes,
            workers=self.pool.up,
            failures=self.pool.failures,
            faults=self.pool.faults.counts,
            waiting_chars=self.pool.load[1],
            chars_per_s=self.pool.speed.chars_per_s,
            busy_s=self.pool.busy_s,
        )


@asynccontextmanager
async def compressing(
    settings: given.Settings,
    pool: BackendPool,
    selector: Selector,
    secret: bytes,
    clock: Callable[[], float],
    forms: Forms,
) -> AsyncIterator[Compressing]:
    """Its processes are started, and not waited for: until one is ready, prompts go out as they
    came."""
    compression = settings.compression
    async with AsyncExitStack() as stack:
        workers = await stack.enter_async_context(_workers(compression, clock))
        cache = SegmentCache(int(compression.cache_mib * MIB))
        shared = _shared(settings, cache, clock)
        if shared is not None:
            await stack.enter_async_context(shared.running())
        flights = Flights(cache, workers.submit, None if shared is None else shared.tell)
        forecast = Forecast(
            pool=workers,
            outlook=Outlook(pool, selector),
            rate=compression.rate,
            deadline_s=compression.deadline_s,
            margin_s=compression.margin_s,
            clock=clock,
        )
        stage = Compression(
            pool=workers,
            cache=cache,
            getting=Getting(
                pool=workers,
                flights=flights,
                forecast=forecast,
                shared=shared,
                deadline_s=compression.deadline_s,
                speculative=compression.speculative,
                clock=clock,
            ),
            forecast=forecast,
            rules=_rules(settings),
            options=_options(settings, secret),
            clock=clock,
            forms=forms,
        )
        stack.callback(stage.close)

        def set_anew(now: given.Compression) -> None:
            options = _options(replace(settings, compression=now), secret)
            stage.become(options, margin_s=now.margin_s)

        yield Compressing(stage, workers, cache, flights, forms, shared, set_anew)


def _shared(
    settings: given.Settings, cache: SegmentCache, clock: Callable[[], float]
) -> SharedSegments | None:
    """Raises SettingsError if what is needed is not installed."""
    redis = settings.redis
    if not redis.url or not redis.segments_mib:
        return None
    return SharedSegments(
        cache=cache,
        sealed=SealedKept(seal_of(settings)),
        opened=partial(values_opened, address_of(settings)),
        rules=ShareRules(
            wait_s=redis.segments_wait_s,
            max_bytes=int(redis.segments_mib * MIB),
            ttl_s=redis.segments_ttl_s,
        ),
        clock=clock,
    )


def _workers(compression: given.Compression, clock: Callable[[], float]) -> WorkerPool:
    if not compression.url or compression.protocol == "vllm":
        return own_processes(compression, clock)
    rules = PoolRules(workers=compression.workers, hang_s=compression.hang_s)
    return WorkerPool(lambda: connected(compression.url, compression.api_key), rules, clock)


def own_processes(compression: given.Compression, clock: Callable[[], float]) -> WorkerPool:
    """On this machine."""
    order = _order(compression)
    rules = PoolRules(workers=compression.workers, hang_s=compression.hang_s)
    return WorkerPool(lambda: started(order, command), rules, clock)


def _order(compression: given.Compression) -> Open:
    """With the embedded engine's model for surprisal, where it has been fetched."""
    model, tokenizer_json = compression.model or None, None
    if compression.compressor == "surprisal" and model is None and (embedded := model_path()):
        model = str(embedded)
    if model is not None and model.endswith(".gguf"):
        tokenizer_json = tokenizer_parts(Path(model)).tokenizer_json
    return Open(
        CompressorChoice(
            name=compression.compressor,
            model=model,
            model_revision=compression.model_revision or None,
            placement=Placement(device=compression.device, dtype=compression.dtype),
            language=compression.language,
            tokenizer_json=tokenizer_json,
            vllm=_vllm(compression),
        ),
        Protection(keep=compression.keep, quotes=compression.quotes),
    )


def _vllm(compression: given.Compression) -> VllmPlace | None:
    if compression.protocol != "vllm":
        return None
    return VllmPlace(
        url=compression.url, model=compression.served_model, api_key=compression.api_key
    )


def _rules(settings: given.Settings) -> SegmentRules:
    compression, documents = settings.compression, settings.documents
    return SegmentRules(
        marks=Marks(
            parts="parts" in compression.documents,
            member="member" in compression.documents,
            delimited="delimited" in compression.documents,
            start=documents.start,
            end=documents.end,
            fence=documents.fence,
        ),
        min_chars=compression.min_chars,
        tools=compression.tools,
    )


def _options(settings: given.Settings, secret: bytes) -> StageOptions:
    compression = settings.compression
    return StageOptions(
        switches=Switches(
            default=Switch(compression.mode),
            models={
                name: Switch(model.compression)
                for name, model in settings.models.items()
                if model.compression
            },
            by_header=compression.by_header,
            forbidden=frozenset(key.tenant for key in settings.keys if not key.compression),
        ),
        rate=compression.rate,
        min_tokens=compression.min_tokens,
        min_chars=compression.min_chars,
        deadline_s=compression.deadline_s,
        speculative=compression.speculative,
        secret=secret,
        tell_gain=settings.server.decision_header and not settings.keys,
    )
