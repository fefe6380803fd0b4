"""The ledger that the settings ask for, for a process that keeps one: the only one, or the parent
of workers.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable
from pathlib import Path

import msgspec

from prefold.backends.backend import Backend as Upstream
from prefold.backends.pool import BackendPool
from prefold.measurement.ledger.digests import Digests
from prefold.measurement.ledger.row import RowRules
from prefold.measurement.ledger.samples import EngineSample
from prefold.measurement.ledger.secret import kept_secret
from prefold.measurement.ledger.writer import Bounds, Ledger
from prefold.proxy.settings import Backend, Settings

log = logging.getLogger(__name__)

Backends = Callable[[], tuple[Backend, ...]]
DAY_S = 86400.0


def deployment_secret(settings: Settings, *, keeps_ledger: bool = True) -> str:
    """The configured one; else that which a ledger keeps beside itself, so that its digests go on
    meaning the same; else one of this process alone: then nothing that it seeds leaves it."""
    if settings.routing.secret:
        return settings.routing.secret
    if keeps_ledger and settings.ledger.path and settings.ledger.digests:
        try:
            return kept_secret(Path(f"{settings.ledger.path}.key"))
        except (OSError, ValueError) as error:
            log.warning("digests of this run cannot be compared with others: %s", error)
    return secrets.token_hex(32)


def ledger_of(
    settings: Settings, secret: bytes, backends: Backends, pool: BackendPool | None = None
) -> Ledger:
    """Not started. `backends` are those there are now, for their labels; `pool`: the same, for what
    they say of their load."""
    ledger = settings.ledger
    return Ledger(
        Path(ledger.path),
        bounds=Bounds(max_bytes=ledger.max_mib * 2**20, max_age_s=ledger.max_age_days * DAY_S),
        rules=RowRules(digests=Digests(secret), token_times=ledger.token_times),
        labels=Labels(backends),
        samples=None if pool is None else lambda now: samples_of(pool, now),
    )


def samples_of(pool: BackendPool, now: float) -> list[EngineSample]:
    """As the last probes had it. May be called from any thread."""
    return [sample_of(backend, now) for backend in list(pool)]


def sample_of(backend: Upstream, now: float) -> EngineSample:
    facts = backend.facts
    return EngineSample(
        at=now,
        backend=backend.name,
        running=None if facts is None else facts.running,
        waiting=None if facts is None else facts.waiting,
        kv_usage=None if facts is None else facts.kv_usage,
        preemptions=None if facts is None else facts.preemptions,
        in_flight=backend.load.here,
    )


class Labels:
    """Of each backend, as a JSON object; made anew when the backends change. For one thread."""

    def __init__(self, backends: Backends) -> None:
        self._backends = backends
        self._known: tuple[Backend, ...] = ()
        self._labels: str | None = None

    def __call__(self) -> str | None:
        """None where none has any."""
        backends = self._backends()
        if backends is not self._known:
            self._known = backends
            labels = {backend.name: backend.labels for backend in backends if backend.labels}
            made = msgspec.json.encode(labels, order="sorted").decode()
            self._labels = made if labels else None
        return self._labels
