"""A vLLM server, asked over HTTP from a compressor's process: one request at a time, blocking.

How long an answer may take, whoever started the process says, and ends it.
"""

from __future__ import annotations

import ssl
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import TypeVar
from urllib.parse import urlsplit

import msgspec

from prefold.compression.compressor import CompressorGone, CompressorUnavailable

CONNECT_S = 5.0
MAX_ANSWER_BYTES = 1 << 28
KEY_REFUSED = (401, 403)
ITS_OWN = (*KEY_REFUSED, 404, 405, 408, 429)
"""Statuses of the 4xx that are not about the texts: the key, no such model or path, too busy."""

Answer = TypeVar("Answer")


class TextRefused(Exception):
    """The server will not have these texts: too many tokens, as a rule. Its message is not shown,
    since it may quote them."""


class VllmServer:
    def __init__(self, url: str, api_key: str) -> None:
        """`url`: scheme, host and port. `api_key` "": none is sent."""
        parts = urlsplit(url)
        self._secure = parts.scheme == "https"
        self._netloc = parts.netloc
        self._headers = {"Content-Type": "application/json", "Connection": "close"}
        if api_key:
            self._headers["Authorization"] = f"Bearer {api_key}"

    def post(self, path: str, body: bytes) -> bytes:
        """Raises TextRefused; CompressorGone where the server is not there, or fails."""
        return _checked(*self._asked("POST", path, body))

    def told(self, path: str, kind: type[Answer], body: bytes | None = None) -> Answer | None:
        """What it says of itself; None if it has no such path. Also raises CompressorUnavailable,
        where it refuses the key."""
        status, raw = self._asked("GET" if body is None else "POST", path, body)
        if status in KEY_REFUSED:
            raise CompressorUnavailable("it refuses compression.api_key")
        if status == 404:
            return None
        try:
            return msgspec.json.decode(_checked(status, raw), type=kind)
        except msgspec.MsgspecError:
            raise CompressorGone("it answered something else", "nonsense") from None

    def _asked(self, method: str, path: str, body: bytes | None) -> tuple[int, bytes]:
        """On a connection of its own: one that is kept would as a rule be closed by the time of the
        next batch."""
        connection = self._connection()
        try:
            connection.connect()
            connection.sock.settimeout(None)
            connection.request(method, path, body, self._headers)
            response = connection.getresponse()
            raw = response.read(MAX_ANSWER_BYTES + 1)
        except (OSError, HTTPException) as error:
            why = f"it cannot be reached: {type(error).__name__}"
            raise CompressorGone(why, "unreachable") from None
        finally:
            connection.close()
        if len(raw) > MAX_ANSWER_BYTES:
            raise CompressorGone("it answered too much", "nonsense")
        return response.status, raw

    def _connection(self) -> HTTPConnection:
        if self._secure:
            context = ssl.create_default_context()
            return HTTPSConnection(self._netloc, timeout=CONNECT_S, context=context)
        return HTTPConnection(self._netloc, timeout=CONNECT_S)


def _checked(status: int, raw: bytes) -> bytes:
    if status == 200:
        return raw
    if 400 <= status < 500 and status not in ITS_OWN:
        raise TextRefused(f"status {status}")
    raise CompressorGone(f"it answered with status {status}", f"status_{status}")
