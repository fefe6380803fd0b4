"""Which templates only pass contents on, and what stands for long contents meanwhile."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefold.proxy.tokens.long_texts import LONG, LongTexts, hides_start
from prefold.proxy.tokens.opaque_contents import passes_contents_on
from prefold.proxy.tokens.template_engines import MiniJinja, parse
from tests.support.tiny_tokenizer import CHATML, TOOLS_CHATML

EACH = "{{% for m in messages %}}{}{{% endfor %}}"
PASSING = [
    CHATML,
    TOOLS_CHATML,
    EACH.format("{{ m.content }}"),
    EACH.format("{{ m['content'] | trim }}"),
    EACH.format("{{ '<' ~ m.content ~ '>' }}"),
    EACH.format("{% if m.content == 'abc' or m.content is string %}a{{ m.content }}{% endif %}"),
    EACH.format("{% set c = m.content or '' %}{{ c + eos_token if c else '' }}"),
    EACH.format("{% if loop.first %}{{ messages[-1].content }}{% endif %}{{ m.role | upper }}"),
    "{% set rest = messages[1:] %}{% for m in rest %}{{ m.content }}{% endfor %}{{ rest | count }}",
    "{% for m in messages %}{{ messages[loop.index0 - 1].content }}{% endfor %}",
]


@pytest.mark.parametrize("source", PASSING)
def test_templates_that_only_write_contents(source: str) -> None:
    """Joined, trimmed, tested for emptiness or type, compared with a constant."""
    assert passes_contents_on(parse(source)) is not None


@pytest.mark.parametrize(
    "source",
    [
        EACH.format("{{ m.content.split('x')[0] }}"),
        EACH.format("{{ m.content | length }}"),
        EACH.format("{{ m.content | upper }}"),
        EACH.format("{{ m.content[0] }}"),
        EACH.format("{% if 'x' in m.content %}a{% endif %}"),
        EACH.format("{% if m.content == m.role %}a{% endif %}"),
        EACH.format("{% if m.content > 'b' %}a{% endif %}"),
        EACH.format("{% if 'abc' == m.content %}a{% endif %}"),
        EACH.format("{% if m.content == '" + "x" * LONG + "' %}a{% endif %}"),
        EACH.format("{% for c in m.content %}{{ c }}{% endfor %}"),
        EACH.format("{% set c = m.content %}{{ c[:5] }}"),
        EACH.format("{% set c = m.content | trim %}{{ c.startswith('x') }}"),
        EACH.format("{% set ns.x = m.content %}"),
        EACH.format("{{ m }}"),
        EACH.format("{{ m | tojson }}"),
        EACH.format("{{ m.get('content') | length }}"),
        EACH.format("{% for k in m %}{{ m[k] | length }}{% endfor %}"),
        EACH.format("{% set k = 'content' %}{{ m[k] | length }}"),
        EACH.format("{{ loop.previtem.content | length }}"),
        EACH.format("{{ loop['nextitem'].content | length }}"),
        EACH.format("{{ loop.changed(m.content) }}"),
        EACH.format("{{ raise_exception(m.content) }}"),
        "{{ messages | tojson }}",
        "{{ messages | map(attribute='content') | join }}",
        "{{ (messages | first).content | length }}",
        "{{ [messages][0][0].content | length }}",
        "{{ {'a': messages}.a[0].content | length }}",
        "{% set ns = namespace(m=messages) %}{{ ns.m[0].content | length }}",
        "{% for a, b in messages %}{{ b }}{% endfor %}",
        "{% macro f(m) %}{{ m.content | length }}{% endmacro %}{{ f(messages[0]) }}",
        "{% with m = messages[0] %}{{ m.content | length }}{% endwith %}",
        "{% set x %}{{ messages[0].content }}{% endset %}{{ x | length }}",
        "{% for m in messages %}{% set x = m %}{{ x.content | length }}{% endfor %}",
    ],
)
def test_templates_that_look_into_contents(source: str) -> None:
    """Or that reach them by a way that is not followed."""
    assert passes_contents_on(parse(source)) is None


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)
SPACES = st.text(st.sampled_from(" \n\t\x85\u2028\x1c"), max_size=3)
CONTENTS = st.tuples(SPACES, TEXTS, st.sampled_from(["ab c", "\ue000"]), TEXTS, SPACES).map(
    lambda parts: parts[0] + parts[1] + parts[2] * LONG + parts[3] + parts[4]
)


@given(source=st.sampled_from(PASSING), contents=st.lists(CONTENTS | TEXTS, min_size=1, max_size=3))
def test_marks_are_rendered_as_their_texts_would_be(source: str, contents: list[str]) -> None:
    """With the texts put back, the prompt is that of the chat itself."""
    messages = [{"role": "user", "content": content} for content in contents]
    template, texts = MiniJinja(source), LongTexts(1 << 20)
    with_marks = template.render({"messages": texts.marked(messages), "eos_token": "</s>"})

    assert texts.whole(with_marks) == template.render({"messages": messages, "eos_token": "</s>"})
    assert max(map(len, contents)) < LONG or len(with_marks) < LONG * len(contents) * 3


def test_what_was_not_used_for_longest_is_forgotten() -> None:
    """Its text comes back with another mark: one that was given away means what it meant."""
    texts = LongTexts(3 * LONG)
    chats = [[{"role": "user", "content": letter * LONG}] for letter in "abca"]
    marks = []
    for chat in chats:
        marks += [message["content"] for message in texts.marked(chat)]
        texts.trim()

    assert len(set(marks)) == 4
    assert len(texts) == 2
    assert texts.whole(marks[0]) == marks[0]
    assert texts.whole(marks[3]) == "a" * LONG


def test_what_a_client_writes_is_no_mark() -> None:
    """However much it looks like one."""
    fake = "\ue000" + "0" * 16 + "\ue001"

    assert LongTexts(1 << 20).whole(fake) == fake


@pytest.mark.parametrize(
    ("before", "start", "hidden"),
    [
        ("", "", False),
        ("", "<s>", True),
        ("<s>", "<s>", True),
        ("<s", "<s>", True),
        ("a", "<s>", False),
    ],
)
def test_a_mark_may_hide_what_the_engine_looks_for_at_the_start(
    before: str, start: str, hidden: bool
) -> None:
    """A text that begins with the BOS, where a prompt does."""
    [message] = LongTexts(1 << 20).marked([{"role": "user", "content": "a" * LONG}])

    assert hides_start(before + message["content"], start) is hidden
    assert not hides_start("a" * LONG, start)
