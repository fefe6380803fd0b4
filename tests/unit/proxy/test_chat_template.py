"""Chats become the text that the engine makes of them, or are not claimed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from prefold.proxy.errors import NotEncodable, TokenizerError
from prefold.proxy.tokens.chat_template import ChatTemplate, Dialect
from prefold.proxy.tokens.probe_chats import probe_chats
from tests.support.tiny_tokenizer import CHATML, TOOLS_CHATML, WEATHER_CALL, WEATHER_TOOL

USER = {"role": "user", "content": "hi"}
PARTS = [{"type": "text", "text": text} for text in ("a", "", "b")]
CALLING = {"role": "assistant", "content": None, "tool_calls": [WEATHER_CALL]}
RESULT = {"role": "tool", "tool_call_id": "call00001", "content": "17 °C"}
READS_BOTH = """\
{%- for message in messages -%}
{%- if message.content is string %}[S {{ message.content }}]
{%- else %}{% for part in message.content %}[P {{ part.text }}]{% endfor %}{% endif -%}
{%- endfor -%}"""
READS_PARTS = (
    "{% for m in messages %}{% for part in m.content %}[P {{ part.text }}]{% endfor %}{% endfor %}"
)
WITH_TOOLS = [Dialect.LLAMA_CPP, Dialect.VLLM]
"""SGLang's, of which plain chats only are told, has tests of its own."""
SHOWS_THINKING = (
    "{{ enable_thinking is defined and enable_thinking }}{% for m in messages %}%s{% endfor %}"
)


def template(source: str, dialect: Dialect = Dialect.LLAMA_CPP) -> ChatTemplate:
    return ChatTemplate(source, "<s>", "</s>", dialect=dialect)


def render(source: str, *messages: Any, dialect: Dialect = Dialect.LLAMA_CPP, **more: Any) -> str:
    tools, extra = more.pop("tools", None), more.pop("extra", {})
    return template(source, dialect).render(list(messages), tools, extra, **more)


@pytest.mark.parametrize("dialect", WITH_TOOLS)
def test_a_chat_is_rendered_as_the_template_says(dialect: Dialect) -> None:
    """Blocks are trimmed as Hugging Face does it, and the generation prompt comes last."""
    assert render(CHATML, USER, dialect=dialect) == (
        "<|im_start|>system\nBe kind.<|im_end|>\n"
        "<|im_start|>user\nhi<|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    assert render(CHATML, USER, dialect=dialect, add_generation_prompt=False).endswith(
        "hi<|im_end|>\n"
    )


@pytest.mark.parametrize("source", [CHATML, TOOLS_CHATML, READS_BOTH, READS_PARTS])
def test_minijinja_renders_where_it_proved_equal(source: str) -> None:
    """The probe chats are rendered by both libraries, and the verdict is readable."""
    chosen = template(source)
    assert chosen.fast
    assert f"gave the same text on {len(probe_chats())} probe chats" in chosen.describe()


STRETCHED = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
NESTED = "{% set ns = namespace(a=messages) %}{% for m in messages %}{% set ns.a = [ns.a, ns.a] %}"


@pytest.mark.parametrize(
    "source",
    [
        STRETCHED,
        "{{ 'x' * 10 ** 10 }}",
        NESTED + "{% endfor %}{% for i in range(60) %}{% set ns.a = [ns.a, ns.a] %}{% endfor %}"
        "{{ ns.a == [ns.a] or ns.a }}",
        "{{ '' | nonsense }}",
        "{% if %}",
        "{% for m in messages %}",
        "{{ " + "(" * 5000 + ")" * 5000 + " }}",
    ],
)
def test_a_hostile_template_does_not_hang_the_start(source: str) -> None:
    """Nor does one that cannot be read: the model has no exact tokens then, and the reason is
    told."""
    with pytest.raises(TokenizerError, match="chat template"):
        ChatTemplate(source, "<s>", "</s>", load_s=1.0)


