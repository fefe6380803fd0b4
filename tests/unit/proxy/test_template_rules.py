"""Which templates may be rendered in the proxy's own process."""

from __future__ import annotations

import pytest

from prefold.proxy.tokens.template_engines import MiniJinja, OverBound, TemplateRefusal, parse
from prefold.proxy.tokens.template_rules import Unbounded, require_bounded
from tests.support.tiny_tokenizer import CHATML, TOOLS_CHATML

LOOP = "{{% set ns = namespace(a=messages, t='') %}}{{% for i in range(9) %}}{}{{% endfor %}}"


def looping(statement: str) -> str:
    return LOOP.format(statement)


@pytest.mark.parametrize(
    "source",
    [
        CHATML,
        TOOLS_CHATML,
        "{% for m in messages[1:] %}{{ m.content.split('</think>')[-1].lstrip() }}{% endfor %}",
        "{% set messages = messages[1:] %}{% set tools = tools or [] %}{{ tools | tojson }}",
        "{{ ['a', 'b'] | join(',') }}{{ [messages, tools] == [tools, messages] }}",
        "{% for a in ['x', 'y'] %}{{ a }}{% endfor %}{% set q = {'a': 1} %}",
        "{% macro f(x) %}{{ x.items() | list }}{% endmacro %}{{ f(messages) }}{{ f(tools) }}",
        looping("{% set ns.t = ns.t + messages[0].content %}"),
        looping("{% set ns.a = messages[1:] %}"),
        "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}",
        "{{ messages | selectattr('role', 'equalto', 'user') | map(attribute='content') | list }}",
        "{{ messages[0].content | replace('a', bos_token) | trim }}",
    ],
)
def test_what_templates_do_is_allowed(source: str) -> None:
    """Text may grow, for fuel counts it; data may be looked at from everywhere."""
    require_bounded(parse(source))


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        # In a loop each of these doubles a container, or makes it one deeper.
        (looping("{% set ns.a = [ns.a, ns.a] %}"), "keeps a container"),
        (looping("{% set ns.a = ns.a + ns.a %}"), "keeps a container"),
        (looping("{% set ns.a = {'x': ns.a} %}"), "keeps a container"),
        (looping("{% set ns.a = ns.a[1:] %}"), "from what it kept"),
        (looping("{% set b = ns.a %}{% set ns.a = b[1:] %}"), "from what it kept"),
        (looping("{% for b in ns.a %}{% set ns.a = b[1:] %}{% endfor %}"), "from what it kept"),
        (looping("{% with b = ns.a %}{% set ns.a = b[1:] %}{% endwith %}"), "from what it kept"),
        (looping("{% set ns.a = ns.a | default([ns.a]) %}"), "keeps a container"),
        (looping("{% set ns.a = (ns.a, ns.a) if i else ns.a %}"), "keeps a container"),
        (looping("{% set ns.a = none or [ns.a] %}"), "keeps a container"),
        (looping("{% set ns.a = {'x': 1}.get('y', [ns.a]) %}"), "keeps a container"),
        (looping("{% set ns.a = ns.a | map('default', ns.a) %}"), "from what it kept"),
        ("{{ messages | map('default', messages) }}", "gives data to a filter"),
        (looping("{{ messages | map(attribute='q', default=ns.a) }}"), "gives data to a filter"),
        (looping("{{ messages | map('default', [ns.a]) }}"), "keeps a container"),
        (looping("{% set ns.a = ns.a | batch(1) %}"), "the filter batch"),
        (looping("{% set ns.a = [ns.a] | list %}"), "keeps a container"),
        (looping("{% set ns.a = namespace(b=ns.a) %}"), "something else"),
        (looping("{% set ns.a = ns %}"), "something else"),
        (looping("{% set other = ns %}"), "something else"),
        (looping("{% for ns in messages %}{% endfor %}"), "something else"),
        ("{% set ns = namespace() %}{% macro f(ns) %}{% endmacro %}", "something else"),
        ("{% set x = [messages] %}" + "{% set x = [x, x] %}" * 60, "keeps a container"),
        ("{% set x = x + x %}" * 60, "keeps a container"),
        ("{% set a, b = messages, tools %}", "keeps a container"),
        ("{% macro f(x) %}{{ f([x, x]) }}{% endmacro %}{{ f(1) }}", "keeps a container"),
        ("{% for x in [messages] recursive %}{% endfor %}", "recursive"),
        ("{% for x in [messages, tools] %}{% endfor %}", "keeps a container"),
        # Lazy in minijinja, and walked in full by what comes after.
        ("{{ (['x'] * 1000000000) | tojson }}", "multiplies"),
        ("{{ 10 ** 10 }}", "multiplies"),
        # minijinja hands Python's own lists and dicts to the template.
        ("{{ messages.append(1) }}", "not known to be harmless"),
        ("{{ messages.extend(messages) }}", "not known to be harmless"),
        ("{{ messages[0].update({}) }}", "not known to be harmless"),
        ("{{ messages['append'](1) }}", "not known to be harmless"),
        ("{% set f = messages.append %}{{ f(1) }}", "not known to be harmless"),
        ("{{ (messages | first).x.y.pop() }}", "not known to be harmless"),
        ("{{ '{:1000000000}'.format(1) }}", "not known to be harmless"),
        ("{{ messages | attr('append') }}", "the filter attr"),
        ("{{ namespace(messages) }}", "copies a dict"),
        ("{{ range(*messages) }}", "unpacks"),
        ("{{ messages | map(*messages) }}", "unpacks"),
        ("{% include 'x' %}", "include statement"),
        ("{% import 'x' as y %}", "import statement"),
        ("{% block b %}{% endblock %}", "block statement"),
    ],
)
def test_what_could_outgrow_the_request_is_not(source: str, reason: str) -> None:
    """The reason is given, and none of the template's text."""
    with pytest.raises(Unbounded, match=reason):
        require_bounded(parse(source))


