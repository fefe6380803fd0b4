"""Which settings of compression may change while requests pass. The others take a restart: those
that make the compressor and its processes, and `documents` and `tools`, which decide where texts
begin and end, so that conversations under way would go out in another form than they did.
"""

from __future__ import annotations

import dataclasses

from prefold.proxy.settings import Compression

LIVE = (
    *("mode", "by_header", "rate", "min_tokens", "min_chars"),
    *("deadline_s", "margin_s", "speculative"),
)


def with_live(old: Compression, new: Compression) -> Compression:
    """The old, with what may change as it is in the new."""
    return dataclasses.replace(old, **{name: getattr(new, name) for name in LIVE})
