"""What a case expects of the official clients, held against what they saw."""

from __future__ import annotations

from collections.abc import Mapping

from tests.wire.cases import Case
from tests.wire.clients import Seen
from tests.wire.requests import CHAT
from tests.wire.stage import CLIENTS


def wrong_in_client(case: Case, client: str, seen: Seen) -> list[str]:
    """Every way in which a client saw something else than the case expects."""
    wrong = []
    outcome = expected_outcome(case, client)
    if seen.outcome != outcome:
        wrong.append(f"{seen.outcome} ({seen.error}: {seen.message}), not {outcome}")
    if outcome == "ok":
        if "text" in case.expected and seen.text != case.expected["text"]:
            wrong.append(f"text {seen.text[:200]!r}, not {case.expected['text'][:200]!r}")
        if "finish" in case.expected and normal(seen.finish) != normal(case.expected["finish"]):
            wrong.append(f"finish {seen.finish}, not {case.expected['finish']}")
    return wrong


def expected_outcome(case: Case, client: str) -> str:
    """As `clients` says; else an error where the answer is one or is cut."""
    expected = case.expected
    named: Mapping[str, str] = expected.get("clients", {})
    if client == "node7" and "node7" not in named:
        client = "node"
    failed = expected.get("relay") == "prefix" or expected.get("status", 200) >= 400
    return named.get(client, "error" if failed else "ok")


def clients_of(case: Case) -> tuple[str, ...]:
    """The clients that can make this case's request: none can make one given byte by byte."""
    if "request" in case.input or "sweep" in case.input or "scenario" in case.input:
        return ()
    if case.expected.get("clients") == {}:
        return ()
    return CLIENTS.get(case.input.get("path", CHAT), ())


def normal(finish: str | None) -> str | None:
    """The AI SDK has its own spelling, and its own word for none."""
    return None if finish in (None, "other", "unknown") else finish.replace("_", "-")
