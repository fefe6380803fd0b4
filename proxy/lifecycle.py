"""Whether the process is to end."""

from __future__ import annotations


class Lifecycle:
    """Mutable; one for each process."""

    def __init__(self) -> None:
        self.url = ""
        """Of the data port, once it listens."""
        self.draining = False
        """Readiness is over: balancers are to send no more."""