def test_the_names_of_namespaces_are_told() -> None:
    """A request that set one of them could put data where text is assumed."""
    assert require_bounded(parse(looping(""))) == {"ns"}
    assert require_bounded(parse(CHATML)) == set()


MEGABYTE = "x" * 2**20


@pytest.mark.parametrize(
    "source",
    [
        "{% for i in range(100000) %}{{ s }}{% endfor %}",
        "{% for i in range(90000) %}{% for j in range(90000) %}{% endfor %}{% endfor %}",
        "{{ 'x' * 10**9 }}",
        "{{ s | replace('x', s) }}",
        "{{ s.replace('x', s) }}",
        "{{ [s, s, s] | join(s) | replace('x', s) }}",
        "{{ s | indent(1000000) | replace('x', s) }}",
        "{% set ns = namespace(t='x') %}{% for i in range(60) %}{% set ns.t = ns.t ~ ns.t %}"
        "{% endfor %}",
        "{{ '%1000000000d' | format(1) }}",
        "{{ messages | tojson(indent=1000000000) }}",
        "{{ messages | tojson(indent=s) }}",
        "{{ messages | tojson(separators=(s, s)) }}",
        "{% for i in range(100000) %}{% set x = s | tojson %}{% endfor %}",
        "{{ strftime_now(s) }}",
        "{% for i in range(70) %}{{ s }}{% endfor %}",
    ],
)
def test_fuel_bounds_the_rest(source: str) -> None:
    """Loops, and every way to make long texts: an exception, and no long wait before it (the time
    limit of the whole test is what a bound that does not hold would run into)."""
    with pytest.raises(OverBound):
        MiniJinja(source).render({"s": MEGABYTE, "messages": [{"role": "user"}]})


def test_endless_recursion_is_refused() -> None:
    """By minijinja's own limit, before the stack ends."""
    with pytest.raises(TemplateRefusal):
        MiniJinja("{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}").render({})


def test_no_python_is_reached() -> None:
    """Attributes with underscores are undefined to minijinja, of functions and of data."""
    for source in ("raise_exception.__globals__", "messages.__class__", "''.__class__"):
        text = MiniJinja(f"[{{{{ {source} }}}}]").render({"messages": [{}]})
        assert text == "[]", source
