"""The fleet: which backends there are, and which may take a request for a model now."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from statistics import median
from typing import Any

from prefold.backends.backend import Backend


class BackendPool:
    def __init__(self, backends: Sequence[Backend], initial_prefill_tokens_per_s: float) -> None:
        self._backends: dict[str, Backend] = {}
        self._initial_rate = initial_prefill_tokens_per_s
        self._on_change: Callable[[], None] | None = None
        for backend in backends:
            self._take_in(backend)

    def __iter__(self) -> Iterator[Backend]:
        return iter(self._backends.values())

    def __getitem__(self, name: str) -> Backend:
        return self._backends[name]

    def __contains__(self, name: str) -> bool:
        return name in self._backends

    def notify(self, on_change: Callable[[], None]) -> None:
        """Who is to be told when candidates may have appeared, or the last of them gone."""
        self._on_change = on_change

    def add(self, backend: Backend) -> None:
        """To a fleet at work: it takes requests from its first good probe on, a few at first.
        Raises ValueError if the name is taken."""
        if backend.name in self._backends:
            raise ValueError(f"there is a backend {backend.name!r} already")
        backend.health.joins()
        self._take_in(backend)

    def remove(self, name: str) -> Backend:
        """It takes no new requests; those it has end as they would. Raises KeyError."""
        backend = self._backends.pop(name)
        self._changed()
        return backend

    def _take_in(self, backend: Backend) -> None:
        self._backends[backend.name] = backend
        backend.on_change = self._changed

    def _changed(self) -> None:
        if self._on_change is not None:
            self._on_change()

    def models(self) -> dict[str, dict[str, Any]]:
        """Every model that some backend listed when it was last ready, with the card of the first
        one that did, in order of discovery."""
        found: dict[str, dict[str, Any]] = {}
        for backend in self:
            for served in backend.facts.models if backend.facts is not None else ():
                found.setdefault(served.id, served.card)
        return found

    def candidates(
        self, model: str | None, now: float, excluded: Collection[str] = ()
    ) -> list[Backend]:
        """Backends with a free place that list `model` (any model for None), less the `excluded`
        names: the usable ones, and in panic the ejected ones where no usable one has room."""
        usable, spare = self._able(model, now, excluded)
        return _with_room(usable) or (_with_room(spare) if spare else spare)

    def serving(self, model: str | None, now: float, excluded: Collection[str] = ()) -> bool:
        """Whether there would be a candidate if all had a free place."""
        return any(self._able(model, now, excluded))

    def _able(
        self, model: str | None, now: float, excluded: Collection[str]
    ) -> tuple[list[Backend], list[Backend]]:
        """Those to choose from, and those to fall back on.

        When passive evidence has ejected more than half of those that answer their probes, the
        ejected ones are fallen back on rather than to refuse (panic mode, after Envoy): what so
        many share is hardly their own fault. Envoy spreads the load over all; here the few that
        still work come first, since their load is bounded by their places.
        """
        usable: list[Backend] = []
        ejected: list[Backend] = []
        for backend in self._backends.values():
            health = backend.health
            if health.reachable and backend.serves(model):
                (usable if health.usable(now) else ejected).append(backend)
        spare = ejected if len(ejected) > len(usable) else []
        if excluded:
            return _without(usable, excluded), _without(spare, excluded)
        return usable, spare

    def prefill_rates(self, backends: Sequence[Backend]) -> list[float]:
        """Tokens per second as learned, in the order given; before that the mean of what others
        have shown, so that a backend is not preferred, or shunned, for being new. The mean is taken
        at most once."""
        learned = [backend.rate.tokens_per_s for backend in backends]
        known = [rate for rate in learned if rate is not None]
        if len(known) == len(learned):
            return known
        mean = self._mean_rate()
        return [mean if rate is None else rate for rate in learned]

    def routing_rates(self, backends: Sequence[Backend], now: float) -> list[float]:
        """What routing is to take their rates for, in the order given: those of their middle, but
        where what was seen of one speaks against it; less while one has just returned. Taken for
        what they seem, the one of several equal backends that was luckiest with its times would
        attract everything."""
        if not backends:
            return []
        rates = self.prefill_rates(backends)
        middle = median(rates)
        rates = [
            middle if backend.rate.may_be(middle) else rate
            for backend, rate in zip(backends, rates, strict=True)
        ]
        return [
            rate * backend.health.warmth(now) for backend, rate in zip(backends, rates, strict=True)
        ]

    def _mean_rate(self) -> float:
        """Over the whole fleet."""
        rates = [backend.rate.tokens_per_s for backend in self]
        known = [rate for rate in rates if rate is not None]
        return sum(known) / len(known) if known else self._initial_rate

    def __repr__(self) -> str:
        return f"<BackendPool {list(self)!r}>"


def _with_room(backends: list[Backend]) -> list[Backend]:
    return [backend for backend in backends if backend.has_room]


def _without(backends: list[Backend], excluded: Collection[str]) -> list[Backend]:
    return [backend for backend in backends if backend.name not in excluded]
