"""Whole requests as bytes, well framed and not. Pure, from a seed and a number.

Each carries its number in `X-Fuzz`, which the upstream echoes: an answer that reaches another
request than its own is seen.
"""

from __future__ import annotations

import gzip
import random
from dataclasses import dataclass

from prefold.proxy.routes import ROUTES
from tests.fuzz.bodies import BODIES, body

HIDDEN = b"POST /hidden HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"
"""Stands inside bodies; the upstream must never see it as a request."""

ODD_PATHS = (
    "/",
    "/v1",
    "/v1/",
    "//v1/models",
    "/v1/../v1/models",
    "/v1/%2e%2e/health",
    "/v1/models/",
    "/v1/models/%00",
    "/v1/models/a%2Fb",
    "/v1/chat/completions/",
    "/v1/chat/completions?x=%zz",
    "/V1/CHAT/COMPLETIONS",
    "http://elsewhere/v1/models",
    "/health?%ff",
    "/metrics",
    "/v1/files/../../metrics",
    "/v1/responses/resp_1",
    "/v1/responses/%0d%0aX: y/cancel",
    "*",
)
METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "CONNECT", "get", "BREW")
JUNK_HEADERS = (
    b"X-Long: " + b"a" * 20_000,
    b"X-Huge: " + b"a" * 70_000,
    b"Connection: keep-alive, x-fuzz-secret",
    b"Connection: upgrade\r\nUpgrade: websocket",
    b"Upgrade: h2c",
    b"TE: trailers, deflate;q=0.5",
    b"Expect: 100-continue",
    b"Expect: nonsense",
    b"Content-Encoding: br",
    b"Content-Encoding: gzip",
    b"Accept-Encoding: gzip, identity;q=0",
    b"Accept: text/html",
    b"Content-Type: text/plain; charset=\xff",
    b"Content-Type: multipart/form-data; boundary=",
    b"X-Latin: \xe9\xff",
    b"X-Empty:",
    b"X-Prefold-Decision: forged",
    b"Cookie: a=b; c",
    b"Authorization: Bearer \x01",
    b"Authorization: Basic !!!",
    b"X-Forwarded-For: 1.2.3.4, ::1",
    b"Host: y",
    b"Trailer: X-T",
    b"Idempotency-Key: " + b"k" * 300,
)
BAD_FRAMING = (
    b"Content-Length: -1",
    b"Content-Length: +5",
    b"Content-Length: 5, 5",
    b"Content-Length: 5\r\nContent-Length: 6",
    b"Content-Length: 99999999999999999999",
    b"Content-Length: 0x5",
    b"Content-Length: 5\r\nTransfer-Encoding: chunked",
    b"Transfer-Encoding: chunked, chunked",
    b"Transfer-Encoding: xchunked",
    b"Transfer-Encoding : chunked",
    b"Transfer-Encoding:\x0bchunked",
    b"X Bad: y",
    b": empty name",
    b"X-Fold: a\r\n b",
    b"X-Null: a\x00b",
    b"X-Cr: a\rb",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """`answers` responses are due; none if the server is right to wait for more. `well_framed`: it
    must be answered, and the connection may be used again."""

    number: int
    kind: str
    pieces: tuple[bytes, ...]
    answers: int = 1
    well_framed: bool = True
    sound: bool = False
    """Every server of its protocol should take it: what the upstream says must then come back."""
    path: str = ""
    usage_asked: bool = False

    @property
    def raw(self) -> bytes:
        return b"".join(self.pieces)


def case(seed: int, number: int) -> Case:
    """The same for the same two numbers."""
    rng = random.Random(f"request {seed} {number}")
    made = rng.random()
    if made < 0.82:
        return _plain(rng, number)
    if made < 0.88:
        return _elsewhere(rng, number)
    if made < 0.93:
        return _odd_headers(rng, number)
    if made < 0.96:
        return _badly_framed(rng, number)
    if made < 0.98:
        return _pipelined(rng, number)
    if made < 0.99:
        return _unfinished(rng, number)
    return _garbage(rng, number)


def _plain(rng: random.Random, number: int) -> Case:
    path = rng.choice(("/v1/chat/completions", *BODIES))
    kind, raw = body(rng, path)
    return Case(
        number=number,
        kind=f"{path} {kind}",
        pieces=_pieces(rng, _framed(rng, number, path, raw)),
        sound=kind == "valid",
        path=path,
        usage_asked=b"include_usage" in raw,
    )


def _elsewhere(rng: random.Random, number: int) -> Case:
    path = rng.choice((*ODD_PATHS, *(_filled(rng, route.path) for route in ROUTES)))
    method = rng.choice(METHODS) if rng.random() < 0.5 else "POST"
    raw = b"" if method in ("GET", "HEAD") else body(rng, rng.choice(list(BODIES)))[1]
    framed = _framed(rng, number, path, raw, method)
    # A target that is no target closes the connection, and HEAD has no body: both by the rules.
    pieces = _pieces(rng, framed)
    return Case(number=number, kind="other paths", pieces=pieces, well_framed=False)


def _filled(rng: random.Random, path: str) -> str:
    plain, _, rest = path.partition("{")
    return plain + rng.choice(("/a", "", "/a/b?c=d", "x%20y")) if rest else plain


def _odd_headers(rng: random.Random, number: int) -> Case:
    path = rng.choice(list(BODIES))
    _, raw = body(rng, path)
    junk = rng.sample(JUNK_HEADERS, rng.randrange(1, 4))
    if b"Content-Encoding: gzip" in junk and rng.random() < 0.7:
        raw = gzip.compress(raw, mtime=0)
        raw = raw[: rng.randrange(len(raw))] if rng.random() < 0.3 else raw
    framed = _framed(rng, number, path, raw, extra=junk)
    pieces = _pieces(rng, framed)
    return Case(number=number, kind="odd headers", pieces=pieces, well_framed=False)


def _badly_framed(rng: random.Random, number: int) -> Case:
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nX-Fuzz: %d\r\n" % number
    rest = (
        rng.choice((b"hello", b"5\r\nhello\r\n0\r\n\r\n", b"0\r\n\r\n", b"zz\r\nhello\r\n"))
        + HIDDEN
    )
    if rng.random() < 0.3:
        chunks = rng.choice(
            (b"5;a=b", b"5 ", b" 5", b"0x5", b"-5", b"FFFFFFFFFFFFFFFFF", b"5\n", b"")
        )
        raw = head + b"Transfer-Encoding: chunked\r\n\r\n" + chunks + b"\r\nhello\r\n0\r\n\r\n"
    else:
        raw = head + rng.choice(BAD_FRAMING) + b"\r\n\r\n" + rest
    return Case(number=number, kind="bad framing", pieces=(raw,), answers=0, well_framed=False)


def _pipelined(rng: random.Random, number: int) -> Case:
    """Several at once; every answer echoes the same number."""
    count = rng.randrange(2, 5)
    framed = []
    for _ in range(count):
        path = rng.choice(list(BODIES))
        framed.append(_framed(rng, number, path, body(rng, path)[1]))
    return Case(number=number, kind="pipelined", pieces=(b"".join(framed),), answers=count)


def _unfinished(rng: random.Random, number: int) -> Case:
    framed = _framed(rng, number, "/v1/chat/completions", body(rng, "/v1/chat/completions")[1])
    cut = framed[: rng.randrange(1, len(framed))]
    return Case(number=number, kind="unfinished", pieces=(cut,), answers=0, well_framed=False)


def _garbage(rng: random.Random, number: int) -> Case:
    raw = rng.choice(
        (
            rng.randbytes(rng.randrange(1, 400)),
            b"\r\n\r\n\r\n",
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            b"GET /health HTTP/9.9\r\n\r\n",
            b"GET /health\r\n\r\n",
            b"POST " + b"/a" * 40_000 + b" HTTP/1.1\r\n\r\n",
            b"GET /health HTTP/1.1\nHost: x\n\n",
            b"GET  /health HTTP/1.1\r\nHost: x\r\n\r\n",
        )
    )
    return Case(number=number, kind="garbage", pieces=(raw,), answers=0, well_framed=False)


def _framed(
    rng: random.Random,
    number: int,
    path: str,
    raw: bytes,
    method: str = "POST",
    extra: list[bytes] | None = None,
) -> bytes:
    lines = [
        f"{method} {path} HTTP/1.1".encode(),
        b"Host: x",
        b"X-Fuzz: %d" % number,
        *(extra or ()),
    ]
    if not any(line.lower().startswith(b"content-type") for line in lines):
        lines.append(b"Content-Type: application/json")
    if rng.random() < 0.1 and raw:
        at = rng.randrange(len(raw))
        lines.append(b"Transfer-Encoding: chunked")
        chunks = b"".join(b"%x\r\n%s\r\n" % (len(c), c) for c in (raw[:at], raw[at:]) if c)
        return b"\r\n".join([*lines, b"", chunks + b"0\r\n\r\n"])
    lines.append(b"Content-Length: %d" % len(raw))
    return b"\r\n".join([*lines, b"", raw])


def _pieces(rng: random.Random, raw: bytes) -> tuple[bytes, ...]:
    """Sent at once, or in two: head and body as many clients do, or cut anywhere."""
    made = rng.random()
    if made < 0.9:
        return (raw,)
    at = raw.index(b"\r\n\r\n") + 4 if made < 0.95 else rng.randrange(1, len(raw))
    return raw[:at], raw[at:]