FOR_EVER = NESTED + "{% endfor %}{% for i in range(60) %}{% set ns.a = [ns.a, ns.a] %}{% endfor %}"


@pytest.mark.parametrize(
    ("hostile", "library", "killed"),
    [
        (STRETCHED, "minijinja", False),
        (STRETCHED, "jinja2, in its own process,", True),
        (FOR_EVER + "{{ ns.a }}", "minijinja, in its own process,", True),
    ],
)
def test_a_rendering_over_its_bound_is_not_claimed(
    hostile: str, library: str, killed: bool
) -> None:
    """Wherever it is rendered; the request is routed by its bytes then, and the next one is
    rendered, after a pause if a process had to be killed."""
    source = "{% if messages[0].content == 'go' %}" + hostile + "{% endif %}fine"
    if library.startswith("jinja2"):
        source += "{{ '' | forceescape }}"  # a filter that minijinja lacks
    chosen = template(source)
    assert f"rendered by {library} as" in chosen.describe()
    assert chosen.render([USER], None, {}) == "fine"
    with pytest.raises(NotEncodable, match="takes too long"):
        chosen.render([{"role": "user", "content": "go"}], None, {})
    if killed:
        with pytest.raises(NotEncodable, match="a moment ago"):
            chosen.render([USER], None, {})
    else:
        assert chosen.render([USER], None, {}) == "fine"


def test_a_template_that_keeps_what_it_builds_is_rendered_elsewhere() -> None:
    """minijinja's limits do not count the walking of containers; its text is the same there."""
    source = NESTED.replace("[ns.a, ns.a]", "[m.content]") + "{% endfor %}{{ ns.a[0] }}"
    chosen = template(source)
    assert not chosen.fast
    assert "do not bound it: it keeps a container" in chosen.describe()
    assert chosen.render([USER], None, {}) == "hi"


def test_a_request_cannot_set_the_templates_own_namespaces() -> None:
    """The rules take what a namespace keeps for text where the template only puts text into it."""
    source = "{% set ns = namespace(t='a') %}{% set ns.t = ns.t ~ 'b' %}{{ ns.t }}"
    assert template(source).fast
    assert render(source, USER) == "ab"
    with pytest.raises(NotEncodable, match="the template's own"):
        render(source, USER, extra={"ns": [1]})


def test_data_that_a_template_is_not_made_for_is_refused() -> None:
    """Python's own methods raise what they like: it is no error of ours."""
    for source in ("{{ messages[0].content.q.split() }}", "{{ messages.split() }}", "{{ 1 // 0 }}"):
        with pytest.raises(NotEncodable):
            render("{% if messages | length > 9 %}" + source + "{% endif %}", *[USER] * 10)


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("{% generation %}{{ messages[0].content }}{% endgeneration %}", "cannot read it"),
        ("{{ messages[0].content | forceescape }}", "differs on"),
    ],
)
def test_jinja2_renders_where_minijinja_cannot_follow(source: str, reason: str) -> None:
    """A tag or a filter that minijinja lacks makes the reference do the work."""
    chosen = template(source)
    assert not chosen.fast
    assert reason in chosen.describe()
    assert chosen.render([USER], None, {}) == "hi"


def test_json_is_written_without_html_escapes() -> None:
    """Tools read the same to the model in both libraries: no escapes for <, >, & and non-ASCII."""
    for suffix in ("", "{{ '' | forceescape }}"):  # the filter forces jinja2
        text = render("{{ tools | tojson }}" + suffix, USER, tools=[WEATHER_TOOL])
        assert "Weather <now> & 'later', größer" in text
        assert '"days": {"type": "integer", "default": 3}' in text
    assert render("{{ tools | tojson(indent=2) }}", USER, tools=[WEATHER_TOOL]) == json.dumps(
        [WEATHER_TOOL], ensure_ascii=False, indent=2
    )


