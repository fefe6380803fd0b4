"""The two libraries that render chat templates, set up as Hugging Face does: jinja2, sandboxed, is
the reference; minijinja is compiled. Knows no chats.

What is rendered is foreign code. jinja2 has no bound on time and memory: it renders in the process
of `render_worker` only. minijinja's fuel bounds loops and texts; `template_rules` tells in which
templates it bounds everything.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.parser
import jinja2.sandbox
import minijinja

from prefold.proxy.errors import NotEncodable

# Instructions a rendering may take, and 64 bytes of text each: at most 0.7 s and 320 MiB were seen.
_FUEL = 5_000_000
MAX_TEXT_CHARS = 64 * 2**20
MAX_JSON_CHARS = 32 * 2**20
"""What `tojson`, which fuel does not count, may write in one rendering."""
_MAX_INDENT = 16
_MAX_LAYOUT_CHARS = 256
# By Python's own methods and operators, when a template meets data it is not made for.
_RAISED = (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RecursionError)


class TemplateRefusal(Exception):
    """The template raised: it does not take this conversation, and neither does the engine."""


class OverBound(NotEncodable):
    """Rendering took too long, or made too long a text."""


class Jinja2:
    """As Hugging Face renders: sandboxed, loop controls, `generation` blocks left transparent."""

    def __init__(self, source: str) -> None:
        self._json = _JsonFilter()
        environment = _environment()
        environment.filters["tojson"] = self._json
        environment.globals["raise_exception"] = _refuse
        environment.globals["strftime_now"] = _strftime_now
        self._template = environment.from_string(source)

    def render(self, variables: dict[str, Any]) -> str:
        """Raises TemplateRefusal and OverBound."""
        self._json.left = MAX_JSON_CHARS
        try:
            return _bounded(self._template.render(variables))
        except (jinja2.TemplateError, *_RAISED) as error:
            raise TemplateRefusal from error


class MiniJinja:
    """The same language, compiled, with a limit on the work one rendering may do."""

    def __init__(self, source: str) -> None:
        self._json = _JsonFilter()
        self._environment = minijinja.Environment(
            templates={"chat": source},
            trim_blocks=True,
            lstrip_blocks=True,
            fuel=_FUEL,
            filters={"tojson": self._json},
            globals={"raise_exception": _refuse, "strftime_now": _strftime_now},
        )
        self._environment.add_template("chat", source)

    def render(self, variables: dict[str, Any]) -> str:
        """Raises TemplateRefusal, OverBound, and NotEncodable for lone surrogates."""
        self._json.left = MAX_JSON_CHARS
        try:
            text: str = self._environment.render_template("chat", **variables)
        except minijinja.TemplateError as error:
            if error.kind == "OutOfFuel":
                raise OverBound("the chat template takes too long") from None
            raise TemplateRefusal from error
        except _RAISED as error:
            raise TemplateRefusal from error
        if "\ufffd" in text:
            # minijinja writes U+FFFD for a lone surrogate; the client's own U+FFFD is fine.
            _require_utf8(variables)
        return _bounded(text)


def parse(source: str) -> jinja2.nodes.Template:
    """The reference's syntax tree: nothing of the template is run. Raises jinja2.TemplateError."""
    return _environment().parse(source)


def _environment() -> jinja2.Environment:
    return jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[jinja2.ext.loopcontrols, _GenerationBlocks],
    )


class _GenerationBlocks(jinja2.ext.Extension):
    """`{% generation %}` marks what a trainer learns from; a prompt only needs its content."""

    tags = {"generation"}  # noqa: RUF012 -- jinja2 declares it so

    def parse(self, parser: jinja2.parser.Parser) -> list[jinja2.nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _JsonFilter:
    """Unlike jinja2's own filter: no HTML escapes, and non-ASCII text as it is."""

    def __init__(self) -> None:
        self.left = MAX_JSON_CHARS
        """Characters that this rendering may still write."""

    def __call__(
        self,
        value: Any,
        ensure_ascii: bool = False,
        indent: int | str | None = None,
        separators: tuple[str, str] | None = None,
        sort_keys: bool = False,
    ) -> str:
        width = len(indent) if isinstance(indent, str) else indent or 0
        if width > _MAX_INDENT or sum(map(len, separators or ())) > _MAX_INDENT:
            raise OverBound("the chat template makes too long a text")
        text = json.dumps(
            value,
            ensure_ascii=ensure_ascii,
            indent=indent,
            separators=separators,
            sort_keys=sort_keys,
        )
        self.left -= len(text)
        if self.left < 0:
            raise OverBound("the chat template makes too long a text")
        return text


def _bounded(text: str) -> str:
    if len(text) > MAX_TEXT_CHARS:
        raise OverBound("the chat template makes too long a text")
    return text


def _require_utf8(variables: dict[str, Any]) -> None:
    try:
        json.dumps(variables, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise NotEncodable("the request holds lone surrogates") from None


def _refuse(message: str) -> None:
    raise TemplateRefusal(message)


def _strftime_now(layout: str) -> str:
    if len(layout) > _MAX_LAYOUT_CHARS:
        raise OverBound("the chat template makes too long a text")
    return datetime.now().strftime(layout)
