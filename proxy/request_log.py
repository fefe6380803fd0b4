"""One line for each request, of figures and configured names only.

The lines of a moment are written together: a write for each would cost a request as much as its
routing does.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from prefold.measurement.record import RequestRecord

HOLD_S = 0.1


class RequestLog:
    """In the form of the other log lines. Mutable; lines wait for HOLD_S seconds, or for `flush`.
    For one event loop."""

    def __init__(self, write: Callable[[str], object]) -> None:
        self._write = write
        self._lines: list[str] = []
        self._second = 0
        self._date = ""

    def add(self, record: RequestRecord) -> None:
        if not self._lines:
            asyncio.get_running_loop().call_later(HOLD_S, self.flush)
        self._lines.append(f"{self._stamp(time.time())} INFO prefold.requests {line_of(record)}\n")

    def flush(self) -> None:
        if self._lines:
            lines, self._lines = self._lines, []
            self._write("".join(lines))

    def _stamp(self, now: float) -> str:
        """As logging writes it: local time, with milliseconds."""
        second = int(now)
        if second != self._second:
            self._second = second
            self._date = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(second))
        return f"{self._date},{int((now - second) * 1000):03d}"


def line_of(record: RequestRecord) -> str:
    cached = record.reported_tokens
    return (
        f"{record.request_id} {record.endpoint} {record.status} {record.outcome}"
        f" model={record.model or '-'}"
        f" backend={record.backend or '-'} reason={record.reason or '-'}"
        f" mode={record.mode or '-'} attempts={record.attempts}"
        f" prompt_tokens={_or_dash(record.prompt_tokens)} cached={_or_dash(cached)}"
        f" expected={_or_dash(record.expected_tokens)}"
        f" output_tokens={_or_dash(record.output_tokens)}"
        f" ttft_ms={_ms(record.ttft_s)} e2e_ms={_ms(record.e2e_s)}"
    )


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1000:.1f}"


def _or_dash(tokens: int | None) -> int | str:
    return "-" if tokens is None else tokens
