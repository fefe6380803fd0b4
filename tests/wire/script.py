"""From a case's `input` to what an upstream writes: bytes, write by write, and an ending."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from tests.support.sse_model import data_of, whole_events
from tests.support.upstream import END, Script, Step, chunk
from tests.wire.cases import as_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """`payload` is the body after removal of transfer framing and content coding."""

    status: int
    script: Script
    payload: bytes


def answers(given: Mapping[str, Any]) -> list[Answer]:
    """The answer of `input` and those to further attempts, which `then` lists."""
    return [answer(given), *(answer({**given, **later}) for later in given.get("then", ()))]


def answer(given: Mapping[str, Any]) -> Answer:
    """One answer; `raw` stands for all of it, head included."""
    if given.get("raw") is not None:
        payload = as_bytes(given.get("payload", ""))
        steps = [*map(as_bytes, _listed(given["raw"])), *_ending(given)]
        return Answer(status=given.get("status", 200), script=steps, payload=payload)
    writes = _writes(given)
    payload = b"".join(writes)
    coded = _coded(writes, given.get("coding"))
    return Answer(
        status=given.get("status", 200),
        script=_framed(given, coded),
        payload=payload,
    )


def _listed(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else [value]


def _writes(given: Mapping[str, Any]) -> list[bytes]:
    """The body as it is written: line ends replaced first, then cut."""
    writes = [as_bytes(write) for write in given.get("writes", ())]
    if line_end := given.get("line_end"):
        writes = [write.replace(b"\n", as_bytes(line_end)) for write in writes]
    if every := given.get("split_every"):
        return pieces(b"".join(writes), range(every, len(b"".join(writes)), every))
    if "cut_at" in given:
        return pieces(b"".join(writes), [given["cut_at"]])
    if "cut_after" in given:
        body = b"".join(writes)
        mark = as_bytes(given["cut_after"])
        return pieces(body, [body.index(mark) + len(mark)])
    return writes


def pieces(body: bytes, cuts: Sequence[int]) -> list[bytes]:
    """`body` cut at these offsets."""
    return [body[start:end] for start, end in pairwise([0, *cuts, len(body)])]


def _coded(writes: list[bytes], coding: str | None) -> list[bytes]:
    """Content coding, flushed after each write, as a streaming encoder does."""
    if coding not in ("gzip", "deflate", "raw-deflate"):
        return writes
    bits = {"gzip": 31, "deflate": 15, "raw-deflate": -15}[coding]
    encoder = zlib.compressobj(wbits=bits)
    coded = [encoder.compress(write) + encoder.flush(zlib.Z_SYNC_FLUSH) for write in writes]
    return [*coded, encoder.flush()]


def _framed(given: Mapping[str, Any], writes: list[bytes]) -> Script:
    framing = given.get("framing", "chunked")
    head = _head(given, framing, sum(map(len, writes)))
    interim = [as_bytes(early) for early in given.get("interim", ())]
    if framing == "chunked":
        body = [chunk(write) for write in writes if write]
        partial = given.get("partial_chunk")
        if partial is not None:
            body.append(b"%x\r\n%s" % (partial["announced_size"], as_bytes(partial["sent"])))
    else:
        body = writes
    return [*interim, head, *body, *_ending({"framing": framing, **given})]


def _head(given: Mapping[str, Any], framing: str, size: int) -> bytes:
    lines = [f"HTTP/{given.get('http', '1.1')} {given.get('status', 200)} X".encode()]
    headers = {"Content-Type": "text/event-stream", **given.get("headers", {})}
    for name, values in headers.items():
        if values is not None:
            lines += [name.encode() + b": " + as_bytes(value) for value in _listed(values)]
    if framing == "chunked":
        lines.append(b"Transfer-Encoding: chunked")
    elif framing == "length":
        lines.append(b"Content-Length: %d" % (size + given.get("length_off", 0)))
    return b"\r\n".join([*lines, b"", b""])


def _ending(given: Mapping[str, Any]) -> list[bytes | Step]:
    """`clean` is the proper end of the framing; a body that is close-delimited has no other."""
    end = given.get("end", "clean")
    framing = given.get("framing", "raw")
    if end == "clean":
        closes: Mapping[str, bytes | Step] = {"chunked": END, "close": Step.CLOSE}
        return [closes[framing]] if framing in closes else []
    ends: Mapping[str, Step] = {"rst": Step.RESET, "fin": Step.CLOSE, "hang": Step.WAIT}
    return [ends[end]]


def until_done(stream: bytes) -> bytes:
    """Up to the event that says [DONE], all of it."""
    kept = b""
    for event in whole_events(stream):
        kept += event
        if (data_of(event) or "").strip() == "[DONE]":
            return kept
    raise ValueError("the stream has no [DONE]")
