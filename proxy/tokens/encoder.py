"""From a request to token ids, paying only for what was not seen before.

A rendered prompt is cut before each occurrence of one special token that the template emits, and
each piece is looked up in a memo. The next turn of a conversation then encodes its last messages
only. Works on the event loop; long texts are encoded in a thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import msgspec
import numpy as np

from prefold.proxy.errors import NotEncodable
from prefold.proxy.tokens.chat_request import Chat, Message
from prefold.proxy.tokens.chat_template import ChatTemplate
from prefold.proxy.tokens.long_texts import LongTexts, beginning_key, hides_start
from prefold.proxy.tokens.segment_memo import SegmentMemo
from prefold.proxy.tokens.skeletons import Skeletons
from prefold.proxy.tokens.token_libraries import TokenIds
from prefold.proxy.tokens.tokenizer import Tokenizer

_NO_IDS = np.array([], dtype=np.uint32)
CHARS_PER_TOKEN = 4
"""Of English text, about."""
WORTH_WAITING_FOR = 8192
"""Characters: fewer are encoded as soon as sent on their way."""
_PROBE_CHAT = [{"role": role, "content": "hay"} for role in ("user", "assistant") * 3 + ("user",)]


class Beginning(NamedTuple):
    """What is known of a prompt at once. `length` in tokens is an estimate while `whole`, the ids
    of all of it, is being made."""

    ids: TokenIds
    length: int
    whole: asyncio.Future[TokenIds] | None
    after: int = 0
    """A key of how it goes on after `ids`, while `whole` is being made."""


class _LookUp(NamedTuple):
    """Ids of a text's segments, in order; the segments that are not known by their place, and their
    texts; `anew`: the first of these begins as none before it did."""

    found: list[TokenIds]
    missing: dict[int, str]
    texts: list[str]
    anew: bool


class Encoder:
    """One model's tokenizer and template with a memo of at most `memo_bytes`.

    What is to be encoded goes to a thread if it is longer than `inline_chars` characters, or
    always if only the slow tokenizer proved right. The memo is touched on the loop only, so a
    cancelled call leaves nothing half done. `close` ends the thread.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        template: ChatTemplate | None,
        *,
        memo_bytes: int,
        inline_chars: int,
        alone: bool = True,
    ) -> None:
        """`alone`: all prompts of the model come by here, so that what is new here is new."""
        self._alone = alone
        self._tokenizer = tokenizer
        self._template = template
        self._long: LongTexts | None = None
        self._skeletons: Skeletons | None = None
        if template is not None and template.passing is not None:
            memo_bytes //= 2
            self._long = LongTexts(memo_bytes)
            self._skeletons = Skeletons(
                template.passing, template.start, template.render_chat, self._split
            )
        self._memo = SegmentMemo(memo_bytes)
        self._inline_chars = inline_chars if tokenizer.fast else 0
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="prefold-encode")
        self._bos_ids = np.array(tokenizer.bos_ids, dtype=np.uint32)
        self.cut = _cutting_token(tokenizer, template)
        self._hits = self._misses = self._tokens = self._tokens_encoded = 0

    async def encode_chat(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]] | None,
        extra: Mapping[str, Any],
        *,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        documents: Any = None,
        reasoning_effort: Any = None,
    ) -> TokenIds:
        """Ids of a chat as the engine will see it; `extra` is its chat_template_kwargs.

        Raises `NotEncodable`.
        """
        beginning = await self.begin_chat(
            Chat(
                messages=messages,
                tools=tools,
                extra=extra,
                add_generation_prompt=add_generation_prompt,
                continue_final_message=continue_final_message,
                documents=documents,
                reasoning_effort=reasoning_effort,
            )
        )
        return beginning.ids if beginning.whole is None else await beginning.whole

    async def begin_chat(self, chat: Chat) -> Beginning:
        """As `encode_chat`, at once where the rest cannot matter for where the chat is sent: it is
        long, and begins as nothing did before, so no cache holds any of it.

        Raises `NotEncodable`, as `whole` does.
        """
        looked_up = self._look_up(self._known_segments(chat) or await self._segments(chat))
        chars = sum(map(len, looked_up.texts))
        if not (looked_up.anew and self._alone and chars >= WORTH_WAITING_FOR):
            ids = await self._joined(looked_up)
            return Beginning(ids, len(ids), None)
        known = np.concatenate([_NO_IDS, *looked_up.found[: next(iter(looked_up.missing))]])
        whole = asyncio.ensure_future(self._joined(looked_up))
        after = beginning_key(looked_up.texts[0])
        return Beginning(known, len(known) + chars // CHARS_PER_TOKEN, whole, after)

    async def encode_text(self, text: str, add_bos: bool = True) -> TokenIds:
        """Ids of a plain completion prompt, by default with the BOS an engine puts before it."""
        start = self._bos_ids if add_bos else _NO_IDS
        return np.concatenate([start, await self._joined(self._look_up(self._split(text)))])

    def stats(self) -> dict[str, int]:
        """Counters since the start, and the memo's present size."""
        return {
            "segment_hits": self._hits,
            "segment_misses": self._misses,
            "tokens": self._tokens,
            "tokens_encoded": self._tokens_encoded,
            "memo_entries": len(self._memo),
            "memo_bytes": self._memo.bytes,
        }

    def describe(self) -> str:
        """One line each on the tokenizer, the template and the cutting, for `prefold check`."""
        template = self._template.describe() if self._template else "no chat template"
        cut = f"memo cuts before {self.cut}" if self.cut else "memo holds whole prompts only"
        return "\n".join((self._tokenizer.describe(), template, cut))

    def close(self) -> None:
        """End the thread; what waits for it is cancelled."""
        self._thread.shutdown(wait=False, cancel_futures=True)
        if self._template is not None:
            self._template.close()

    def _known_segments(self, chat: Chat) -> list[str] | None:
        """Without rendering it; None where it must be."""
        if self._skeletons is None or self._long is None:
            return None
        if chat.tools or chat.extra or chat.documents is not None or chat.continue_final_message:
            return None
        if chat.reasoning_effort is not None:
            return None
        return self._skeletons.segments(chat.messages, chat.add_generation_prompt, self._long.short)

    async def _segments(self, chat: Chat) -> list[str]:
        if self._template is None:
            raise NotEncodable("the model has no chat template")
        if not self._template.fast:  # it waits for another process
            loop = asyncio.get_running_loop()
            text = await loop.run_in_executor(self._thread, self._template.render_chat, chat)
            return self._split(text)
        if self._long is not None and not chat.continue_final_message:
            marked = msgspec.structs.replace(chat, messages=self._long.marked(chat.messages))
            text = self._template.render_chat(marked)
            if not hides_start(text, self._template.start):
                return self._split(text)
        return self._split(self._template.render_chat(chat))

    def _split(self, text: str) -> list[str]:
        return _split(text, self.cut)

    def _look_up(self, segments: list[str]) -> _LookUp:
        found: list[TokenIds] = []
        missing: dict[int, str] = {}
        for place, segment in enumerate(segments):
            ids = self._memo.get(segment)
            if ids is None:
                missing[place] = segment
                ids = _NO_IDS
            found.append(ids)
        self._hits += len(found) - len(missing)
        texts, anew = list(missing.values()), False
        if missing and self._long is not None:
            anew = self._long.begins_anew(texts[0])
            texts = [self._long.whole(segment) for segment in texts]
            self._long.trim()
        return _LookUp(found, missing, texts, anew)

    async def _joined(self, looked_up: _LookUp) -> TokenIds:
        """All ids, with what was missing."""
        found, missing, texts, _ = looked_up
        if missing:
            if sum(map(len, texts)) <= self._inline_chars:
                encoded = self._tokenizer.encode_many(texts)
            else:
                loop = asyncio.get_running_loop()
                encode = self._tokenizer.encode_many
                encoded = await loop.run_in_executor(self._thread, encode, texts)
            self._misses += len(texts)
            for (place, segment), ids in zip(missing.items(), encoded, strict=True):
                self._memo.put(segment, ids)
                self._tokens_encoded += len(ids)
                found[place] = ids
        joined = np.concatenate([_NO_IDS, *found])
        self._tokens += len(joined)
        return joined


def _split(text: str, cut: str | None) -> list[str]:
    """Cut before each occurrence of `cut`; `str.split` takes a third of a regex's time."""
    if cut is None:
        return [text]
    first, *others = text.split(cut)
    segments = [cut + other for other in others]
    return [first, *segments] if first else segments


def _cutting_token(tokenizer: Tokenizer, template: ChatTemplate | None) -> str | None:
    """The special token the template emits most often, the earliest of equals, if cuts are exact.

    One token is enough: it opens or closes each turn, and more cuts are only more look-ups.
    """
    if template is None:
        return None
    try:
        text = template.render(_PROBE_CHAT, None, {})
    except NotEncodable:
        return None
    emitted = [token for token in tokenizer.special_tokens if token in text]
    emitted.sort(key=lambda token: (-text.count(token), text.index(token)))
    return next((token for token in emitted if tokenizer.cuts_at(token)), None)
