"""What the dashboard and the alerts ask Prometheus for, and what there is to be asked for."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser
import yaml

ROOT = Path(__file__).parents[2]
DASHBOARD = ROOT / "deploy" / "grafana" / "dashboards" / "prefold.json"
ALERTS = ROOT / "deploy" / "prometheus" / "alerts.yml"
CONFIG = ROOT / "deploy" / "prometheus" / "prometheus.yml"

FROM_PROMETHEUS = {"instance", "job"}
HISTOGRAM_SUFFIXES = ("_bucket", "_sum", "_count")


def panels() -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]
    return listed


def dashboard_queries() -> list[str]:
    """As Grafana would send them, with every variable at All."""
    written = [target["expr"] for panel in panels() for target in panel.get("targets", ())]
    return [with_variables(expression) for expression in written]


def with_variables(expression: str) -> str:
    for name, value in (
        ("$__rate_interval", "1m"),
        ("$__range", "1h"),
        ("$instance", ".*"),
        ("$model", ".*"),
        ("$backend", ".*"),
    ):
        expression = expression.replace(name, value)
    assert "$" not in expression, expression
    return expression


def alerts() -> list[dict[str, Any]]:
    groups = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def selected(expression: str) -> Iterator[tuple[str, set[str]]]:
    """Each metric's name with the labels that its selector and the aggregation around it name."""
    yield from _selected(promql_parser.parse(expression), set())


def _selected(part: Any, grouped: set[str]) -> Iterator[tuple[str, set[str]]]:
    match part:
        case promql_parser.VectorSelector():
            matched = {matcher.name for matcher in part.matchers.matchers}
            assert part.name is not None, "a selector without a metric's name"
            yield part.name, matched | grouped
        case promql_parser.MatrixSelector():
            yield from _selected(part.vector_selector, grouped)
        case promql_parser.AggregateExpr():
            labels = set(part.modifier.labels) if part.modifier else set()
            yield from _selected(part.expr, grouped | labels)
        case promql_parser.Call():
            for argument in part.args:
                yield from _selected(argument, grouped)
        case promql_parser.BinaryExpr():
            yield from _selected(part.lhs, grouped)
            yield from _selected(part.rhs, grouped)
        case promql_parser.ParenExpr() | promql_parser.UnaryExpr():
            yield from _selected(part.expr, grouped)
        case promql_parser.NumberLiteral() | promql_parser.StringLiteral():
            return
        case _:
            raise AssertionError(f"not looked into: {type(part).__name__}")


def documented() -> dict[str, set[str]]:
    """Labels by metric, from the tables that tests/unit/test_docs.py holds to the exposition, and
    from the texts on workers and replicas, whose metrics have no labels."""
    reference = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
    found = {
        name: {label.strip() for label in labels.split(",") if label.strip()}
        for name, labels in re.findall(r"^\| `(prefold_\w+)` \|([^|]*)\|", reference, re.M)
    }
    replicas = (ROOT / "docs" / "replicas.md").read_text(encoding="utf-8")
    for name in re.findall(r"^\| `(prefold_replicas_\w+)`", replicas, re.MULTILINE):
        found[name] = set()
    for name in ("prefold_workers", "prefold_lost_records_total"):
        assert name in reference
        found[name] = set()
    return found


def metric_of(series: str) -> str:
    """A histogram's series are three; their metric is what they have in common."""
    for suffix in HISTOGRAM_SUFFIXES:
        if series.endswith(suffix):
            return series.removesuffix(suffix)
    return series
