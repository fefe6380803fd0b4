"""`prefold serve` as a process of its own, as a user runs it."""

from __future__ import annotations

import asyncio
import re
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from tests.wire.raw_client import ask, post

_LISTENS = re.compile(r"prefold listens on (\S+), admin on (\S+)")
Labels = frozenset[tuple[str, str]]


@dataclass(slots=True, kw_only=True)
class ProxyProcess:
    process: asyncio.subprocess.Process
    url: str
    admin_url: str
    said: list[str] = field(default_factory=list)
    """Every line of its standard error."""

    async def metrics(self) -> Mapping[tuple[str, Labels], float]:
        answer = await ask(self.admin_url, admin_request("/metrics"))
        return {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(answer.body.decode())
            for sample in family.samples
        }

    async def total(self, name: str, label: str | None = None) -> Mapping[str, float]:
        """Sums of one metric, by one of its labels."""
        sums: dict[str, float] = {}
        for (known, labels), value in (await self.metrics()).items():
            if known == name:
                key = dict(labels)[label] if label is not None else ""
                sums[key] = sums.get(key, 0) + value
        return sums

    async def outcomes(self) -> Mapping[str, int]:
        """Requests by outcome, so far; the report is cheaper to read than the metrics."""
        told = (await self._get("/report"))["total"]["outcomes"]
        return {str(name): int(count) for name, count in told.items()}

    async def states(self) -> Mapping[str, str]:
        """Health of each backend, by name."""
        listed = (await self._get("/backends"))["backends"]
        return {backend["name"]: backend["state"] for backend in listed}

    async def _get(self, path: str) -> Any:
        return (await ask(self.admin_url, admin_request(path))).json()

    def memory_bytes(self) -> int:
        """Resident now."""
        pages = Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]
        return int(pages) * 4096


def admin_request(path: str) -> bytes:
    return post(path, b"", {"Host": "127.0.0.1"}, "GET")


@asynccontextmanager
async def proxy_process(config: str, *flags: str) -> AsyncIterator[ProxyProcess]:
    """Raises RuntimeError if it does not come up."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "prefold.toml"
        path.write_text(config, encoding="utf-8")
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "prefold.proxy.cli", "serve"),
            *("--config", str(path), *flags),
            stderr=asyncio.subprocess.PIPE,
        )
        assert process.stderr is not None
        said: list[str] = []
        listening = await _listening(process.stderr, said)
        rest = asyncio.create_task(_collect(process.stderr, said))
        try:
            url, admin_url = listening
            yield ProxyProcess(process=process, url=url, admin_url=admin_url, said=said)
        finally:
            if process.returncode is None:
                process.terminate()
            await process.wait()
            await rest


async def _listening(lines: asyncio.StreamReader, said: list[str]) -> tuple[str, str]:
    async with asyncio.timeout(30):
        while line := await lines.readline():
            said.append(line.decode())
            if found := _LISTENS.search(said[-1]):
                return found[1], found[2]
    raise RuntimeError(f"the proxy did not start: {''.join(said)[-2000:]}")


async def _collect(lines: asyncio.StreamReader, said: list[str]) -> None:
    while line := await lines.readline():
        said.append(line.decode(errors="replace"))


def toml(tables: Mapping[str, Any]) -> str:
    """Settings as TOML: tables of plain values, lists of tables, tables of tables."""
    lines: list[str] = []
    for name, value in tables.items():
        for table in value if isinstance(value, list) else [value]:
            lines.append(f"[[{name}]]" if isinstance(value, list) else f"[{name}]")
            lines += [f"{key} = {_literal(inner)}" for key, inner in table.items()]
    return "\n".join([*lines, ""])


def _literal(value: Any) -> str:
    """As TOML; strings without anything to escape."""
    if isinstance(value, list):
        return f"[{', '.join(map(_literal, value))}]"
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else str(value)
