"""The judgement on a run, as a table for people and as JSON."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

from tests.chaos.clients import FAULTS_OF_BACKENDS
from tests.chaos.storm import Outcome

DESCRIPTORS_ALLOWED = 2
"""For each backend, above those before the run: probes come and go on connections of their own."""


def broken(outcome: Outcome) -> list[str]:
    """The invariants that do not hold, in words."""
    found = [f"{count} x {what}" for what, count in outcome.tally.faults.items()]
    found += [
        f"{count} x status {status} that nobody asked for"
        for status, count in outcome.tally.statuses.items()
        if status not in FAULTS_OF_BACKENDS
    ]
    if outcome.leases_left:
        found.append(f"{outcome.leases_left} leases left")
    if outcome.log_faults:
        found.append(f"{outcome.log_faults} tracebacks in the log")
    if not outcome.proxy_alive:
        found.append("the proxy died")
    if not outcome.recovered:
        found.append("not every backend was taken back")
    more = outcome.after.descriptors - outcome.before.descriptors
    if more > DESCRIPTORS_ALLOWED * outcome.backends:
        found.append(f"{more} descriptors more than before")
    return found


def as_dict(outcome: Outcome) -> dict[str, Any]:
    return {
        "seed": outcome.seed,
        "seconds": outcome.seconds,
        "faults": dict(outcome.faults),
        "requests": dict(outcome.tally.requests),
        "ends": {str(end): count for end, count in outcome.tally.ends.items()},
        "error_statuses": {str(status): n for status, n in outcome.tally.statuses.items()},
        "retried_attempts": outcome.retried,
        "leases_left": outcome.leases_left,
        "rss_kib": [outcome.before.rss_kib, outcome.after.rss_kib],
        "descriptors": [outcome.before.descriptors, outcome.after.descriptors],
        "log_faults": outcome.log_faults,
        "longest_health_answer_s": round(outcome.stalls.longest_s, 4),
        "health_answers_over_100_ms": outcome.stalls.over_100_ms,
        "health_answers": outcome.stalls.asked,
        "broken": broken(outcome),
    }


def show(outcome: Outcome, console: Console) -> None:
    table = Table("what", "count", box=None)
    for name, counts in (
        ("fault", outcome.faults),
        ("request", outcome.tally.requests),
        ("end", outcome.tally.ends),
        ("error status", outcome.tally.statuses),
    ):
        for key, count in sorted(counts.items(), key=lambda item: -item[1]):
            table.add_row(f"{name}: {key}", str(count))
    before, after = outcome.before, outcome.after
    table.add_row("requests in all", str(outcome.tally.requests.total()))
    table.add_row("attempts that were retried", str(outcome.retried))
    table.add_row("leases left", str(outcome.leases_left))
    table.add_row("tracebacks in the log", str(outcome.log_faults))
    table.add_row(
        "resident memory, MiB", f"{before.rss_kib / 1024:.1f} -> {after.rss_kib / 1024:.1f}"
    )
    table.add_row("descriptors", f"{before.descriptors} -> {after.descriptors}")
    table.add_row("longest answer of /health, ms", f"{outcome.stalls.longest_s * 1000:.0f}")
    table.add_row(
        "answers of /health over 100 ms", f"{outcome.stalls.over_100_ms} of {outcome.stalls.asked}"
    )
    console.print(table)
    for line in broken(outcome):
        console.print(f"BROKEN: {line}", style="bold red")