def test_tool_calls_and_results_are_rendered() -> None:
    """Arguments, a JSON string on the wire, are an object to the template."""
    text = render(TOOLS_CHATML, USER, CALLING, RESULT, tools=[WEATHER_TOOL])
    assert '{"name": "get_weather", "arguments": {"place": "Zürich", "days": [1, null]}}' in text
    assert text.endswith(
        "<|im_start|>user\n<tool_response>\n17 °C\n</tool_response><|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def test_a_template_that_concatenates_arguments_gets_them_as_text() -> None:
    """Some templates add them to a string; llama.cpp then leaves the client's JSON as it is."""
    source = (
        "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}"
        "{{ '(' + c.function.arguments + ')' }}{% endfor %}{% endfor %}"
    )
    assert render(source, USER, CALLING, USER) == 'hi({"place":"Zürich","days":[1,null]})hi'


def test_text_parts_are_flattened_for_templates_that_want_strings() -> None:
    """With line breaks between; the engines differ on empty parts."""
    message = {"role": "user", "content": PARTS}
    source = "{% for m in messages %}{{ m.content + '.' }}{% endfor %}"
    assert render(source, message, dialect=Dialect.LLAMA_CPP) == "a\n\nb."
    assert render(source, message, dialect=Dialect.VLLM) == "a\nb."


def test_text_parts_stay_for_templates_that_read_them() -> None:
    """vLLM gives such a template lists only, llama.cpp what the client sent."""
    message = {"role": "user", "content": PARTS}
    assert render(READS_BOTH, USER, message) == "[S hi][P a][P ][P b]"
    assert render(READS_BOTH, USER, message, dialect=Dialect.VLLM) == "[P hi][P a][P ][P b]"
    for dialect in WITH_TOOLS:
        assert render(READS_PARTS, USER, dialect=dialect) == "[P hi]"
    tool = {**RESULT, "content": PARTS}
    assert render("{{ messages[0].content }}", tool, dialect=Dialect.VLLM) == "a\nb"


@pytest.mark.parametrize("dialect", list(Dialect))
@pytest.mark.parametrize(
    "message",
    [
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]},
        {"role": "user", "content": [*PARTS, {"type": "input_audio", "input_audio": {}}]},
        {"role": "user", "content": [5]},
        {"role": "user", "content": [{"type": "text", "text": 5}]},
        {"role": "user", "content": {"type": "text", "text": "a"}},
        {"role": "user", "content": 5},
        {"role": 5, "content": "a"},
        {"content": "a"},
        {"role": "assistant", "content": "", "tool_calls": [{"type": "function"}]},
        {"role": "assistant", "content": "", "tool_calls": {"function": {"name": "f"}}},
    ],
)
def test_what_is_not_text_is_not_claimed(dialect: Dialect, message: dict[str, Any]) -> None:
    """Images, audio and malformed messages have no ids here, and the error quotes no content."""
    with pytest.raises(NotEncodable):
        render(CHATML, message, USER, dialect=dialect)


@pytest.mark.parametrize("dialect", list(Dialect))
def test_null_content_is_an_empty_text(dialect: Dialect) -> None:
    """An assistant message that only calls tools has none."""
    assert "user\n<|im_end|>" in render(CHATML, {**USER, "content": None}, USER, dialect=dialect)


def test_numbers_are_those_that_llama_cpp_prints() -> None:
    """It prints floats with six digits; where we cannot print the same, nothing is claimed."""

    def tool(number: float) -> dict[str, Any]:
        return {"type": "function", "function": {"name": "f", "parameters": {"n": [number]}}}

    source = "{{ tools[0].function.parameters | tojson }}"
    for number, printed in [(1.0, "1"), (0.1, "0.1"), (3.141592653, "3.14159"), (2**53, 2**53)]:
        assert render(source, USER, tools=[tool(number)]) == f'{{"n": [{printed}]}}'
        as_vllm = render(source, USER, tools=[tool(number)], dialect=Dialect.VLLM)
        assert as_vllm == f'{{"n": [{number}]}}'
    for number in (123456789.5, -0.0, 2**63, -(2**63) - 1):
        with pytest.raises(NotEncodable):
            render(source, USER, tools=[tool(number)])


