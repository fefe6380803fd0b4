"""`python -m tests.wire.compatibility [FILE]`: every case on every client, directly and through the
proxy, and what came of it as a page (docs/compatibility.md by default).

The page has no times and no addresses: two runs of the same versions give the same page.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.wire.cases import Case, load_cases
from tests.wire.client_expectations import clients_of, wrong_in_client
from tests.wire.clients import Seen, node_clients, python_versions
from tests.wire.expectations import wrong_in_raw
from tests.wire.scenarios import SCENARIOS
from tests.wire.script import answer
from tests.wire.stage import Stage, staged

PAGE = Path(__file__).parents[2] / "docs" / "compatibility.md"
TITLES = {
    "sse_framing": "How bytes become events",
    "sse_meaning": "What events say",
    "endings": "Streams and answers that fail",
    "http_upstream": "HTTP as upstreams speak it",
    "client_request": "Requests",
    "lifecycle": "Connections and processes",
    "routing": "Routing",
    "security": "Security",
}
COLUMNS = ("python", "node", "node7", "ai", "anthropic")
HEADINGS = ("openai (Python)", "openai 6 (Node)", "openai 7 (Node)", "AI SDK", "anthropic (Python)")
AT_ONCE = 3


@dataclass(slots=True)
class Family:
    """What came of the cases of one family. `seen` is by client: directly, and through."""

    rule: str
    cases: int = 0
    plays: int = 0
    seen: dict[str, tuple[Counter[str], Counter[str]]] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)


async def run(cases: Sequence[Case]) -> tuple[Mapping[str, str], Mapping[tuple[str, str], Family]]:
    """Versions, and the families by file and id, in the order of the files."""
    families = {(case.file, case.family): Family(case.rule) for case in cases}
    plain = [case for case in cases if "scenario" not in case.input]
    async with node_clients() as node, staged(plain, node) as stage:
        for case in plain:
            await _raw(stage, case, families[case.file, case.family])
        turns = asyncio.Semaphore(AT_ONCE)
        await asyncio.gather(
            *(_clients(stage, case, families[case.file, case.family], turns) for case in plain)
        )
        node_versions = dict(node.versions)
    for case in cases:
        if "scenario" in case.input:
            family = families[case.file, case.family]
            wrong = await SCENARIOS[case.input["scenario"]](case.input["given"])
            _note(family, case, "scenario", wrong)
            family.cases += 1
    versions = {f"{name} (Node)": version for name, version in node_versions.items()}
    versions |= {f"{name} (Python)": version for name, version in python_versions().items()}
    return versions, families


async def _raw(stage: Stage, case: Case, family: Family) -> None:
    family.cases += 1
    if "sweep" not in case.input:
        _note(family, case, "raw", wrong_in_raw(case, await stage.play_raw(case)))
        return
    for offset in range(1, len(answer(case.input).payload)):
        cut = answer({**case.input, "cut_at": offset})
        wrong = wrong_in_raw(case, await stage.play_raw(case, cut.script))
        _note(family, case, f"raw, cut at {offset}", wrong)


async def _clients(stage: Stage, case: Case, family: Family, turns: asyncio.Semaphore) -> None:
    async with turns:
        for client in clients_of(case):
            directly, through = family.seen.setdefault(client, (Counter(), Counter()))
            if case.input.get("end") == "hang":
                directly["waits"] += 1
            elif case.input.get("direct") == "unsteady":
                directly["unsteady"] += 1
            else:
                directly[_word(await stage.play_client(case, client, direct=True))] += 1
            seen = await stage.play_client(case, client)
            through[_word(seen)] += 1
            _note(family, case, client, wrong_in_client(case, client, seen))


def _word(seen: Seen) -> str:
    if seen.outcome == "error":
        return "waits" if seen.error == "Waits" else "error"
    return "ok" if seen.finish not in (None, "other", "unknown") else "no finish"


def _note(family: Family, case: Case, client: str, wrong: Iterable[str]) -> None:
    family.plays += 1
    family.wrong += [f"`{case.id}`, {client}: {reason}" for reason in wrong]


def page(versions: Mapping[str, str], families: Mapping[tuple[str, str], Family]) -> str:
    """The whole page, as Markdown."""
    lines = [*_introduction(), *_versions(versions), *_counts(families)]
    for file, title in TITLES.items():
        own = {name: family for (where, name), family in families.items() if where == file}
        lines += ["", f"## {title}", "", *_rules(own), *_seen(own)]
    return "\n".join([*lines, ""])


def _introduction() -> Iterator[str]:
    yield from (
        "# Compatibility",
        "",
        "Made by `make compatibility` from a run, not written by hand. Upstreams that are scripted",
        "byte by byte stand behind a real proxy process; each case of `tests/wire/cases` is played",
        "on a raw socket, where the exact bytes and the ending count, and on the official clients,",
        "once directly and once through the proxy.",
        "",
        "What a client saw is one of:",
        "",
        "- **ok**: no error, and a reason to finish.",
        "- **no finish**: no error, and no reason to finish: to most programs a success.",
        "- **error**: the client raised, or (AI SDK) gave an error part.",
        "- **waits**: nothing more came for five seconds (where the upstream falls silent for good",
        "  that is not played directly).",
        "- **unsteady**: differs from run to run with the client alone; not played directly.",
    )


def _versions(versions: Mapping[str, str]) -> Iterator[str]:
    yield from ("", "## Versions", "", "| what | version |", "| --- | --- |")
    yield from (f"| {name} | {version} |" for name, version in sorted(versions.items()))


def _counts(families: Mapping[tuple[str, str], Family]) -> Iterator[str]:
    yield from ("", "## Counts", "", "| file | families | cases | plays | not as expected |")
    yield "| --- | --- | --- | --- | --- |"
    for file in TITLES:
        own = [family for (where, _), family in families.items() if where == file]
        yield _row(file, own)
    yield _row("all", list(families.values()))
    wrong = [reason for family in families.values() for reason in family.wrong]
    if wrong:
        yield from ("", "Not as expected:", "", *(f"- {reason}" for reason in wrong))


def _row(name: str, families: Sequence[Family]) -> str:
    sums = (
        len(families),
        sum(family.cases for family in families),
        sum(family.plays for family in families),
        sum(len(family.wrong) for family in families),
    )
    return f"| {name} | {' | '.join(map(str, sums))} |"


def _rules(families: Mapping[str, Family]) -> Iterator[str]:
    for name, family in families.items():
        yield f"- **{name}** ({family.cases}): {family.rule}."


def _seen(families: Mapping[str, Family]) -> Iterator[str]:
    """Directly -> through, with how many cases of the family each."""
    shown = {name: family for name, family in families.items() if family.seen}
    if not shown:
        return
    used = [n for n, key in enumerate(COLUMNS) if any(key in f.seen for f in shown.values())]
    yield from ("", f"| directly -> through | {' | '.join(HEADINGS[n] for n in used)} |")
    yield f"| --- |{' --- |' * len(used)}"
    for name, family in shown.items():
        cells = (_cell(family.seen.get(COLUMNS[n])) for n in used)
        yield f"| {name} | {' | '.join(cells)} |"


def _cell(seen: tuple[Counter[str], Counter[str]] | None) -> str:
    if seen is None:
        return ""
    directly, through = (_counted(counter) for counter in seen)
    return directly if directly == through else f"{directly} -> {through}"


def _counted(counter: Counter[str]) -> str:
    return ", ".join(f"{word} {count}" for word, count in sorted(counter.items()))


def main() -> None:
    versions, families = asyncio.run(run(load_cases()))
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else PAGE
    path.write_text(page(versions, families), encoding="utf-8")
    wrong = sum(len(family.wrong) for family in families.values())
    plays = sum(family.plays for family in families.values())
    print(f"{plays} plays, {wrong} not as expected; {path}")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
