"""Which backend made a response, also where another replica saw it made: of those only digests of
the ids are known, each of which is made again when it is asked for."""

from __future__ import annotations

from collections.abc import Callable

from prefold.proxy.pins import DigestPins
from prefold.proxy.workers.shared import SharedPins

Digest = Callable[[str, str], bytes]
"""Of a tenant and the id of a response (`Seal.response`)."""


class ReplicaPins(SharedPins):
    def __init__(self, tell: Callable[[str, str, str], None], digest: Digest) -> None:
        """`tell` is given the tenant, the id and the backend of what is new here."""
        super().__init__(tell)
        self._digest = digest
        self.of_others = DigestPins()

    def find(self, tenant: str, response_id: str) -> str | None:
        backend = super().find(tenant, response_id)
        if backend is None and self.of_others:
            return self.of_others.find(self._digest(tenant, response_id))
        return backend
