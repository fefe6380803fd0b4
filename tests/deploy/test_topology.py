"""What docker-compose.yml starts, started by hand: real engines, Redis and Prometheus."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator

import openai
import pytest

from prefold.backends.embedded import EnginePaths
from tests.deploy.promql import alerts, dashboard_queries, metric_of, selected
from tests.deploy.topology import Topology, topology
from tests.support.prometheus_server import query, wait_for

pytestmark = pytest.mark.engine

SYSTEM = "You answer questions of visitors about the opening hours of the city's museums. " * 12
REQUESTS = 8
NOT_WANTED_HERE = ("prefold_compression_", "prefold_ledger_", "prefold_divergence_")
"""Features that the compose file's settings leave off."""
NOT_BY_NOW = {
    "prefold_caches_emptied_total",
    "prefold_documents_moved_total",
    "prefold_index_found_tokens_total",
    "prefold_index_lost_tokens_total",
    "prefold_lost_records_total",
    "prefold_prefill_overhead_seconds",
    "prefold_prefix_divergences_total",
    "prefold_retries_total",
    "prefold_unreported_requests_total",
    "prefold_workers",
}
"""Nothing went wrong, and there is one process for each proxy."""


@pytest.fixture(scope="module")
def running(
    engine_paths: EnginePaths, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Topology]:
    """After eight streamed chats with one beginning, four by each proxy, were scraped."""
    with topology(tmp_path_factory.mktemp("topology")) as made:
        for number in range(REQUESTS):
            client = openai.OpenAI(
                base_url=f"{made.proxies[number % 2].urls[0]}/v1", api_key="none", max_retries=0
            )
            with client:
                events = client.chat.completions.create(
                    model="smollm2",
                    max_tokens=8,
                    stream=True,
                    messages=[
                        {"role": "system", "content": SYSTEM},
                        {"role": "user", "content": f"Is museum {number} open?"},
                    ],
                )
                assert list(events)
        wait_for(lambda: made.value('sum(prefold_requests_total{outcome="ok"})') == REQUESTS)
        yield made


def test_replicas_find_the_prefix_that_the_other_one_sent(running: Topology) -> None:
    """All but the first chat hit, whichever proxy they came by; engines reported it."""
    saved = running.value("sum(prefold_saved_prefill_tokens_total)")
    prompts = running.value("sum(prefold_prompt_tokens_total)")

    assert saved / prompts > 0.75
    assert query(running.prometheus, 'count(up{job="prefold"} == 1)')[0]["value"][1] == "2"


def test_prometheus_understands_every_panel_and_has_what_it_shows(running: Topology) -> None:
    """Of what is on and has happened: no panel is empty."""
    wait_for(lambda: query(running.prometheus, "rate(prefold_requests_total[1m])"))
    for expression in dashboard_queries():
        result = query(running.prometheus, expression)
        metrics = {metric_of(series) for series, _ in selected(expression)}
        if not metrics & NOT_BY_NOW and not any(m.startswith(NOT_WANTED_HERE) for m in metrics):
            assert result, expression


def test_no_alert_while_all_is_well(running: Topology) -> None:
    """And Prometheus took every rule."""
    with urllib.request.urlopen(f"{running.prometheus}/api/v1/rules", timeout=10) as answer:
        groups = json.load(answer)["data"]["groups"]
    rules = {rule["name"]: rule for group in groups for rule in group["rules"]}

    assert set(rules) == {alert["alert"] for alert in alerts()}
    assert all(rule["state"] == "inactive" for rule in rules.values())
    assert all(rule["health"] == "ok" for rule in rules.values())


def test_the_admin_port_wants_its_key(running: Topology) -> None:
    """It is open to others in a container."""
    for proxy in running.proxies:
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(f"{proxy.urls[1]}/metrics", timeout=5)


@pytest.mark.timeout(180)
def test_an_engine_that_ends_is_an_alert_and_proxies_end_cleanly(running: Topology) -> None:
    """Last of this file: nothing is left of the topology after it."""
    assert running.engines[0].end() == 0
    gone = 'ALERTS{alertname="PrefoldBackendDown", alertstate="pending"}'
    wait_for(lambda: len(query(running.prometheus, gone)) == len(running.proxies))

    assert [proxy.end() for proxy in running.proxies] == [0, 0]
    down = 'ALERTS{alertname="PrefoldDown", alertstate="pending"}'
    wait_for(lambda: len(query(running.prometheus, down)) == len(running.proxies))
