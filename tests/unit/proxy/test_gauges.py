"""What a scrape shows of the backends, and what it costs."""

from prefold.backends.backend import Backend
from prefold.backends.health import HealthRules
from prefold.backends.pool import BackendPool
from prefold.backends.rate import PrefillRate
from prefold.proxy.gauges import gauges


class CountedRate(PrefillRate):
    """Counts how often it is asked, over all of them."""

    def __init__(self, asked: list[None]) -> None:
        super().__init__()
        self._asked = asked

    @property
    def tokens_per_s(self) -> float | None:
        self._asked.append(None)
        return super().tokens_per_s


def fleet(count: int) -> list[Backend]:
    return [
        Backend(name=f"b{number}", url="", headers={}, engine=None, rules=HealthRules())
        for number in range(count)
    ]


def test_a_scrape_of_a_large_fleet_costs_a_look_at_each() -> None:
    """Not a look at everyone for each whose rate is not known yet."""
    asked: list[None] = []
    backends = fleet(256)
    for one in backends:
        one.rate = CountedRate(asked)
    shown = list(gauges(BackendPool(backends, 5000.0), lambda name: 0))

    assert [one.backend for one in shown] == [one.name for one in backends]
    assert {one.prefill_tokens_per_s for one in shown} == {5000.0}
    assert 256 <= len(asked) <= 512


def test_an_overhead_is_shown_once_it_is_known() -> None:
    """The rate of a backend that was not observed is the mean; it has no overhead of its own."""
    seen, new = backends = fleet(2)
    for number in range(32):
        tokens = 100 * (1 + number)
        seen.rate.observe(tokens, 0.05 + tokens / 1000)
    first, second = gauges(BackendPool(backends, 5000.0), lambda name: 0)

    assert round(first.prefill_tokens_per_s) == round(second.prefill_tokens_per_s) == 1000
    assert first.prefill_overhead_s is not None
    assert round(first.prefill_overhead_s, 3) == 0.05
    assert second.prefill_overhead_s is None
    assert new.rate.overhead_s is None