def test_tools_are_rewritten_as_each_engine_parses_them() -> None:
    """llama.cpp keeps three members and fills in defaults, vLLM keeps unknown ones."""
    tool = {"function": {"strict": True, "name": "f"}, "type": "function"}
    source = "{{ tools | tojson }}"
    assert render(source, USER, tools=[tool]) == (
        '[{"type": "function", "function": {"name": "f", "description": "", "parameters": {}}}]'
    )
    assert render(source, USER, tools=[tool], dialect=Dialect.VLLM) == (
        '[{"type": "function", "function": '
        '{"name": "f", "description": null, "parameters": null, "strict": true}}]'
    )
    for bad in ({"type": "web_search"}, {"type": "function"}, "f"):
        for dialect in Dialect:
            with pytest.raises(NotEncodable):
                render(source, USER, tools=[bad], dialect=dialect)


def test_an_assistant_message_at_the_end_is_continued_by_llama_cpp() -> None:
    """Its text follows the generation prompt, unclosed; vLLM renders it like any other."""
    prefill = {"role": "assistant", "content": " so far "}
    assert render(CHATML, USER, prefill).endswith("<|im_start|>assistant\n so far ")
    assert render(CHATML, USER, prefill, dialect=Dialect.VLLM).endswith(
        "<|im_start|>assistant\n so far <|im_end|>\n<|im_start|>assistant\n"
    )
    parts = {"role": "assistant", "content": PARTS[:1] * 2}
    assert render(CHATML, USER, parts).endswith("<|im_start|>assistant\na\n\na")
    empty = {"role": "assistant", "content": ""}
    assert render(CHATML, USER, empty).endswith("hi<|im_end|>\n")


@pytest.mark.parametrize(
    "messages",
    [
        [USER, {"role": "assistant", "content": "a"}, {"role": "assistant", "content": "b"}],
        [USER, CALLING],
        [USER, {"role": "assistant"}],
    ],
)
def test_what_llama_cpp_cannot_continue_is_not_claimed(messages: list[dict[str, Any]]) -> None:
    """It answers 400 to two assistant messages or a tool call at the end."""
    with pytest.raises(NotEncodable):
        render(CHATML, *messages)


def test_continue_final_message_needs_something_to_continue() -> None:
    """Where the engine's own rule is not known exactly, nothing is claimed."""
    with pytest.raises(NotEncodable):
        render(CHATML, USER, add_generation_prompt=False, continue_final_message=True)
    with pytest.raises(NotEncodable):
        render(CHATML, USER, continue_final_message=True)


def test_thinking_is_on_by_default_in_llama_cpp_for_templates_that_show_it() -> None:
    """It passes enable_thinking always, true if the template puts reasoning between tags."""
    thinks = SHOWS_THINKING.replace("%s", "<think>{{ m.reasoning_content }}</think>{{ m.content }}")
    does_not = SHOWS_THINKING.replace("%s", "{{ m.content }}")
    assert render(thinks, USER).startswith("True")
    assert render(does_not, USER).startswith("False")
    assert render(thinks, USER, extra={"enable_thinking": False}).startswith("False")
    assert render(thinks, USER, dialect=Dialect.VLLM).startswith("False")
    with pytest.raises(NotEncodable):
        render(thinks, USER, extra={"enable_thinking": "no"})
    with pytest.raises(NotEncodable):  # how the tags are then closed is llama.cpp's own affair
        render(thinks, USER, {"role": "assistant", "content": "so far"})


