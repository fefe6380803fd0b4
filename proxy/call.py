"""A request as it is to be sent: everything but the backend."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec
from multidict import CIMultiDictProxy

from prefold.proxy.arms import Arm
from prefold.proxy.prompt import Prompt
from prefold.proxy.protocol import Protocol


class Call(msgspec.Struct, frozen=True, kw_only=True):
    protocol: Protocol
    method: str
    target: str
    """Path and query."""
    headers: CIMultiDictProxy[str]
    """The client's own, all of them."""
    request_id: str = ""
    """For the engine's logs, where the client sent none."""
    body: bytes | AsyncIterator[bytes]
    """An iterator is an upload that is passed on as it comes: it can be sent once."""
    model: str | None = None
    """As backends list it; None: any backend."""
    prompt: Prompt | None = None
    """None: it is not looked into, and load decides."""
    pinned: str | None = None
    """The one backend that holds the state that is asked for."""
    usage_wanted: bool = False
    """A stream whose usage the client left open: where the engine must be asked, we ask."""
    salt: str | None = None
    """Separates tenants in the engine's own cache, where it has such a member."""
    several: bool = False
    """It is prefilled more than once: an engine's cached tokens are then those of one sequence."""
    tenant: str = ""
    documents: str = ""
    """Which of its documents moved, as the client is told."""
    compression: str = ""
    """What was done to shorten it, likewise."""
    arm: Arm | None = None
    """Of an experiment: what is done differently to it."""

    @property
    def replayable(self) -> bool:
        return isinstance(self.body, bytes)
