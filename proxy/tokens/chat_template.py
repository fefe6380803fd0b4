"""Render a chat into the prompt text the engine makes of it.

The reference is the sandboxed jinja2 environment that Hugging Face uses, in a process of its own;
`minijinja` does the work, in this one, where it proved equal on probe conversations at load and the
template is one that its limits bound. Knows nothing of tokens.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any

import jinja2

from prefold.proxy.errors import NotEncodable, TokenizerError
from prefold.proxy.tokens.chat_request import Chat, Message, Prepared, TemplateTraits, check
from prefold.proxy.tokens.dialect_llama_cpp import prepare_for_llama_cpp
from prefold.proxy.tokens.dialect_sglang import prepare_for_sglang, takes_parts
from prefold.proxy.tokens.dialect_vllm import prepare_for_vllm
from prefold.proxy.tokens.opaque_contents import Passing, passes_contents_on
from prefold.proxy.tokens.probe_chats import probe_chats
from prefold.proxy.tokens.render_process import RenderProcess, Unreadable
from prefold.proxy.tokens.render_worker import FAST, REFERENCE
from prefold.proxy.tokens.template_engines import MiniJinja, OverBound, TemplateRefusal, parse
from prefold.proxy.tokens.template_rules import Unbounded, require_bounded

log = logging.getLogger(__name__)

RENDER_S = 1.0
"""A rendering may take."""
LOAD_S = 10.0
"""All renderings at load may take together."""

Render = Callable[[dict[str, Any]], str]


class Dialect(StrEnum):
    """The engine whose way of preparing messages and tools for a template is followed."""

    LLAMA_CPP = "llama.cpp"
    VLLM = "vllm"
    SGLANG = "sglang"


_PREPARE: dict[Dialect, Callable[[TemplateTraits, Chat], Prepared]] = {
    Dialect.LLAMA_CPP: prepare_for_llama_cpp,
    Dialect.VLLM: prepare_for_vllm,
    Dialect.SGLANG: prepare_for_sglang,
}


class ChatTemplate:
    """A model's chat template, rendered as one kind of engine does it.

    `starts_with_bos`: the engine puts exactly one BOS before every chat, whether or not the
    template writes it (llama.cpp, where the vocabulary says add_bos). Raises TokenizerError for a
    template that no library reads, or whose probe conversations take longer than `load_s`.
    """

    def __init__(
        self,
        source: str,
        bos_token: str | None,
        eos_token: str | None,
        *,
        dialect: Dialect = Dialect.LLAMA_CPP,
        starts_with_bos: bool = False,
        load_s: float = LOAD_S,
    ) -> None:
        self.dialect = dialect
        self._prepare = _PREPARE[dialect]
        self._tokens = {"bos_token": bos_token or "", "eos_token": eos_token or ""}
        self.start = (bos_token or "") if starts_with_bos else ""
        """With what every prompt begins, whether or not the template or a content writes it."""
        self._process = RenderProcess(source)
        self._engine = REFERENCE  # of the process
        self._fast: MiniJinja | None = None
        self._namespaces: frozenset[str] = frozenset()
        self.passing: Passing | None = None
        """Unless it looks into contents."""
        try:
            self._load(source, time.monotonic() + load_s)
        except (OverBound, Unreadable, jinja2.TemplateError) as error:
            self._process.close()
            raise TokenizerError(f"the chat template cannot be used: {error}") from None
        except RecursionError:
            self._process.close()
            raise TokenizerError("the chat template is nested too deep") from None

    @property
    def fast(self) -> bool:
        """Whether minijinja renders, here; else `render` waits for another process."""
        return self._fast is not None

    def describe(self) -> str:
        """One line on which library renders, and why, for `prefold check`."""
        library = self._engine if self.fast else f"{self._engine}, in its own process,"
        return f"chat template rendered by {library} as {self.dialect} does ({self._verdict})"

    def close(self) -> None:
        """End the process; it is started again where it is needed again."""
        self._process.close()

    def render(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]] | None,
        extra: Mapping[str, Any],
        *,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        documents: Any = None,
        reasoning_effort: Any = None,
    ) -> str:
        """`render_chat` of these; `extra` is the request's `chat_template_kwargs`."""
        return self.render_chat(
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

    def render_chat(self, chat: Chat) -> str:
        """Its prompt's text. Raises `NotEncodable` if the engine would not take it, or its text
        cannot be told exactly."""
        try:
            return self._rendered_fast(chat) if self._fast is not None else self._rendered(chat)
        except TemplateRefusal as error:
            raise NotEncodable("the chat template refuses this conversation") from error

    def _rendered(self, chat: Chat) -> str:
        return self._text(
            chat, lambda variables: self._process.render(self._engine, variables, within_s=RENDER_S)
        )

    def _rendered_fast(self, chat: Chat) -> str:
        assert self._fast is not None
        if chat.extra and self._namespaces & chat.extra.keys():
            raise NotEncodable("chat_template_kwargs sets a name of the template's own")
        started = time.perf_counter()
        try:
            return self._text(chat, self._fast.render)
        finally:
            if time.perf_counter() - started > RENDER_S:
                # Its work grows faster than the request: from now on where it can be stopped.
                log.warning("a chat template took too long: it is rendered in its own process now")
                self._fast, self._verdict = None, "minijinja took too long once"

    def _text(self, chat: Chat, render: Render) -> str:
        check(chat)
        prepared = self._prepare(self.traits, chat)
        text = prepared.finish(render({**self._tokens, **prepared.variables}))
        return text if text.startswith(self.start) else self.start + text

    def _load(self, source: str, until: float) -> None:
        """Find the traits and the library; all rendering is in the other process. Raises OverBound,
        Unreadable, and jinja2's errors."""
        tree = parse(source)

        def rendered(engine: str) -> Render:
            return lambda variables: self._process.render(
                engine, variables, within_s=max(until - time.monotonic(), 0.001)
            )

        self.traits = TemplateTraits.of(
            lambda variables: _none_if_refused(rendered(REFERENCE), {**self._tokens, **variables}),
            source,
            tree,
            sglang_parts=takes_parts(source, tree),
        )
        try:
            differing = sum(
                self._outcome(rendered(FAST), chat) != self._outcome(rendered(REFERENCE), chat)
                for chat in probe_chats()
            )
            if differing:
                self._verdict = (
                    f"minijinja differs on {differing} of {len(probe_chats())} probe chats"
                )
                return
            self._engine = FAST
            self._namespaces = require_bounded(tree)
        except Unreadable as error:
            self._verdict = f"minijinja cannot read it: {error}"
        except Unbounded as error:
            self._verdict = f"minijinja's limits do not bound it: {error}"
        else:
            self._fast = MiniJinja(source)
            self.passing = passes_contents_on(tree)
            self._verdict = f"minijinja gave the same text on {len(probe_chats())} probe chats"
            self._process.close()

    def _outcome(self, render: Render, chat: Chat) -> str | None:
        try:
            return self._text(chat, render)
        except OverBound:
            raise
        except (TemplateRefusal, NotEncodable):
            return None


def _none_if_refused(render: Render, variables: dict[str, Any]) -> str | None:
    try:
        return render(variables)
    except TemplateRefusal:
        return None
