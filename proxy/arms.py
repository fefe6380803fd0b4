"""Arms of an experiment: what is done differently to a share of the conversations, or for a slice
of the time, so that the ledger can tell what it is worth.

Who gets which arm is a keyed hash of the conversation, so all its turns are treated alike, in every
process that has the same secret; by time, `slices` says. Reads no settings and knows nothing of
reports.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from hashlib import blake2b
from math import log
from typing import NamedTuple

from xxhash import xxh3_64_intdigest

from prefold.backends.backend import Backend
from prefold.proxy.openai import Body
from prefold.proxy.routing import Policy

Conversation = Callable[[Body, str | None, str, str], int | None]
"""The key that the turns of a conversation share, of body, session, tenant and model."""


class Arm(NamedTuple):
    """`compression`: its mode for these requests, "" as the settings have it. `labels`: those that
    a backend must have. `models`: of requests that take part; none: of all. `policy`: how they are
    routed; None: as the settings have it."""

    name: str
    weight: float = 1.0
    compression: str = ""
    labels: Mapping[str, str] = {}
    models: Sequence[str] = ()
    policy: Policy | None = None

    def excluded(self, backends: Iterable[Backend]) -> set[str]:
        """Names of those that it does not go to."""
        wanted = self.labels.items()
        return {backend.name for backend in backends if not wanted <= backend.labels.items()}


class Arms:
    """Mutable: `become` replaces them while requests go on."""

    def __init__(self, secret: bytes, conversation: Conversation, arms: Sequence[Arm] = ()) -> None:
        """`secret` is the deployment's: with another one, conversations fall otherwise."""
        self._key = blake2b(secret, digest_size=32, person=b"prefold.arms").digest()
        self.conversation = conversation
        self.become(arms)

    def become(self, arms: Sequence[Arm]) -> None:
        self.there = bool(arms)
        """Whether there are any: all that a request asks where there are none."""
        self._arms = [(arm, self._seed(arm.name)) for arm in arms if arm.weight > 0]

    def assign(self, conversation: int, model: str) -> Arm | None:
        """The arm of a conversation; None: none is for its model.

        Weighted rendezvous hashing (Thaler and Ravishankar, 1998; weights by -log(u) / weight): an
        arm's share is its part of the weights, and where weights change, no more conversations
        change sides than must.
        """
        raw = conversation.to_bytes(8, "little")
        best, least = None, 0.0
        for arm, seed in self._arms:
            if arm.models and model not in arm.models:
                continue
            uniform = (xxh3_64_intdigest(raw, seed) + 0.5) / 2.0**64
            score = -log(uniform) / arm.weight
            if best is None or score < least:
                best, least = arm, score
        return best

    def _seed(self, name: str) -> int:
        digest = blake2b(name.encode("utf-8"), key=self._key, digest_size=8)
        return int.from_bytes(digest.digest(), "little")


def without(arm: Arm | None, pool: Iterable[Backend], tried: Collection[str]) -> Collection[str]:
    """Names of backends that it does not go to: those that were tried, and those of other arms."""
    return tried if arm is None or not arm.labels else arm.excluded(pool).union(tried)
