"""Chats of the same roles are rendered once."""

from typing import Any

import pytest

from prefold.proxy.errors import NotEncodable
from prefold.proxy.tokens.chat_request import Chat
from prefold.proxy.tokens.opaque_contents import passes_contents_on
from prefold.proxy.tokens.skeletons import MAX_MESSAGES, MAX_SKELETONS, Skeletons
from prefold.proxy.tokens.template_engines import MiniJinja, TemplateRefusal, parse
from tests.support.tiny_tokenizer import CHATML

EACH = "{{% for m in messages %}}<c>{{{{ m.role }}}}:{}{{% endfor %}}"


class Scene:
    def __init__(self, source: str, start: str = "") -> None:
        self._template = MiniJinja(source)
        passing = passes_contents_on(parse(source))
        assert passing is not None
        self.rendered = 0
        self._skeletons = Skeletons(passing, start, self._render, self._split)

    def _render(self, chat: Chat) -> str:
        self.rendered += 1
        variables = {
            "messages": list(chat.messages),
            "add_generation_prompt": chat.add_generation_prompt,
        }
        try:
            return self._template.render(variables)
        except TemplateRefusal as error:
            raise NotEncodable("refused") from error

    def _split(self, text: str) -> list[str]:
        first, *others = text.split("<c>")
        return [piece for piece in (first, *(f"<c>{other}" for other in others)) if piece]

    def segments(self, *messages: dict[str, Any], prompt: bool = False) -> list[str] | None:
        return self._skeletons.segments(messages, prompt, lambda content: content)

    def whole(self, *messages: dict[str, Any]) -> str:
        return self._render(Chat(messages=messages, extra={}, add_generation_prompt=False))


def said(*contents: Any, role: str = "user") -> list[dict[str, Any]]:
    return [{"role": role, "content": content} for content in contents]


def test_the_pieces_are_those_of_the_prompt() -> None:
    """Whatever the contents, once the roles are known."""
    scene = Scene(EACH.format("{{ m.content }};"))
    for contents in (("a", "b"), ("<c>", "\ue000"), (" x ", "a" * 5000)):
        segments = scene.segments(*said(*contents))
        assert segments is not None
        assert "".join(segments) == scene.whole(*said(*contents))

    assert scene.rendered == 1 + 3
    assert scene.segments(*said("a")) == ["<c>user:a;"]
    assert scene.rendered == 5


@pytest.mark.parametrize(
    ("source", "messages"),
    [
        (CHATML, said("")),
        (CHATML, said(None)),
        (CHATML, said([{"type": "text", "text": "a"}])),
        (CHATML, [{"role": "user", "content": "a", "name": "b"}]),
        (CHATML, [{"role": "user", "tool_calls": []}]),
        (CHATML, [{"role": 1, "content": "a"}]),
        (CHATML, said("a", role="r" * 100)),
        (CHATML, said(*["a"] * (MAX_MESSAGES + 1))),
        (CHATML, said("x-anthropic-billing-header: a")),
        (EACH.format("{{ m.content | trim }}"), said("a ")),
        (EACH.format("{{ m.content if m.content != 'a' }}"), said("a")),
        (EACH.format("{{ m.content }}{{ strftime_now('%S') }}"), said("a")),
        (EACH.format("{{ m.content }}{{ m.content }}"), said("a")),
        ("{% for m in messages %}{{ m.content }}{% endfor %}", said("a", "b")),
        (EACH.format("{{ raise_exception('no') }}{{ m.content }}"), said("a")),
    ],
)
def test_what_is_not_certain_is_rendered(source: str, messages: list[dict[str, Any]]) -> None:
    """More than a role and a text, a text that the template changes or compares, one that stands
    there twice or with another one in a piece, and a template that refuses or tells the time."""
    scene = Scene(source)

    assert scene.segments(*messages) is None


@pytest.mark.parametrize("source", ["{{ messages[0].content }}", "<s{{ messages[0].content }}"])
def test_a_content_may_be_what_the_engine_looks_for_at_the_start(source: str) -> None:
    """Then it decides whether a BOS is put before it."""
    assert Scene(source).segments(*said("a")) is not None
    assert Scene(source, start="<s>").segments(*said("a")) is None
    assert Scene(CHATML, start="<s>").segments(*said("a")) is not None


def test_few_are_known_at_a_time() -> None:
    """Roles are the client's to choose."""
    scene = Scene(EACH.format("{{ m.content }}"))
    for number in range(MAX_SKELETONS + 2):
        scene.segments(*said("a", role=f"r{number}"))

    assert len(scene._skeletons._known) <= MAX_SKELETONS