def test_reasoning_reaches_the_template_under_the_name_it_reads() -> None:
    """llama.cpp passes reasoning_content on; vLLM gives either name's value both names."""
    source = "{% for m in messages %}<think>{{ m.reasoning_content }}</think>{% endfor %}"
    answer = {"role": "assistant", "content": "4"}
    older, newer = {**answer, "reasoning_content": "hm"}, {**answer, "reasoning": "hm"}
    assert "<think>hm</think>" in render(source, USER, older, USER)
    for message in (older, newer, {**newer, "reasoning_content": "other"}):
        assert "<think>hm</think>" in render(source, USER, message, USER, dialect=Dialect.VLLM)
    asking = {**USER, "reasoning": "hm"}
    assert "hm" not in render(source, asking, dialect=Dialect.VLLM)


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [('{"a": 1}', '{"a": 1}'), ("", "{}"), ("not json", "{}"), ("[1]", "{}"), ("5", "{}")],
)
def test_arguments_that_are_no_json_object_are_empty_to_vllm(arguments: str, shown: str) -> None:
    """llama.cpp answers 500 to what is no JSON, vLLM goes on with an empty object."""
    source = "{% for c in messages[-1].tool_calls %}{{ c.function.arguments | tojson }}{% endfor %}"
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": arguments}}
    message = {"role": "assistant", "content": "", "tool_calls": [call]}
    assert render(source, USER, message, dialect=Dialect.VLLM) == shown
    if arguments in ("", "not json"):
        readable = "{% for m in messages %}{% for c in m.tool_calls or [] %}" + (
            "{{ c.function.arguments | tojson }}{% endfor %}{% endfor %}"
        )
        with pytest.raises(NotEncodable, match="not JSON"):
            render(readable, USER, message, USER)


def test_template_arguments_reach_the_template_but_not_its_own_variables() -> None:
    """chat_template_kwargs sets what it likes, except messages, tools and the like."""
    assert render("{{ tone }}", USER, extra={"tone": {"a": 1}}) == "{'a': 1}"
    for dialect in Dialect:
        with pytest.raises(NotEncodable, match="chat_template_kwargs sets messages"):
            render("x", USER, extra={"messages": []}, dialect=dialect)


def test_a_system_message_is_merged_where_the_template_has_no_such_role() -> None:
    """llama.cpp puts its text in front of the next message; vLLM answers 400."""
    source = (
        "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no') }}{% endif %}"
        "[{{ m.role }} {{ m.content }}]{% endfor %}"
    )
    system = {"role": "system", "content": "Be kind."}
    assert render(source, system, USER) == "[user Be kind.\nhi]"
    with pytest.raises(NotEncodable, match="refuses"):
        render(source, system, USER, dialect=Dialect.VLLM)
    with pytest.raises(NotEncodable, match="refuses"):
        render(source, USER, system, USER)


def test_work_on_hostile_data_is_bounded() -> None:
    """A template whose work grows with the square of the input runs out of fuel, not of time."""
    source = (
        "{% for a in messages %}{% for b in messages %}{{ b.role[:0] }}{% endfor %}{% endfor %}"
    )
    chosen = template(source)
    assert chosen.fast
    assert chosen.render([USER] * 10, None, {}) == ""
    with pytest.raises(NotEncodable):
        chosen.render([USER] * 5000, None, {})


@pytest.mark.parametrize("suffix", ["", "{{ '' | forceescape }}"])
@pytest.mark.parametrize("escape", ["messages.__class__.__mro__", "messages.append(1)"])
def test_templates_cannot_reach_into_python(escape: str, suffix: str) -> None:
    """Both libraries are sandboxes: what jinja2's refuses is not encodable, and changes nothing."""
    messages = [USER]
    with pytest.raises(NotEncodable):
        template("{{ " + escape + " }}" + suffix).render(messages, None, {})
    assert messages == [{"role": "user", "content": "hi"}]


def test_the_clients_messages_are_not_changed() -> None:
    """The same objects are forwarded or compared later."""
    before = json.dumps([USER, CALLING, RESULT, WEATHER_TOOL])
    messages = [USER, CALLING, RESULT]
    for dialect in WITH_TOOLS:
        render(TOOLS_CHATML, *messages, tools=[WEATHER_TOOL], dialect=dialect)
    assert json.dumps([*messages, WEATHER_TOOL]) == before


