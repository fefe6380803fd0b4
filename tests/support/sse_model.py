"""A naive reader of whole event streams, and the grammar of the streams it is tried on.

The model that the relay is held against: no state between reads, the whole body at once.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

BOM = b"\xef\xbb\xbf"
_LINE_END = re.compile(rb"\r\n|\n|\r")


def whole_events(stream: bytes) -> list[bytes]:
    """By the standard's words, over the whole buffer: a blank line after a line ends an event."""
    events: list[bytes] = []
    begin, line = 0, 0
    for end in _LINE_END.finditer(stream):
        if end.start() == line and begin < line:
            events.append(stream[begin : end.end()])
            begin = end.end()
        line = end.end()
    return events


def data_of(event: bytes) -> str | None:
    """The data lines of one event, joined; None if it has none."""
    lines = re.split(rb"\r\n|\n|\r", event.removeprefix(BOM))
    data = [line[5:].removeprefix(b" ") for line in lines if line.startswith(b"data:")]
    return b"\n".join(data).decode("utf-8", "replace") if data else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What a client is to see: `body`, then a proper end, or an error event and an abort. `None`
    for `body`: no event came whole, so there is no stream at all."""

    body: bytes | None
    cut: bool


def expected_of_chat(stream: bytes, *, clean: bool) -> Expected:
    """By rule: whole events, nothing after [DONE]; cut where the upstream cut it before every
    choice had finished, or told an error that clients overlook."""
    kept = b""
    finished: dict[int, bool] = {}
    failed = False
    events = whole_events(stream)
    for event in events:
        kept += event
        data = data_of(event)
        if data is not None and data.strip() == "[DONE]":
            return Expected(body=kept, cut=False)
        chunk = _parsed(data)
        if chunk.get("object") == "error":
            return Expected(body=kept, cut=True)
        failed = failed or chunk.get("error") is not None
        for choice in chunk.get("choices", []):
            index = choice["index"]
            finished[index] = finished.get(index, False) or choice["finish_reason"] is not None
    complete = not failed and bool(finished) and all(finished.values())
    cut = not complete and not (clean and failed)
    return Expected(body=kept if events else None, cut=cut)


def _parsed(data: str | None) -> dict[str, Any]:
    try:
        parsed = json.loads(data or "")
    except ValueError:
        return {}
    return parsed if isinstance(parsed, dict) else {}


def _chunk(index: int, content: str | None, finish: str | None) -> str:
    delta = {} if content is None else {"content": content}
    choice = {"index": index, "delta": delta, "finish_reason": finish}
    return json.dumps({"choices": [choice]}, ensure_ascii=False)


_CONTENTS = st.sampled_from(["", "tea", "thé茶🍵", "a\u2028b", "data: x", "[DONE]"])
_CHUNKS = st.builds(_chunk, st.integers(0, 1), _CONTENTS, st.none())
_FINISHES = st.builds(_chunk, st.integers(0, 1), st.none(), st.sampled_from(["stop", "length"]))
_RARE = st.sampled_from(
    [
        '{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":2}}',
        '{"error":{"message":"The kettle broke.","type":"server_error"}}',
        '{"object":"error","message":"The kettle broke.","code":500}',
        "[DONE]",
        "[DONE] ",
        "steeping",
        "",
    ]
)
_DATA = st.one_of(_CHUNKS, _CHUNKS, _CHUNKS, _FINISHES, _RARE)
_OTHER_LINES = st.sampled_from([": steeping", ":", "id: 7", "event: leaf", "retry: 9", "leaf"])
_DATA_LINES = st.builds(
    lambda space, data: f"data:{space}{data}", st.sampled_from(["", " "]), _DATA
)
# A JSON text may be broken over lines where white space may stand.
_TWO_LINES = _CHUNKS.map(lambda data: f"data: {data[:1]}\ndata: {data[1:]}")
_BLOCKS = st.one_of(
    _DATA_LINES,
    _DATA_LINES,
    _TWO_LINES,
    _OTHER_LINES,
    st.builds(lambda other, data: f"{other}\n{data}", _OTHER_LINES, _DATA_LINES),
    st.builds(lambda data, other: f"{data}\n{other}", _DATA_LINES, _OTHER_LINES),
    st.just(""),
)


@st.composite
def streams(draw: st.DrawFn) -> bytes:
    """Events of all kinds with any line ends, perhaps a byte-order mark, perhaps half an event at
    the end."""
    ends = st.sampled_from(draw(st.sampled_from([["\n"], ["\r\n"], ["\r"], ["\n", "\r\n", "\r"]])))
    stream = ""
    for block in draw(st.lists(_BLOCKS, max_size=8)):
        for line in block.split("\n"):
            stream += line + draw(ends)
        stream += draw(ends)
    whole = (BOM if draw(st.booleans()) else b"") + stream.encode()
    return whole[: draw(st.integers(0, len(whole)))] if draw(st.booleans()) else whole
