"""Render a chat into the prompt text the engine makes of it.

The reference is the sandboxed jinja2 environment that Hugging Face uses; `minijinja` does the work
where it proved equal on probe conversations at load. Knows nothing of tokens.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.parser
import jinja2.sandbox
import minijinja

from prefold.proxy.errors import NotEncodable
from prefold.proxy.tokens.chat_request import Chat, Message, Prepared, TemplateTraits, check
from prefold.proxy.tokens.dialect_llama_cpp import prepare_for_llama_cpp
from prefold.proxy.tokens.dialect_vllm import prepare_for_vllm
from prefold.proxy.tokens.probe_chats import probe_chats

# Instructions a rendering may take, about 0.1 s. The template is the operator's, the data is not.
_FUEL = 5_000_000


class Dialect(StrEnum):
    """The engine whose way of preparing messages and tools for a template is followed."""

    LLAMA_CPP = "llama.cpp"
    VLLM = "vllm"


_PREPARE: dict[Dialect, Callable[[TemplateTraits, Chat], Prepared]] = {
    Dialect.LLAMA_CPP: prepare_for_llama_cpp,
    Dialect.VLLM: prepare_for_vllm,
}


class TemplateRefusal(Exception):
    """The template raised: it does not take this conversation, and neither does the engine."""


class ChatTemplate:
    """A model's chat template, rendered as one kind of engine does it.

    `starts_with_bos`: the engine puts exactly one BOS before every chat, whether or not the
    template writes it (llama.cpp, where the vocabulary says add_bos).
    """

    def __init__(
        self,
        source: str,
        bos_token: str | None,
        eos_token: str | None,
        *,
        dialect: Dialect = Dialect.LLAMA_CPP,
        starts_with_bos: bool = False,
    ) -> None:
        self.dialect = dialect
        self._tokens = {"bos_token": bos_token or "", "eos_token": eos_token or ""}
        self._start = (bos_token or "") if starts_with_bos else ""
        reference = _Jinja2(source)
        self.traits = TemplateTraits.of(
            lambda variables: self._attempt(reference, variables), source, reference.tree
        )
        self._renderer, self._verdict = self._choose(source, reference)

    @property
    def fast(self) -> bool:
        """Whether minijinja renders."""
        return isinstance(self._renderer, _MiniJinja)

    def describe(self) -> str:
        """One line on which library renders, and why, for `prefold check`."""
        library = "minijinja" if self.fast else "jinja2"
        return f"chat template rendered by {library} as {self.dialect} does ({self._verdict})"

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
        """Prompt text of a chat; `extra` is the request's `chat_template_kwargs`.

        Raises `NotEncodable` if the engine would not take it or its text cannot be told exactly.
        """
        chat = Chat(
            messages=messages,
            tools=tools,
            extra=extra,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=continue_final_message,
            documents=documents,
            reasoning_effort=reasoning_effort,
        )
        try:
            return self._render(self._renderer, chat)
        except TemplateRefusal as error:
            raise NotEncodable("the chat template refuses this conversation") from error

    def _render(self, renderer: "_Renderer", chat: Chat) -> str:
        check(chat)
        prepared = _PREPARE[self.dialect](self.traits, chat)
        text = prepared.finish(renderer.render({**self._tokens, **prepared.variables}))
        return text if text.startswith(self._start) else self._start + text

    def _attempt(self, renderer: "_Renderer", variables: dict[str, Any]) -> str | None:
        try:
            return renderer.render({**self._tokens, **variables})
        except TemplateRefusal:
            return None

    def _outcome(self, renderer: "_Renderer", chat: Chat) -> str | None:
        try:
            return self._render(renderer, chat)
        except (TemplateRefusal, NotEncodable):
            return None

    def _choose(self, source: str, reference: "_Jinja2") -> tuple["_Renderer", str]:
        try:
            fast = _MiniJinja(source)
        except minijinja.TemplateError as error:
            return reference, f"minijinja cannot read it: {error.message}"
        chats = probe_chats()
        differing = sum(
            self._outcome(fast, chat) != self._outcome(reference, chat) for chat in chats
        )
        if differing:
            return reference, f"minijinja differs on {differing} of {len(chats)} probe chats"
        return fast, f"minijinja gave the same text on {len(chats)} probe chats"


class _Jinja2:
    """As Hugging Face renders: sandboxed, loop controls, `generation` blocks left transparent."""

    def __init__(self, source: str) -> None:
        environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[jinja2.ext.loopcontrols, _GenerationBlocks],
        )
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _refuse
        environment.globals["strftime_now"] = _strftime_now
        self._template = environment.from_string(source)
        self.tree = environment.parse(source)

    def render(self, variables: dict[str, Any]) -> str:
        try:
            return self._template.render(variables)
        except (jinja2.TemplateError, TypeError, ValueError, LookupError) as error:
            raise TemplateRefusal from error


class _MiniJinja:
    """The same language, compiled, with a limit on the work one rendering may do."""

    def __init__(self, source: str) -> None:
        self._environment = minijinja.Environment(
            templates={"chat": source},
            trim_blocks=True,
            lstrip_blocks=True,
            fuel=_FUEL,
            filters={"tojson": _to_json},
            globals={"raise_exception": _refuse, "strftime_now": _strftime_now},
        )
        self._environment.add_template("chat", source)

    def render(self, variables: dict[str, Any]) -> str:
        try:
            text: str = self._environment.render_template("chat", **variables)
        except (minijinja.TemplateError, TypeError, ValueError, LookupError) as error:
            raise TemplateRefusal from error
        if "\ufffd" in text:
            # minijinja writes U+FFFD for a lone surrogate; the client's own U+FFFD is fine.
            _require_utf8(variables)
        return text


_Renderer = _Jinja2 | _MiniJinja


class _GenerationBlocks(jinja2.ext.Extension):
    """`{% generation %}` marks what a trainer learns from; a prompt only needs its content."""

    tags = {"generation"}  # noqa: RUF012 -- jinja2 declares it so

    def parse(self, parser: jinja2.parser.Parser) -> list[jinja2.nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Unlike jinja2's own filter: no HTML escapes, and non-ASCII text as it is."""
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def _require_utf8(variables: dict[str, Any]) -> None:
    try:
        json.dumps(variables, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise NotEncodable("the request holds lone surrogates") from None


def _refuse(message: str) -> None:
    raise TemplateRefusal(message)


def _strftime_now(layout: str) -> str:
    return datetime.now().strftime(layout)
