"""From a case's `input` to the bytes of a client's request."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Mapping
from typing import Any

from tests.wire.cases import Case, as_bytes
from tests.wire.raw_client import post

CHAT = "/v1/chat/completions"


def request_bytes(case: Case, model: str, prompt: str) -> bytes:
    """`request` as it is written, or the plain one of the path. `request.raw` is all of it, head
    included; else its body is framed by Content-Length unless its headers say otherwise."""
    given = case.input
    path = given.get("path", CHAT)
    if "request" not in given:
        return post(path, default_body(given, path, model, prompt))
    request = given["request"]
    if "raw" in request:
        return as_bytes(request["raw"])
    body = body_bytes(request)
    headers = {name: _header(value) for name, value in request.get("headers", {}).items()}
    return post(path, body, headers, request.get("method", "POST"))


def default_body(given: Mapping[str, Any], path: str, model: str, prompt: str) -> bytes:
    """A small sound request; a stream asks for its usage unless `usage: unasked`."""
    body: dict[str, Any] = {"model": model}
    stream = given.get("stream", True)
    if path == "/v1/completions":
        body["prompt"] = prompt
    elif path == "/v1/responses":
        body["input"] = prompt
    else:
        body["messages"] = [{"role": "user", "content": prompt}]
    if path == "/v1/messages":
        body["max_tokens"] = 16
    if stream:
        body["stream"] = True
    if stream and path in (CHAT, "/v1/completions") and given.get("usage") != "unasked":
        body["stream_options"] = {"include_usage": True}
    return json.dumps(body).encode()


def body_bytes(request: Mapping[str, Any]) -> bytes:
    """Before framing, after content coding: what the headers of the case speak of."""
    body = request.get("body", "")
    plain = json.dumps(body["json"]).encode() if _is_json(body) else as_bytes(body)
    match request.get("coding"):
        case None:
            return plain
        case "gzip":
            return gzip.compress(plain, 6)
        case "deflate":
            return zlib.compress(plain)
        case "truncated-gzip":
            return gzip.compress(plain, 6)[:-9]
        case "chunked":
            half = len(plain) // 2
            parts = (plain[:half], plain[half:], b"")
            return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts)
        case other:
            raise ValueError(f"unknown coding {other}")


def _is_json(body: Any) -> bool:
    return isinstance(body, dict) and "json" in body


def _header(value: Any) -> str | None:
    return None if value is None else as_bytes(value).decode("latin-1")
