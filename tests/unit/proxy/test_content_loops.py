"""vLLM's rule for templates that get contents as lists of parts, with its verdicts on 0.32.0."""

import jinja2
import pytest

from prefold.proxy.tokens.content_loops import loops_over_content

EACH = "{% for m in messages %}%s{% endfor %}"
LOOP = "{% for part in %s %}{{ part.text }}{% endfor %}"
SHOW = "{% macro show(c) %}" + LOOP.replace("%s", "c") + "{% endmacro %}"


def over(content: str, messages: str = "messages") -> str:
    return "{% for m in " + messages + " %}" + LOOP.replace("%s", content) + "{% endfor %}"


@pytest.mark.parametrize(
    "source",
    [
        over("m.content"),
        over("m['content']"),
        over("m.content | list"),
        over("m.content[1:]"),
        over("m.content", "messages[1:]"),
        "{% set rest = messages[1:] %}{% set more = rest | list %}" + over("m.content", "more"),
        "{% set content = messages[0].content %}" + LOOP.replace("%s", "content"),
        SHOW + EACH.replace("%s", "{{ show(m.content) }}"),
        SHOW + EACH.replace("%s", "{{ show(c=m['content']) }}"),
    ],
)
def test_a_loop_over_content_is_found(source: str) -> None:
    """However the messages or the content are named on the way."""
    assert loops_over_content(jinja2.Environment().parse(source))


@pytest.mark.parametrize(
    "source",
    [
        EACH.replace("%s", "{{ m.content }}"),
        EACH.replace("%s", "{{ m.content if m.content is string else m.content[0].text }}"),
        over("m.tool_calls"),
        over("other.content"),
        over("m.content", "documents"),
        LOOP.replace("%s", "messages[0].content"),
        SHOW + EACH.replace("%s", "{{ show(m.tool_calls) }}{{ m.content }}"),
        "{% macro show(content) %}" + LOOP.replace("%s", "content") + "{% endmacro %}",
        "{% set ns = namespace(x=[]) %}{% set ns.x = messages %}" + over("m.content", "messages"),
        "{% for role, content in messages %}{% for part in content %}{% endfor %}{% endfor %}",
    ],
)
def test_other_loops_are_none(source: str) -> None:
    """Reading parts by index is no loop, and unpacking makes vLLM give up."""
    assert not loops_over_content(jinja2.Environment().parse(source))
