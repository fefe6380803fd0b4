"""How vLLM's OpenAI server prepares a chat for its template, as observed on vLLM 0.32.0."""

import json
from typing import Any

from prefold.proxy.errors import NotEncodable
from prefold.proxy.tokens.chat_request import (
    Chat,
    Message,
    Prepared,
    TemplateTraits,
    as_list,
    function_of,
    tools_of,
)

# What it takes as text: the type of a part, and the member that holds it.
_TEXT_PARTS = {
    "text": "text",
    "input_text": "text",
    "output_text": "text",
    "refusal": "refusal",
    "thinking": "thinking",
}
# Members that it knows of parts of any type; others reach the template with the text.
_PART_MEMBERS = {"type", *_TEXT_PARTS.values(), "name", "data", "file", "closed"} | {
    *("prompt_cache_breakpoint", "image_url", "image_pil", "image_embeds", "input_audio"),
    *("audio_url", "audio_embeds", "video_url", "video_embeds"),
}
# Arguments of the function that renders, so no variables of the template.
_RENDERING = {"conversation", "chat_template", "tokenize", "tokenizer_kwargs", "padding"} | {
    *("truncation", "max_length", "return_tensors", "return_dict", "return_assistant_tokens_mask"),
}
# A line that a coding agent puts into its system message, different in each request.
_BILLING = "x-anthropic-billing-header"
_MARK = "prefold-continues-here "  # the blank tells whether the template strips contents


def prepare_for_vllm(traits: TemplateTraits, chat: Chat) -> Prepared:
    if clash := _RENDERING & chat.extra.keys():
        raise NotEncodable(f"chat_template_kwargs sets {min(clash)}")
    messages = [_message(traits, message) for message in chat.messages]
    if not traits.names_developer:
        messages = _without_developers(messages)
    variables = {
        **_extra(chat),
        "messages": messages,
        "tools": [_tool(tool) for tool in tools_of(chat)] if chat.tools else None,
        "documents": chat.documents,
        "add_generation_prompt": chat.add_generation_prompt,
    }
    if not chat.continue_final_message:
        return Prepared(variables=variables)
    if chat.add_generation_prompt:
        raise NotEncodable("add_generation_prompt and continue_final_message exclude each other")
    variables["messages"], text = _left_open(messages)
    return Prepared(variables=variables, mark=_MARK, before_mark=text)


def _extra(chat: Chat) -> dict[str, Any]:
    """chat_template_kwargs and what the request's `reasoning_effort` adds; null counts as unset."""
    extra = {key: value for key, value in chat.extra.items() if value not in (None, "auto")}
    effort = chat.reasoning_effort
    if effort is not None:
        extra["reasoning_effort"] = effort
        if "enable_thinking" not in chat.extra:
            extra["enable_thinking"] = effort != "none"
    return extra


def _message(traits: TemplateTraits, message: Message) -> dict[str, Any]:
    role, parts = message["role"], _parts(message.get("content"))
    if role == "system":
        parts = [kept for part in parts if (kept := _without_billing(part))]
    prepared: dict[str, Any] = {"role": role}
    if not traits.loops_over_content:
        prepared["content"] = "\n".join(part["text"] for part in parts if part["text"])
    elif role == "tool":
        prepared["content"] = "\n".join(part["text"] for part in parts)
    else:
        prepared["content"] = parts
    if role == "assistant":
        if message.get("tool_calls"):
            prepared["tool_calls"] = [_call(call) for call in as_list(message["tool_calls"])]
        prepared |= _reasoning(message)
    elif role == "tool" and "tool_call_id" in message:
        prepared["tool_call_id"] = message["tool_call_id"]
    prepared |= {key: message[key] for key in ("name", "task") if isinstance(message.get(key), str)}
    if role == "developer":
        if traits.names_developer and message.get("tools"):
            raise NotEncodable("tools in a developer message")
        prepared["tools"] = None
    return prepared


def _parts(content: Any) -> list[dict[str, Any]]:
    """Content as a list of text parts, each with the client's further members."""
    if content is None:
        return []
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [_part(part) for part in as_list(content)]


def _part(part: Any) -> dict[str, Any]:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    kind = part.get("type") if isinstance(part, dict) else None
    text = part.get(_TEXT_PARTS[kind]) if isinstance(kind, str) and kind in _TEXT_PARTS else None
    if not isinstance(text, str) or "uuid" in part:
        raise NotEncodable("a content part that is not text")
    further = {key: value for key, value in part.items() if key not in _PART_MEMBERS}
    return {"type": "text", "text": text, **further}


def _without_billing(part: dict[str, Any]) -> dict[str, Any] | None:
    if not part["text"].startswith(_BILLING):
        return part
    rest = part["text"].partition("\n")[2]
    return {**part, "text": rest} if rest else None


def _reasoning(message: Message) -> dict[str, Any]:
    """Under both of its names, whichever the client used."""
    reasoning = message.get("reasoning")
    if reasoning is None:
        reasoning = message.get("reasoning_content")
    return {} if reasoning is None else {"reasoning": reasoning, "reasoning_content": reasoning}


def _without_developers(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Where the template does not name that role, such messages are system messages, and if not
    one alone leads the chat, all system messages become one text in front."""
    if all(message["role"] != "developer" for message in messages):
        return messages
    renamed = [
        {**_without(message, "tools"), "role": "system"}
        if message["role"] == "developer"
        else message
        for message in messages
    ]
    system = [message for message in renamed if message["role"] == "system"]
    if system == renamed[:1]:
        return renamed
    texts = [_text(message["content"]) for message in system]
    merged = {"role": "system", "content": "\n\n".join(text for text in texts if text)}
    return [merged, *(message for message in renamed if message["role"] != "system")]


def _without(message: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in message.items() if name != key}


def _text(content: str | list[dict[str, Any]]) -> str:
    return content if isinstance(content, str) else "\n".join(part["text"] for part in content)


def _left_open(messages: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], str]:
    """The last message's text with a mark at its end, and that text."""
    last = messages[-1] if messages else {"content": []}
    content = last["content"]
    if isinstance(content, str):
        return [*messages[:-1], {**last, "content": content + _MARK}], content
    if not content:
        raise NotEncodable("continue_final_message without a text to continue")
    text: str = content[-1]["text"]
    marked = [*content[:-1], {**content[-1], "text": text + _MARK}]
    return [*messages[:-1], {**last, "content": marked}], text


def _tool(tool: Message) -> dict[str, Any]:
    """The members it knows, in its order: tools are mostly shown as JSON."""
    function = function_of(tool)
    if "defer_loading" in tool or "defer_loading" in function:
        raise NotEncodable("a tool whose loading is deferred")
    known = {key: function.get(key) for key in ("name", "description", "parameters")}
    if function.get("strict") is not None:
        known["strict"] = function["strict"]
    return {"type": "function", "function": known}


def _call(call: Message) -> dict[str, Any]:
    """Again in its order; arguments that are no JSON object become an empty one."""
    function = function_of(call)
    if not isinstance(function.get("arguments"), str):
        raise NotEncodable("arguments of a tool call are not a string")
    try:
        arguments = json.loads(function["arguments"])
    except ValueError:
        arguments = {}
    if not isinstance(arguments, dict):
        arguments = {}
    ordered = {**function, "arguments": arguments}
    ordered = {key: ordered.pop(key) for key in ("arguments", "name")} | ordered
    rest = {key: value for key, value in call.items() if key not in ("id", "function", "type")}
    return {"id": call.get("id"), "function": ordered, "type": "function", **rest}
