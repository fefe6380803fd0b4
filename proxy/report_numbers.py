"""How figures of a report are written. None is unknown, and never looks like zero."""

from __future__ import annotations

import datetime

UNKNOWN = "-"


def moment(seconds: float) -> str:
    made = datetime.datetime.fromtimestamp(seconds).astimezone()
    return made.isoformat(sep=" ", timespec="seconds")


def count(value: int | None) -> str:
    return UNKNOWN if value is None else f"{value:,}"


def percent(share: float | None) -> str:
    return UNKNOWN if share is None else f"{share:.1%}"


def seconds(seconds: float) -> str:
    size = abs(seconds)
    if size >= 100:
        return f"{seconds:,.0f} s"
    return f"{seconds:.1f} s" if size >= 1 else f"{seconds * 1000:.0f} ms"


def number(value: float | None) -> str:
    if value is None:
        return UNKNOWN
    return f"{value:.2f}" if abs(value) < 1000 else f"{value:,.0f}"
