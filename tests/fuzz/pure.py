"""Properties of the parts that only compute, for Hypothesis: whatever goes in, only their own
errors come out, and what comes out is true."""

from __future__ import annotations

import asyncio
import json
import random
import tempfile
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import seed as hypothesis_seed
from hypothesis import strategies as st

from prefold.backends.backend import Mode
from prefold.prefix_index.chain_memo import ChainMemo
from prefold.proxy import openai, prompt
from prefold.proxy.chunks import ChunkMeter
from prefold.proxy.errors import BadRequest
from prefold.proxy.messages import MessagesBody, MessagesMeter
from prefold.proxy.meter import Ending, Meter
from prefold.proxy.protocol import CHUNKS, MESSAGES, RESPONSES, normalised
from prefold.proxy.responses import ResponsesBody, ResponsesMeter
from prefold.proxy.splice import replace_member
from prefold.proxy.sse import EventSplitter
from prefold.proxy.tokens.encoder import Encoder
from prefold.proxy.tokens.tokenizer import load_tokenizer
from tests.fuzz import streams
from tests.fuzz.bodies import body
from tests.support.tiny_tokenizer import CHATML, tiny_bpe, write_folder

KINDS: dict[str, type[openai.Body]] = {
    "/v1/chat/completions": openai.ChatBody,
    "/v1/completions": openai.CompletionBody,
    "/v1/responses": ResponsesBody,
    "/v1/messages": MessagesBody,
}
METERS: dict[str, Callable[[], Meter]] = {
    "/v1/chat/completions": ChunkMeter,
    "/v1/completions": ChunkMeter,
    "/v1/responses": ResponsesMeter,
    "/v1/messages": MessagesMeter,
}
SEEDS = st.integers(0, 2**62)
PATHS = st.sampled_from(list(KINDS))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(seed=SEEDS, path=PATHS)
def parsing(seed: int, path: str) -> None:
    """A body is refused as a client's error, or read as the standard library reads it."""
    kind, raw = body(random.Random(seed), path)
    request = parsed(path, raw)
    if request is None:
        assert kind != "valid"
        return
    value = loaded(raw)
    if isinstance(value, dict):  # else: damage in a member that is not ours to judge
        assert request.model == value.get("model")
        assert request.stream == value.get("stream")


@given(seed=SEEDS, path=PATHS, key=st.sampled_from(["model", "stream_options", "messages", "new"]))
def splicing(seed: int, path: str, key: str) -> None:
    """One member changes; every other one keeps its value. What is no object is a ValueError."""
    _, raw = body(random.Random(seed), path)
    before = loaded(raw)
    try:
        after = loaded(replace_member(raw, key, '"put in"'))
    except (ValueError, RecursionError):
        assert not isinstance(before, dict)
        return
    if isinstance(before, dict):
        assert json.dumps(after, sort_keys=True) == json.dumps(
            {**before, key: "put in"}, sort_keys=True
        )


@given(raw=st.binary(max_size=300), cuts=st.lists(st.integers(0, 300), max_size=6))
def splitting_bytes(raw: bytes, cuts: list[int]) -> None:
    """No byte is lost, and where reads end changes nothing."""
    assert split(raw, cuts) == split(raw, [])


@given(seed=SEEDS, path=PATHS, cuts=st.lists(st.integers(0, 2000), max_size=6))
def splitting_streams(seed: int, path: str, cuts: list[int]) -> None:
    """The same for streams that upstreams send."""
    rng = random.Random(seed)
    asked = streams.Asked(1, path, True, rng.random() < 0.5)
    raw = streams.joined(rng, streams.events(rng, asked))
    whole = split(raw, [])
    assert split(raw, cuts) == whole
    assert whole[1] == b""


@given(seed=SEEDS, path=PATHS)
def metering(seed: int, path: str) -> None:
    """A stream is complete if, and only if, it was sent to its end; times are those passed in."""
    rng = random.Random(seed)
    made = streams.events(rng, streams.Asked(1, path, True, False))
    meter = METERS[path]()
    events, _ = split(b"".join(streams.blocks(rng, made)), [])
    for number, event in enumerate(events):
        assert meter.observe(event, float(number))
    assert meter.ending is Ending.COMPLETE
    assert meter.token_times == sorted(meter.token_times)

    cut = METERS[path]()
    terminal = {b"finish_reason", b"DONE", b"message_stop", b"response.completed"}
    for event in made[:-1]:
        if not any(name in event for name in terminal) or b'"finish_reason": null' in event:
            cut.observe(event + b"\n\n", 0.0)
    assert cut.ending is Ending.OPEN


