"""From method and path to a handler. Paths are compared as they were sent, so that what is checked
is what is served: a dot segment, an encoded slash or letter is no path of ours."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from urllib.parse import unquote

from prefold.proxy.errors import MethodNotAllowed, UnknownPath
from prefold.proxy.http.request import Request

Handler = Callable[[Request], Awaitable[None]]
_PARAMETER = re.compile(r"\{(\w+)(?::([^}]+))?\}")


class Table:
    """Routes are added once, looked up for each request."""

    def __init__(self) -> None:
        self._exact: dict[str, dict[str, Handler]] = {}
        self._patterns: list[tuple[re.Pattern[str], dict[str, Handler], bool]] = []
        self._by_pattern: dict[str, dict[str, Handler]] = {}

    def add(self, method: str, path: str, handler: Handler, *, forwarded: bool) -> None:
        """`path` may hold `{name}` (one segment) and `{name:regex}`; method "*" is any. A path that
        is forwarded must be plain; in others an encoded slash is a part of a name."""
        if "{" not in path:
            self._exact.setdefault(path, {})[method] = handler
            return
        methods = self._by_pattern.get(path)
        if methods is None:
            methods = self._by_pattern[path] = {}
            self._patterns.append((_compiled(path), methods, forwarded))
        methods[method] = handler

    def find(self, request: Request) -> Handler:
        """Notes what the path holds on the request. Raises UnknownPath or MethodNotAllowed."""
        methods = self._exact.get(request.path)
        handler = _of(methods, request.method) if methods is not None else None
        known = methods is not None
        if handler is not None:
            return handler
        for pattern, methods, forwarded in self._patterns:
            match = pattern.fullmatch(request.path)
            if match is None or (forwarded and not _is_plain(request.path)):
                continue
            known = True
            handler = _of(methods, request.method)
            if handler is not None:
                request.params = {name: unquote(text) for name, text in match.groupdict().items()}
                return handler
        if known:
            raise MethodNotAllowed("Not allowed with this method.")
        raise UnknownPath("Unknown request URL.")


def _of(methods: dict[str, Handler], method: str) -> Handler | None:
    found = methods.get(method)
    if found is None and method == "HEAD":
        found = methods.get("GET")
    return found or methods.get("*")


def _is_plain(path: str) -> bool:
    """No segment that a server behind us might resolve to another path."""
    lowered = path.lower()
    return not (
        "//" in path
        or "\\" in path
        or "%2f" in lowered
        or "%5c" in lowered
        or any(unquote(segment) in (".", "..") for segment in path.split("/"))
    )


def _compiled(path: str) -> re.Pattern[str]:
    pattern, at = "", 0
    for match in _PARAMETER.finditer(path):
        pattern += re.escape(path[at : match.start()])
        pattern += f"(?P<{match[1]}>{match[2] or '[^/]+'})"
        at = match.end()
    return re.compile(pattern + re.escape(path[at:]))
