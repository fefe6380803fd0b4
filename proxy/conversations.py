"""Which requests are turns of one conversation: a key that they share. It is a hash with a seed of
this deployment.
"""

from __future__ import annotations

from collections import OrderedDict
from hashlib import blake2b
from typing import Any

from xxhash import xxh3_64_intdigest

from prefold.prefix_index.prefix import namespace_seed
from prefold.proxy.messages import MessagesBody
from prefold.proxy.openai import Body, ChatBody
from prefold.proxy.responses import ResponsesBody

MAX_SEEDS = 1024
ROLES = {"system": 1, "developer": 2, "user": 3, "assistant": 4, "tool": 5}
"""Mixed into the seeds of their messages' hashes."""
LONG_CHARS = 16_384
MAX_LONG = 16
"""Few: what is held is no memory for the next request."""


class Conversations:
    """Mutable, for one thread."""

    def __init__(self, secret: bytes) -> None:
        self._secret = blake2b(secret, digest_size=32, person=b"conversation").digest()
        self._long = LongTexts()
        self._seeds: dict[tuple[str, str], int] = {}

    def key(self, body: Body, session: str | None, tenant: str, model: str) -> int | None:
        """A key that the turns of one conversation share: of the session that the client names,
        else of its messages up to the first of a user. None where neither is known."""
        seed = self._seeds.get((model, tenant))
        if seed is None:
            seed = self._new_seed(model, tenant)
        if session is not None:
            return xxh3_64_intdigest(f"name {session}".encode("utf-8", "surrogatepass"), seed)
        messages = body.messages if isinstance(body, ChatBody) else _opening(body)
        key = seed
        for message in messages:
            if not isinstance(message, dict):
                return self._mixed(message, key)
            role, content = message.get("role"), message.get("content")
            mixed = ROLES.get(role) if isinstance(role, str) else None
            if mixed is None:
                key, mixed = self._mixed(role, key), 0
            if isinstance(content, str):
                short = content if len(content) < LONG_CHARS else self._long.mark(content)
                key = xxh3_64_intdigest(short.encode("utf-8", "surrogatepass"), key ^ mixed)
            else:
                key = self._mixed(content, key ^ mixed)
            if role == "user":
                break
        return key if messages else None

    def _mixed(self, value: Any, key: int) -> int:
        """With all that is in a JSON value."""
        texts: list[str] = []
        _add(texts, value)
        for text in (str(len(texts)), *texts):
            short = text if len(text) < LONG_CHARS else self._long.mark(text)
            key = xxh3_64_intdigest(short.encode("utf-8", "surrogatepass"), key)
        return key

    def _new_seed(self, model: str, tenant: str) -> int:
        if len(self._seeds) >= MAX_SEEDS:
            self._seeds.clear()
        seed = self._seeds[model, tenant] = namespace_seed(
            self._secret, model=model, adapter=None, cache_salt=None, tenant=tenant
        )
        return seed


class LongTexts:
    """Marks that stand for long texts. Mutable. A text that came as the very same object, as system
    prompts do whose bodies begin alike, is not hashed again."""

    def __init__(self) -> None:
        self._marks: OrderedDict[int, tuple[str, str]] = OrderedDict()

    def mark(self, text: str) -> str:
        held = self._marks.get(id(text))
        if held is not None and held[0] is text:
            return held[1]
        made = f"#{xxh3_64_intdigest(text.encode('utf-8', 'surrogatepass')):x} "
        self._marks[id(text)] = text, made  # it is held, so its id stays its own
        if len(self._marks) > MAX_LONG:
            self._marks.popitem(last=False)
        return made


def _opening(body: Body) -> list[Any]:
    """Messages, or what else stands for a conversation's beginning; the first of a user ends it.
    Nothing for a prompt without turns, and for one that goes on what a backend stored."""
    if isinstance(body, MessagesBody):
        system = [] if body.system is None else [{"role": "system", "content": body.system}]
        return [*system, *body.messages]
    if isinstance(body, ResponsesBody):
        if body.conversation is not None:
            return [body.conversation]
        if body.previous_response_id is None:
            system = body.instructions
            turns = body.input if isinstance(body.input, list) else [body.input]
            return turns if system is None else [{"role": "system", "content": system}, *turns]
    return []


def _add(texts: list[str], value: Any) -> None:
    """All that is in a JSON value, in order."""
    if isinstance(value, str):
        texts.append(value)
    elif isinstance(value, dict):
        for name, inner in value.items():
            texts.append(name)
            _add(texts, inner)
    elif isinstance(value, list):
        texts.append(str(len(value)))
        for inner in value:
            _add(texts, inner)
    elif value is not None:
        texts.append(repr(value))
