"""From the settings to the arguments of the parts: the composition root's translations."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from prefold.backends.http1 import Limits
from prefold.backends.pool import BackendPool
from prefold.proxy import settings as settings_of
from prefold.proxy.arms import Arm
from prefold.proxy.catalog import ModelCatalog, ModelSource
from prefold.proxy.divergence import Divergences
from prefold.proxy.documents.documents import Documents
from prefold.proxy.documents.marks import Marks
from prefold.proxy.documents.order import DocumentOrders
from prefold.proxy.gate import Gate
from prefold.proxy.hints import Hints
from prefold.proxy.keys import KeyRing
from prefold.proxy.masks import MaskRule, Masks
from prefold.proxy.openai import Bounds
from prefold.proxy.preparing import PreparingOptions
from prefold.proxy.rate_limit import RateLimiter
from prefold.proxy.request_log import RequestLog
from prefold.proxy.routing import Policy, Weights
from prefold.proxy.settings import Settings
from prefold.proxy.slices import Slices

if TYPE_CHECKING:
    from prefold.proxy.tracing import Tracing


log = logging.getLogger(__name__)


def tracing_of(settings: Settings, pool: BackendPool, clock: Callable[[], float]) -> Tracing | None:
    given = settings.tracing
    if not given.endpoint:
        return None
    from prefold.proxy.tracing import Tracing  # 0.2 s, and an extra

    return Tracing(
        endpoint=given.endpoint,
        sample=given.sample,
        service_name=given.service_name,
        pool=pool,
        clock=clock,
    )


def arms_of(given: Sequence[settings_of.Arm]) -> list[Arm]:
    return [
        Arm(
            name=arm.name,
            weight=arm.weight,
            compression=arm.compression,
            labels=arm.labels,
            models=arm.models,
            policy=Policy(arm.policy) if arm.policy else None,
        )
        for arm in given
    ]


def slices_of(settings: Settings, secret: bytes) -> Slices | None:
    """None: arms are of conversations."""
    given = settings.experiment
    if not given.slice_s:
        return None
    return Slices(secret, arms_of(settings.arms), slice_s=given.slice_s, washout_s=given.washout_s)


def request_log_of(settings: Settings) -> RequestLog | None:
    wanted = settings.server.log_requests and log.isEnabledFor(logging.INFO)
    return RequestLog(lambda lines: sys.stderr.write(lines)) if wanted else None


def limits(settings: Settings) -> Limits:
    timeouts = settings.timeouts
    return Limits(
        connect_s=timeouts.connect_s,
        first_byte_s=timeouts.first_byte_s,
        idle_s=timeouts.idle_s,
    )


def catalog_of(settings: Settings) -> ModelCatalog:
    return ModelCatalog(
        {
            name: ModelSource(tokenizer=model.tokenizer, chat_template=model.chat_template)
            for name, model in settings.models.items()
        },
        {alias: name for name, model in settings.models.items() for alias in model.aliases},
        memo_bytes=int(settings.tokens.memo_mib * 2**20),
        inline_chars=settings.tokens.inline_chars,
        alone=settings.server.workers == 1,
    )


def gate_of(settings: Settings, limiter: RateLimiter, clock: Callable[[], float]) -> Gate:
    return Gate(
        key_ring=KeyRing.of(
            [
                (key.tenant, key.sha256, key.requests_per_minute, key.parallel)
                for key in settings.keys
            ]
        ),
        limiter=limiter,
        cors_origins=frozenset(settings.server.cors_origins),
        clock=clock,
    )


def weights_of(settings: Settings) -> Weights:
    routing = settings.routing
    return Weights(
        eviction_price=routing.eviction_price,
        copy_price=routing.copy_price,
        crowd_price=routing.crowd_price,
        decode_penalty_s=routing.decode_penalty_s,
        noise_relative=routing.noise_relative,
        noise_s=routing.noise_s,
        noise_work=routing.noise_work,
    )


def preparing_options(
    settings: Settings, secret: bytes, orders: DocumentOrders, *, isolate: bool
) -> PreparingOptions:
    server = settings.server
    return PreparingOptions(
        secret=secret,
        isolate=isolate,
        tenant_header=settings.routing.tenant_header,
        pinned_backend=settings.routing.pinned_backend,
        bounds=Bounds(
            max_depth=server.max_json_depth, max_messages=server.max_messages, max_n=server.max_n
        ),
        max_body_bytes=int(server.max_body_mib * 2**20),
        max_upload_bytes=int(server.max_upload_mib * 2**20),
        hints=hints_of(settings),
        masks=masks_of(settings),
        documents=documents_of(settings, orders),
    )


def documents_of(settings: Settings, orders: DocumentOrders) -> Documents | None:
    """None where nobody can ask for an order."""
    given = settings.documents
    documents = Documents(
        base=Marks(start=given.start, end=given.end, fence=given.fence),
        models={name: model.documents for name, model in settings.models.items()},
        by_header=given.by_header,
        orders=orders,
    )
    return documents if documents.used else None


def divergences_of(settings: Settings, secret: bytes) -> Divergences | None:
    given = settings.diagnosis
    return Divergences(secret, given.divergence_share) if given.divergence else None


def hints_of(settings: Settings) -> Hints:
    routing = settings.routing
    return Hints(prompt_cache_key=routing.prompt_cache_key, session_headers=routing.session_headers)


def masks_of(settings: Settings) -> Masks | None:
    rules = [
        MaskRule(pattern=mask.pattern, models=mask.models, stripped=mask.stripped)
        for mask in settings.masks
    ]
    return Masks(rules) if rules else None
