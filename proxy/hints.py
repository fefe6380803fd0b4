"""What clients say of which requests belong together: a cache key in the body, a session's header.

It names one of several backends that are as good, and nothing more. Values are only hashed, with
the seed of the request's namespace, which is keyed by the deployment's secret and differs between
tenants and models; they are neither kept nor logged.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from multidict import CIMultiDictProxy, istr
from xxhash import xxh3_64_intdigest

MAX_CHARS = 1024
"""Of a value, what counts."""


class Hints:
    def __init__(self, *, prompt_cache_key: bool, session_headers: Sequence[str]) -> None:
        """Whether the member of that name counts; and the headers that do, the first one that a
        request has, where it has no such member."""
        self._prompt_cache_key = prompt_cache_key
        self._headers = tuple(istr(name) for name in session_headers)

    def session(self, headers: CIMultiDictProxy[str]) -> str | None:
        """By whose name a client says what belongs together in its headers; None: it does not."""
        for name in self._headers:
            value = headers.get(name)
            if value:
                return value
        return None

    def affinity(self, session: str | None, prompt_cache_key: Any, seed: int) -> int | None:
        """The same for requests of one namespace with the same hint; None where there is none. Only
        a text is one: what an engine would refuse is its to refuse."""
        if self._prompt_cache_key and prompt_cache_key and isinstance(prompt_cache_key, str):
            return _digest(prompt_cache_key, seed)
        return None if session is None else _digest(session, seed)


def _digest(value: str, seed: int) -> int:
    return xxh3_64_intdigest(value[:MAX_CHARS].encode("utf-8", "surrogatepass"), seed)