# What follows is vLLM's alone; the renderings are those it gave (0.32.0).
DEVELOPER = {"role": "developer", "content": "Be brief."}
SYSTEM = {"role": "system", "content": "Be terse."}
SHOWS_ROLES = "{% for m in messages %}[{{ m.role }} {{ m.content }}]{% endfor %}"


def as_vllm(source: str, *messages: Any, **more: Any) -> str:
    return render(source, *messages, dialect=Dialect.VLLM, **more)


@pytest.mark.parametrize(
    ("messages", "shown"),
    [
        ([DEVELOPER, USER], "[system Be brief.][user hi]"),
        ([SYSTEM, DEVELOPER, USER], "[system Be terse.\n\nBe brief.][user hi]"),
        ([USER, DEVELOPER, USER, SYSTEM], "[system Be brief.\n\nBe terse.][user hi][user hi]"),
        ([{**DEVELOPER, "content": ""}, USER, DEVELOPER], "[system Be brief.][user hi]"),
        ([{**DEVELOPER, "content": PARTS}, USER], "[system a\nb][user hi]"),
        ([USER, SYSTEM, USER, SYSTEM], "[user hi][system Be terse.][user hi][system Be terse.]"),
    ],
)
def test_developers_become_one_system_message_in_vllm(
    messages: list[dict[str, Any]], shown: str
) -> None:
    """Unless the template names the role; system messages without a developer stay in place."""
    assert as_vllm(SHOWS_ROLES, *messages) == shown
    named = SHOWS_ROLES + "{# 'developer' #}"
    assert as_vllm(named, SYSTEM, DEVELOPER) == "[system Be terse.][developer Be brief.]"
    with pytest.raises(NotEncodable):
        as_vllm(named, {**DEVELOPER, "tools": [WEATHER_TOOL]}, USER)


def test_parts_keep_further_members_in_vllm() -> None:
    """Where the template loops over them; every kind of text counts, and so does a bare string."""
    source = READS_PARTS.replace("part.text", "part.text + (part.note or '')")
    parts = [
        {"type": "text", "text": "a", "note": "N", "cache_control": {"type": "ephemeral"}},
        "b",
        {"type": "input_text", "text": "c"},
        {"type": "refusal", "refusal": "d"},
        {"type": "thinking", "thinking": "e"},
    ]
    message = {"role": "user", "content": parts}
    assert as_vllm(source, message) == "[P aN][P b][P c][P d][P e]"
    assert as_vllm("{{ messages[0].content }}", message) == "a\nb\nc\nd\ne"


def test_results_of_tools_are_texts_in_vllm() -> None:
    """Also where other contents are lists; only there empty parts count."""
    result = {**RESULT, "content": PARTS}
    assert as_vllm(READS_BOTH, USER, result) == "[P hi][S a\n\nb]"
    assert as_vllm("{{ messages[0].content }}", result) == "a\nb"


def test_contents_read_by_index_are_texts_in_vllm() -> None:
    """It looks for a loop over them in the source; llama.cpp looks at what is rendered."""
    source = (
        "{% for m in messages %}{{ m.content if m.content is string else m.content[0].text }}"
        "{% endfor %}"
    )
    message = {"role": "user", "content": PARTS}
    assert as_vllm(source, message) == "a\nb"
    assert render(source, message) == "a"


def test_calls_and_tools_have_vllms_members_in_vllms_order() -> None:
    """Templates show them as JSON, so the order is part of the prompt."""
    call = {"type": "function", "id": "1", "index": 0}
    function = {"name": "f", "arguments": "{}", "x": 1}
    calling = {"role": "assistant", "content": "", "tool_calls": [{**call, "function": function}]}
    assert as_vllm("{{ messages[1].tool_calls | tojson }}", USER, calling) == (
        '[{"id": "1", "function": {"arguments": {}, "name": "f", "x": 1}, "type": "function",'
        ' "index": 0}]'
    )
    tool = {"type": "function", "y": 2, "function": {"name": "f", "strict": None, "x": 1}}
    assert as_vllm("{{ tools | tojson }}", USER, tools=[tool]) == (
        '[{"type": "function", "function": {"name": "f", "description": null, "parameters": null}}]'
    )
    for deferred in ({**tool, "defer_loading": True}, {**tool, "function": {"name": 5}}):
        with pytest.raises(NotEncodable):
            as_vllm("{{ tools | tojson }}", USER, tools=[deferred])
    without = {**calling, "tool_calls": [{**call, "function": {"name": "f", "arguments": None}}]}
    with pytest.raises(NotEncodable):
        as_vllm(CHATML, USER, without)


