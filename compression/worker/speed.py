"""How fast a compressor is, as far as was seen."""

from __future__ import annotations

DECAY = 0.9
"""For each batch, of what is known of the speed: the latest ten count for two thirds."""


class Speed:
    """What was seen last counts most. Pure."""

    def __init__(self) -> None:
        self._chars = self._seconds = 0.0

    def observe(self, chars: int, seconds: float) -> None:
        self._chars = self._chars * DECAY + chars
        self._seconds = self._seconds * DECAY + seconds

    @property
    def chars_per_s(self) -> float | None:
        """None until something was observed."""
        return self._chars / self._seconds if self._seconds else None
