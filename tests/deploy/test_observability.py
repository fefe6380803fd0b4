"""What operators look at asks for what there is: dashboard, alerts, scrape settings, buckets."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
import yaml

from prefold.measurement.books import ITL_SECONDS, SECONDS
from prefold.proxy.settings import Timeouts
from tests.deploy.promql import (
    ALERTS,
    CONFIG,
    FROM_PROMETHEUS,
    alerts,
    dashboard_queries,
    documented,
    metric_of,
    panels,
    selected,
)
from tests.support.prometheus_server import promtool


@pytest.mark.parametrize(
    "expression", [*dashboard_queries(), *(alert["expr"] for alert in alerts())]
)
def test_queries_name_only_metrics_and_labels_that_exist(expression: str) -> None:
    """A panel on a name that is gone would be empty, and an alert on one would never come."""
    known = documented()
    for series, labels in selected(expression):
        if series == "up":
            assert labels <= FROM_PROMETHEUS
            continue
        metric = metric_of(series)
        assert metric in known
        with_le = {"le"} if series.endswith("_bucket") else set()
        assert labels <= known[metric] | FROM_PROMETHEUS | with_le


def test_every_metric_is_on_the_dashboard() -> None:
    """What is worth counting is worth seeing."""
    shown = {metric_of(series) for query in dashboard_queries() for series, _ in selected(query)}

    assert set(documented()) <= shown


def test_panels_have_ids_of_their_own_and_do_not_overlap() -> None:
    """Grafana would move the second one, or show the wrong one."""
    cells: set[tuple[int, int]] = set()
    for panel in panels():
        place = panel["gridPos"]
        covered = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert place["x"] + place["w"] <= 24
        assert not covered & cells, panel["title"]
        cells |= covered
    identities = [panel["id"] for panel in panels()]
    assert len(set(identities)) == len(identities)


def test_each_alert_says_how_bad_it_is_and_what_to_do() -> None:
    """It is read at night, by somebody else."""
    for alert in alerts():
        assert alert["labels"]["severity"] in {"critical", "warning", "info"}
        assert alert["annotations"]["summary"]
        assert alert["annotations"]["description"].endswith(".")


def test_prometheus_takes_the_settings_and_the_rules() -> None:
    """promtool reads them as the server does."""
    promtool("check", "rules", ALERTS)
    promtool("check", "config", "--syntax-only", CONFIG)


def test_alerts_come_when_they_should_and_only_then(tmp_path: Path) -> None:
    """The cases of alerts_test.yml, played by Prometheus' own rule tester."""
    cases = (Path(__file__).parent / "alerts_test.yml").read_text(encoding="utf-8")
    played = tmp_path / "alerts_test.yml"
    played.write_text(cases.replace("ALERTS", str(ALERTS)), encoding="utf-8")
    named = {
        case["alertname"]
        for test in yaml.safe_load(cases)["tests"]
        for case in test["alert_rule_test"]
    }

    assert named <= {alert["alert"] for alert in alerts()}, "promtool passes over unknown names"
    promtool("test", "rules", played)


@pytest.mark.parametrize("bounds", [SECONDS, ITL_SECONDS])
def test_a_quantile_from_buckets_is_off_by_a_bounded_factor(bounds: tuple[float, ...]) -> None:
    """Prometheus interpolates within one bucket, so none may be wide."""
    assert all(upper / lower <= 2.5 for lower, upper in pairwise(bounds))


def test_no_time_to_first_token_that_is_waited_for_lies_beyond_the_last_bucket() -> None:
    """Quantiles in the last bucket would be its lower bound."""
    assert SECONDS[-1] >= Timeouts().first_byte_s