@pytest.mark.parametrize(
    ("source", "content", "end"),
    [
        (CHATML, " so far \n", "<|im_start|>assistant\n so far \n"),
        (CHATML, "", "<|im_start|>assistant\n"),
        (CHATML, None, "<|im_start|>assistant\n"),
        (CHATML, PARTS, "<|im_start|>assistant\na\nb"),
        (CHATML.replace("message.content", "message.content | trim"), " so \n", "assistant\nso"),
        (READS_BOTH, PARTS, "[P a][P ][P b"),
    ],
)
def test_vllm_continues_the_final_message(source: str, content: Any, end: str) -> None:
    """The prompt ends where its text does, stripped only if the template strips."""
    last = {"role": "assistant", "content": content}
    flags = {"add_generation_prompt": False, "continue_final_message": True}
    assert as_vllm(source, USER, last, **flags).endswith(end)
    assert as_vllm(CHATML, USER, **flags).endswith("<|im_start|>user\nhi")


def test_what_vllm_cannot_continue_is_not_claimed() -> None:
    """It answers 400 to both flags at once, and to a message that the template does not show."""
    with pytest.raises(NotEncodable):
        as_vllm(CHATML, USER, continue_final_message=True)
    flags = {"add_generation_prompt": False, "continue_final_message": True}
    for source, content in (
        ("{{ messages[0].role }}", "hi"),
        ("{{ messages[0].content[:2] }}", "hi there"),
        (READS_BOTH, []),
    ):
        with pytest.raises(NotEncodable):
            as_vllm(source, {"role": "user", "content": content}, **flags)


def test_reasoning_effort_and_documents_reach_the_template_in_vllm() -> None:
    """The effort turns thinking on or off, unless the client's template arguments say so."""
    source = "{{ reasoning_effort }} {{ enable_thinking }} {{ documents }}"
    assert as_vllm(source, USER) == "  None"
    assert as_vllm(source, USER, reasoning_effort="low") == "low True None"
    assert as_vllm(source, USER, reasoning_effort="none") == "none False None"
    extra = {"enable_thinking": False, "reasoning_effort": "high"}
    assert as_vllm(source, USER, extra=extra, reasoning_effort="low") == "low False None"
    assert as_vllm(source, USER, extra=extra) == "high False None"
    assert as_vllm(source, USER, documents=[{"text": "x"}]).endswith("[{'text': 'x'}]")


def test_template_arguments_that_vllm_drops() -> None:
    """null and "auto" count as unset; arguments of the rendering itself are not claimed."""
    source = "{{ tone is defined }}"
    assert as_vllm(source, USER, extra={"tone": 0}) == "True"
    assert as_vllm(source, USER, extra={"tone": None}) == "False"
    assert as_vllm(source, USER, extra={"tone": "auto"}) == "False"
    with pytest.raises(NotEncodable):
        as_vllm(source, USER, extra={"tokenize": True})


def test_a_billing_line_is_no_part_of_vllms_system_message() -> None:
    """It differs in each request of a coding agent, and vLLM drops it for the cache's sake."""
    line = "x-anthropic-billing-header: a=b; cch=1;"
    for content in (f"{line}\nBe kind.", [{"type": "text", "text": line}, "Be kind."]):
        system = {"role": "system", "content": content}
        assert as_vllm(SHOWS_ROLES, system, USER) == "[system Be kind.][user hi]"
    assert line in as_vllm(SHOWS_ROLES, {"role": "user", "content": line})
