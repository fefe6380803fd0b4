"""The metrics of replicas: those that are documented, and what they say at first."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest

from prefold.compression.segment_cache import SegmentCache
from prefold.proxy.compression.sealed_kept import SealedKept
from prefold.proxy.compression.shared_figures import SharedSegmentMetrics
from prefold.proxy.compression.shared_segments import SharedSegments, ShareRules
from prefold.proxy.replicas.figures import ReplicaMetrics
from prefold.proxy.replicas.inbox import Inbox
from prefold.proxy.replicas.link import Link, LinkRules
from prefold.proxy.replicas.messages import Told
from prefold.proxy.replicas.seal import Seal

PAGE = (Path(__file__).parents[4] / "docs" / "replicas.md").read_text(encoding="utf-8")


class Nobody:
    """A Receiver."""

    def heard(self, source: int, messages: Sequence[Told], now: float) -> None: ...

    def lost(self, source: int, now: float) -> None: ...


def never() -> AbstractAsyncContextManager[Any]:
    raise AssertionError("nothing is opened before it runs")


async def test_every_metric_of_replicas_is_documented_and_the_other_way_round() -> None:
    """By the names that a scrape shows; the lag once it is known."""
    seal = Seal(b"a secret of some length")
    rules = LinkRules(interval_s=1.0, max_bytes=1, ttl_s=1.0, pins_ttl_s=1.0, buffer_bytes=1)
    link = Link(seal=seal, opened=never, rules=rules, clock=lambda: 0.0)
    inbox = Inbox(seal, Nobody(), 0.0)
    registry = CollectorRegistry()
    registry.register(ReplicaMetrics(link, inbox, lambda: 3))
    shared = SharedSegments(
        cache=SegmentCache(1),
        sealed=SealedKept(seal),
        opened=never,
        rules=ShareRules(wait_s=1.0, max_bytes=1, ttl_s=1.0),
        clock=lambda: 0.0,
    )
    registry.register(SharedSegmentMetrics(shared))
    shown = generate_latest(registry).decode()
    assert "prefold_replicas_redis_up 0.0" in shown
    assert "prefold_replicas_others 3.0" in shown
    assert "lag" not in shown

    inbox.lag_s = 0.5
    exposed = set(re.findall(r"^# TYPE (\S+)", generate_latest(registry).decode(), re.MULTILINE))
    assert set(re.findall(r"^\| `(prefold_\w+)`", PAGE, re.MULTILINE)) == exposed