@given(path=PATHS, value=JSON, damage=st.binary(max_size=20), at=st.integers(0, 200))
def metering_anything(path: str, value: Any, damage: bytes, at: int) -> None:
    """No event throws: what cannot be read is relayed as it is."""
    raw = json.dumps(value).encode("utf-8", "surrogatepass")
    meter = METERS[path]()
    for data in (raw, raw[:at] + damage + raw[at:], damage):
        meter.observe(b"data: " + data.replace(b"\n", b" ") + b"\n\n", 0.0)
        assert meter.ending in Ending


@given(status=st.integers(400, 599), value=JSON | st.binary(max_size=60))
def errors_of_backends(status: int, value: Any) -> None:
    """Whatever a backend says, the client gets an error object in its protocol's form."""
    raw = value if isinstance(value, bytes) else json.dumps(value).encode("utf-8", "surrogatepass")
    for protocol in (CHUNKS, MESSAGES, RESPONSES):
        protocol.read(raw)
        made = normalised(protocol, status, raw)
        error = json.loads(raw if made is None else made)["error"]
        assert isinstance(error, dict)
        if made is not None and protocol is not MESSAGES:
            assert set(error) == {"message", "type", "param", "code"}


@given(seed=SEEDS, path=PATHS)
def encoding(seed: int, path: str) -> None:
    """A parsed body has a prefix for each mode, the same each time, or the client is at fault."""
    _, raw = body(random.Random(seed), path)
    request = parsed(path, raw)
    if request is None:
        return
    modes = {Mode.FEEDBACK, Mode.APPROXIMATE}
    made: list[prompt.Prompt | None] = []
    for _ in range(2):
        try:
            made.append(runner().run(prompt.encode(request, encoder(), 1, set(modes), ChainMemo())))
        except BadRequest:
            made.append(None)
    first, second = made
    if first is None or second is None:
        assert first is second
        return
    assert first.prefixes.keys() == modes
    for mode in modes:
        assert first.prefix(mode).length == second.prefix(mode).length
    assert first.tokens == second.tokens


def parsed(path: str, raw: bytes) -> openai.Body | None:
    """None if it was refused."""
    try:
        return openai.parse(KINDS[path], raw, openai.Bounds())
    except BadRequest:
        return None


def loaded(raw: bytes) -> Any:
    """As the standard library reads it; None if it does not."""
    try:
        return json.loads(raw.decode("utf-8"))
    except (ValueError, RecursionError):
        return None


def split(raw: bytes, cuts: list[int]) -> tuple[list[bytes], bytes]:
    """Whole events, and what is left."""
    bounds = sorted({0, *(cut for cut in cuts if cut < len(raw)), len(raw)})
    splitter = EventSplitter()
    events = [event for start, end in pairwise(bounds) for event in splitter.feed(raw[start:end])]
    tail = splitter.tail
    assert b"".join(events) + tail == raw
    last = splitter.finish()
    return (events, tail) if last is None else ([*events, last], b"")


@cache
def encoder() -> Encoder:
    """Of the tiny tokenizer with a ChatML template."""
    with tempfile.TemporaryDirectory() as folder:
        made = load_tokenizer(str(write_folder(Path(folder), tiny_bpe(), template=CHATML)))
    return Encoder(made.tokenizer, made.template, memo_bytes=2**20, inline_chars=2**30)


@cache
def runner() -> asyncio.Runner:
    """One loop for all examples of this process."""
    return asyncio.Runner()


PROPERTIES: dict[str, Callable[[], None]] = {
    check.__name__: check
    for check in (
        parsing,
        splicing,
        splitting_bytes,
        splitting_streams,
        metering,
        metering_anything,
        errors_of_backends,
        encoding,
    )
}


def run_property(name: str, examples: int, *, seed: int | None = None) -> None:
    """Raises AssertionError, or what was thrown, with the smallest example that was found. To be
    called once for each name."""
    check = PROPERTIES[name]
    if seed is not None:
        check = hypothesis_seed(seed)(check)
    settings(
        max_examples=examples,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )(check)()
