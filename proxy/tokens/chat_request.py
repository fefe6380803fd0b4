"""A chat request as a template's variables: the terms and rules that all engines share.

A chat template is the model's; what an engine does to messages and tools before the template sees
them is the engine's own (dialect_llama_cpp, dialect_vllm, dialect_sglang). What an engine would
reject, or what cannot be told exactly, raises `NotEncodable`: exact or not claimed.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from jinja2 import nodes

from prefold.proxy.errors import NotEncodable
from prefold.proxy.tokens.content_loops import loops_over_content

Message = Mapping[str, Any]
Render = Callable[[dict[str, Any]], str | None]

_RESERVED = {"messages", "tools", "documents", "add_generation_prompt", "continue_final_message"}
_NEEDLE = "hay-needle-hay"


class Chat(msgspec.Struct, frozen=True, kw_only=True):
    """The members of a chat request that decide the prompt, as the client sent them."""

    messages: Sequence[Message]
    tools: Sequence[Mapping[str, Any]] | None = None
    extra: Mapping[str, Any] = {}
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    documents: Any = None
    reasoning_effort: Any = None


class Prepared(msgspec.Struct, frozen=True, kw_only=True):
    """The template's variables, and what the engine makes of the rendered text: it appends
    `prefill`, or ends the text before `mark`, which stands behind `before_mark`."""

    variables: dict[str, Any]
    prefill: str = ""
    mark: str = ""
    before_mark: str = ""

    def finish(self, text: str) -> str:
        """Raises `NotEncodable` where the template does not show the message to be continued."""
        if not self.mark:
            return text + self.prefill
        mark = self.mark.rstrip()
        if mark not in text or self.before_mark.strip() not in text:
            raise NotEncodable("the template does not show the message to be continued")
        head, _, tail = text.rpartition(mark)
        # Without the blank behind the mark the template strips texts: then so does the engine.
        return head if tail.startswith(self.mark.removeprefix(mark)) else head.rstrip()


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateTraits:
    """What a template can read, found by rendering a needle and looking for it; the last three,
    which are rules of vLLM's and SGLang's own, by reading its source."""

    string_content: bool
    typed_content: bool
    system_role: bool
    object_arguments: bool
    reasoning: bool
    loops_over_content: bool
    names_developer: bool
    sglang_parts: bool

    @classmethod
    def of(
        cls, render: Render, source: str, tree: nodes.Template, *, sglang_parts: bool
    ) -> "TemplateTraits":
        """`render` answers None where the template refuses; `tree` is what `source` parses to."""
        parts = [{"type": "text", "text": _NEEDLE}]
        user = {"role": "user", "content": "hay"}
        function = {"name": "f", "arguments": {"a": _NEEDLE}}
        call = {"type": "function", "function": function, "id": "call00000"}
        calling = {"role": "assistant", "content": "", "tool_calls": [call]}
        thinking = {"role": "assistant", "content": "hay", "reasoning_content": _NEEDLE}

        def before_needle(*messages: Message) -> str | None:
            """What is rendered before the needle; None if it is not shown."""
            text = render({"messages": list(messages), "add_generation_prompt": False}) or ""
            return text.partition(_NEEDLE)[0] if _NEEDLE in text else None

        as_string = before_needle({"role": "user", "content": _NEEDLE})
        as_parts = before_needle({"role": "user", "content": parts})
        system = {"role": "system", "content": parts if as_string is None else _NEEDLE}
        reasoning = before_needle(user, thinking)
        return cls(
            string_content=as_string is not None,
            # A template that only prints the list shows its text too, and the list around it.
            typed_content=as_parts is not None and not as_parts.endswith(("'", '"')),
            system_role=before_needle(system, user) is not None,
            object_arguments=before_needle(user, calling) is not None,
            # As llama.cpp understands it: shown between tags such as <think>.
            reasoning=reasoning is not None and reasoning.rstrip().endswith((">", "]")),
            loops_over_content=loops_over_content(tree),
            names_developer='"developer"' in source or "'developer'" in source,
            sglang_parts=sglang_parts,
        )


def check(chat: Chat) -> None:
    """Raise `NotEncodable` for what no engine's rules are known for."""
    if chat.extra and (clash := _RESERVED & chat.extra.keys()):
        raise NotEncodable(f"chat_template_kwargs sets {min(clash)}")
    for message in chat.messages:
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise NotEncodable("a message has no role")


def texts_of(content: Any) -> list[str]:
    """The texts of a message's content, which is null, a string or a list of text parts."""
    if content is None:
        return []
    if isinstance(content, str):
        return [content]
    texts: list[str] = []
    for part in as_list(content):
        text = part.get("text") if isinstance(part, Mapping) else None
        if not isinstance(text, str) or part.get("type") != "text":
            raise NotEncodable("a content part that is not text")
        texts.append(text)
    return texts


def tools_of(chat: Chat) -> list[Message]:
    tools = as_list(chat.tools)
    if any(not isinstance(tool, Mapping) or tool.get("type") != "function" for tool in tools):
        raise NotEncodable("a tool that is not a function")
    return tools


def function_of(owner: Any) -> Message:
    function = owner.get("function") if isinstance(owner, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise NotEncodable("a tool or tool call without a function name")
    return function


def as_list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise NotEncodable("content, tools or tool_calls is not a list")
    return value
