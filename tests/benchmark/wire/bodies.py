"""Requests of an exact size, made of English prose: what a tokenizer meets, not random letters.

The prose is the one that every Python brings along for `help()`. It is only read, never kept here.
"""

import json
import random
from collections.abc import Iterator
from pydoc_data.topics import topics

MODEL = "bench"
QUESTION_BYTES = 160
MIN_LINE = 30

Chat = list[dict[str, str]]


def prose() -> list[bytes]:
    """Lines as they stand inside a JSON string, without their line ends."""
    lines = {line for text in topics.values() for line in text.split("\n") if len(line) > MIN_LINE}
    return [json.dumps(line)[1:-1].encode() for line in sorted(lines)]


def bodies(*, size: int, shared: bool, stream: bool, seed: str) -> Iterator[bytes]:
    """Chat completion bodies of exactly `size` bytes, without end: a system prompt and a question.

    Shared: the system prompt is the same for every seed, and only the question is new. Unique: the
    system prompt is new from its first line on.
    """
    lines, rng = prose(), random.Random(f"{seed} {size} {shared}")
    before = b'{"model":"%s","messages":[{"role":"system","content":"' % MODEL.encode()
    between = b'"},{"role":"user","content":"'
    after = b'"}],"stream":%s,"max_tokens":512' % (b"true" if stream else b"false")
    if stream:
        after += b',"stream_options":{"include_usage":true}'
    after += b"}"
    room = size - len(before) - len(between) - len(after) - QUESTION_BYTES
    fixed = _text(lines, random.Random(size), room) if shared else None
    while True:
        system = fixed if fixed is not None else _text(lines, rng, room)
        question = _text(lines, rng, QUESTION_BYTES)
        yield b"".join((before, system, between, question, after))


def messages(body: bytes) -> Chat:
    chat: Chat = json.loads(body)["messages"]
    return chat


def request(body: bytes) -> bytes:
    """The whole HTTP request."""
    head = (
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: bench\r\nUser-Agent: bench\r\n"
        b"Accept: */*\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    )
    return head % len(body) + body


def _text(lines: list[bytes], rng: random.Random, size: int) -> bytes:
    """`size` bytes of lines in random order; where no line fits any more, dots fill the rest."""
    chosen, left = [], size
    while left > 0:
        line = rng.choice(lines)
        if len(line) + 2 > left:
            chosen.append(b"." * left)
            break
        chosen.append(line + b"\\n")
        left -= len(line) + 2
    return b"".join(chosen)
