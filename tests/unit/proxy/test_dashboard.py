"""What the dashboard is told: samples of the books, distributions by arm, the ledger's reading."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from prefold.measurement.books import Books
from prefold.measurement.prometheus import BackendGauges
from prefold.measurement.record import RequestOutcome
from prefold.proxy.dashboard.figures import SHARES, figures
from prefold.proxy.dashboard.ledger_view import KEPT_S, LedgerView
from prefold.proxy.dashboard.library import STATIC
from prefold.proxy.dashboard.routes import FILES
from prefold.proxy.dashboard.series import Sample, Series, sample
from tests.support.ledger import Clock, record, rows_of
from tests.support.ledger import ledger as ledger_at


def gauges(name: str = "b0", **members: float) -> BackendGauges:
    known: dict[str, object] = {
        "backend": name,
        "state": "up",
        "mode": "feedback",
        "in_flight": 2,
        "queued_tokens": 0,
        "prefill_tokens_per_s": 5000.0,
        "believed_tokens": 10,
    }
    return BackendGauges(**{**known, **members})  # type: ignore[arg-type]


def books() -> Books:
    """Three answers of 100 prompt tokens, one of which the index knew nothing of and one on which
    the engine said nothing; and a failure."""
    made = Books()
    known = {"prompt_tokens": 100, "available_tokens": 80, "expected_tokens": 64}
    made.add(record(arm="a", reported_tokens=60, tokens=[0.1, 0.2], **known))
    made.add(record(arm="b", prompt_tokens=100, reported_tokens=10, tokens=[0.4]))
    made.add(record(arm="b", **known))
    made.add(record(arm="b", outcome=RequestOutcome.UPSTREAM_FAILED, **known))
    return made


def test_a_sample_is_of_what_the_books_and_the_backends_hold() -> None:
    """Hits are compared where all three kinds are known; savings are of all that was reported."""
    taken = sample(books(), [gauges(), gauges("b1", in_flight=3)], waiting=4, at=7.0)
    assert taken == Sample(
        at=7.0,
        in_flight=5,
        waiting=4,
        requests=4,
        answered=3,
        prompt_tokens=200,
        saved_tokens=70,
        output_tokens=0,
        compared_tokens=100,
        available_tokens=80,
        expected_tokens=64,
        reported_tokens=60,
        ttft_count=2,
        ttft_s=0.5,
    )


def test_a_series_keeps_the_latest() -> None:
    """So many; all columns are as long, and none is missing before the first sample."""
    series = Series(kept=3)
    assert series.columns() == {name: [] for name in Sample._fields}
    for at in range(5):
        series.add(sample(Books(), [], waiting=0, at=float(at)))
    assert series.columns()["at"] == [2.0, 3.0, 4.0]
    assert {len(column) for column in series.columns().values()} == {3}


def test_distributions_are_of_arms_or_of_all() -> None:
    """Ascending times at given shares of the answers; a group without streams has no points."""
    told = figures(books=books(), series=Series(), backends=[], gauges=[], waiting=0, now=1.0)
    assert set(told["distributions"]) == {"a", "b"}
    curve = told["distributions"]["a"]["ttft_ms"]
    assert curve["count"] == 1
    assert [share for share, _ in curve["points"]] == list(SHARES)
    assert [ms for _, ms in curve["points"]] == pytest.approx([100.0] * len(SHARES), rel=0.01)
    assert told["distributions"]["b"]["itl_ms"] == {"count": 0, "points": []}

    plain = Books()
    plain.add(record(tokens=[0.1, 0.2]))
    told = figures(books=plain, series=Series(), backends=[], gauges=[], waiting=0, now=1.0)
    assert set(told["distributions"]) == {"all"}


def test_arms_are_told_apart_in_the_report_and_hits_on_the_same_requests() -> None:
    """An answer on which the engine said nothing is in no hit."""
    told = figures(books=books(), series=Series(), backends=[], gauges=[], waiting=0, now=1.0)
    arms = told["report"]["arms"]
    assert {name: one["requests"] for name, one in arms.items()} == {"a": 1, "b": 3}
    assert arms["b"]["hits"] is None
    assert told["report"]["total"]["hits"] == {
        "requests": 1,
        "prompt_tokens": 100,
        "available_tokens": 80,
        "expected_tokens": 64,
        "reported_tokens": 60,
    }


def test_a_backend_is_shown_with_what_is_believed_of_it() -> None:
    """Its state as /backends has it, and its cache; an unknown size is none."""
    told = figures(
        books=Books(),
        series=Series(),
        backends=[{"name": "b0", "in_flight": 2}],
        gauges=[gauges(capacity_tokens=50, prediction_error=0.25)],
        waiting=0,
        now=1.0,
    )
    assert told["backends"] == [
        {
            "name": "b0",
            "in_flight": 2,
            "believed_tokens": 10,
            "capacity_tokens": 50,
            "prefill_tokens_per_s": 5000.0,
            "prediction_error": 0.25,
        }
    ]


async def settled(view: LedgerView) -> dict[str, object]:
    """What a reading that is under way comes to."""
    for _ in range(3000):
        told = view.ask()
        if told["state"] != "reading":
            return told
        await asyncio.sleep(0.02)
    raise AssertionError("it was not read")


async def test_a_ledger_is_read_by_the_commands_and_again_when_it_is_old(tmp_path: Path) -> None:
    """Meanwhile what was read last is shown."""
    path, clock = tmp_path / "l", Clock(0.0)
    book = ledger_at(path, wall=Clock(4_000_000_000.0))
    book.add(record())
    book.write()
    assert len(rows_of(path)) == 1
    view = LedgerView(path, clock)
    assert view.ask() == {"state": "reading"}
    told = await settled(view)
    assert told["state"] == "ready"
    assert isinstance(told["report"], dict)
    assert told["report"]["total"]["requests"] == 1
    assert isinstance(told["diagnosis"], dict)
    clock.now = KEPT_S + 1
    assert view.ask()["state"] == "ready"
    await view.close()


async def test_a_ledger_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    """As the command says it; where none is kept, nothing is run."""
    assert LedgerView(None, Clock(0.0)).ask() == {"state": "none"}
    view = LedgerView(tmp_path / "none", Clock(0.0))
    told = await settled(view)
    assert told["state"] == "failed"
    assert "no such file" in str(told["reason"])
    await view.close()


def test_the_page_names_only_its_own_files_and_runs_nothing_inline() -> None:
    """All that it names is served, from here; there are no handlers or styles in tags."""
    page = (STATIC / "index.html").read_text(encoding="utf-8")
    named = re.findall(r'(?:src|href)="([^"]+)"', page)
    served = {f"dashboard/{name}" for name in (*FILES, "plotly.js")} | {"data:,"}
    assert set(named) == served
    assert not re.search(r"\son\w+=|\sstyle=|<script>|<style>|https?://", page)
    for name in FILES:
        assert (STATIC / name).is_file()
