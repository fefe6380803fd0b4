"""Whether a request is to be compressed: by the settings, its model, its arm, or its own header."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum

from prefold.proxy.errors import BadRequest

HEADER = "X-Prefold-Compression"
"""Of a request: the mode. Of an answer: what was done."""


class Switch(StrEnum):
    OFF = "off"
    SHADOW = "shadow"  # compress, measure, send the original
    ON = "on"
    AUTO = "auto"  # the gate decides


@dataclass(frozen=True, slots=True, kw_only=True)
class Switches:
    """`models`: those that are set otherwise than `default`. `by_header`: a request may ask for it
    also where it is off. Requests of tenants in `forbidden` are never compressed."""

    default: Switch
    models: Mapping[str, Switch]
    by_header: bool
    forbidden: Collection[str]

    def of(self, model: str, arm: str, headers: Mapping[str, str], tenant: str) -> Switch | None:
        """None: it is not to be looked at. OFF: not this time, by its header. `arm`: the mode of
        its arm, "" for none. Raises BadRequest for a header that asks for what there is not."""
        switch = Switch(arm) if arm else self.models.get(model, self.default)
        value = headers.get(HEADER)
        if value is not None:
            try:
                wanted = Switch(value.strip().lower())
            except ValueError:
                raise BadRequest(f"{HEADER}: expected one of {', '.join(Switch)}.") from None
            if switch is Switch.OFF and not self.by_header:
                return None
            switch = wanted
        elif switch is Switch.OFF:
            return None
        return None if tenant in self.forbidden else switch
