"""How llama.cpp's server prepares a chat for its template, as observed on a running server."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

from prefold.proxy.errors import NotEncodable
from prefold.proxy.tokens.chat_request import (
    Chat,
    Message,
    Prepared,
    TemplateTraits,
    as_list,
    function_of,
    texts_of,
    tools_of,
)

_KEPT_AS_THEY_ARE = ("name", "tool_call_id", "reasoning_content")


def prepare_for_llama_cpp(traits: TemplateTraits, chat: Chat) -> Prepared:
    if chat.continue_final_message and chat.add_generation_prompt:
        raise NotEncodable("add_generation_prompt and continue_final_message exclude each other")
    messages, prefill = list(chat.messages), None
    if messages and messages[-1]["role"] == "assistant":
        prefill = _prefill(traits, messages)
        messages.pop()
    elif chat.continue_final_message:
        raise NotEncodable("continue_final_message without an assistant message at the end")

    prepared = [_message(traits, message) for message in messages]
    if not traits.system_role:
        prepared = _merge_system(prepared)
    variables = {
        "enable_thinking": traits.reasoning,
        **chat.extra,
        "messages": prepared,
        # An assistant message without text at the end suppresses the generation prompt.
        "add_generation_prompt": chat.add_generation_prompt if prefill is None else prefill != "",
    }
    if not isinstance(variables["enable_thinking"], bool):
        raise NotEncodable("enable_thinking is not a boolean")
    if chat.tools:
        variables["tools"] = [
            {"type": "function", "function": _function(function_of(tool))}
            for tool in tools_of(chat)
        ]
    return Prepared(variables=variables, prefill=prefill or "")


def _prefill(traits: TemplateTraits, messages: Sequence[Message]) -> str:
    """The text of a trailing assistant message: appended to the prompt, to be continued."""
    last = messages[-1]
    if traits.reasoning or last.get("tool_calls") or "content" not in last:
        raise NotEncodable("the assistant message at the end cannot be continued exactly")
    if len(messages) > 1 and messages[-2]["role"] == "assistant":
        raise NotEncodable("two assistant messages at the end")
    return _join(texts_of(last["content"]), "\n\n")


def _message(traits: TemplateTraits, message: Message) -> dict[str, Any]:
    role, content, calls = message["role"], message.get("content"), message.get("tool_calls")
    if len(message) == 2 and isinstance(content, str) and traits.string_content:
        # Most messages by far, so they are worth a short cut: a role and a text.
        return {"role": "system" if role == "developer" else role, "content": content}
    if "content" not in message and not (role == "assistant" and calls):
        raise NotEncodable("a message has no content")
    prepared: dict[str, Any] = {"role": "system" if role == "developer" else role}
    if traits.typed_content and (isinstance(content, list) or not traits.string_content):
        prepared["content"] = [{"type": "text", "text": text} for text in texts_of(content)]
    else:
        prepared["content"] = _join(texts_of(content), "\n")
    if calls:
        prepared["tool_calls"] = [_call(traits, call) for call in as_list(calls)]
    kept = {key: message[key] for key in _KEPT_AS_THEY_ARE if isinstance(message.get(key), str)}
    return {**prepared, **kept}


def _call(traits: TemplateTraits, call: Message) -> dict[str, Any]:
    function = function_of(call)
    arguments = function.get("arguments", "")
    if traits.object_arguments and isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except ValueError as error:
            raise NotEncodable("arguments of a tool call are not JSON") from error
    elif not traits.object_arguments and not isinstance(arguments, str):
        arguments = json.dumps(arguments, ensure_ascii=False, separators=(",", ":"))
    named = {"name": function["name"], "arguments": _numbers(arguments)}
    prepared = {"type": "function", "function": named}
    return {**prepared, "id": call["id"]} if call.get("id") else prepared


def _function(function: Message) -> dict[str, Any]:
    description = function.get("description", "")
    if not isinstance(description, str):
        raise NotEncodable("the description of a tool is not a string")
    parameters = _numbers(function.get("parameters", {}))
    return {"name": function["name"], "description": description, "parameters": parameters}


def _numbers(value: Any) -> Any:
    """llama.cpp prints floats with six digits (`%g`): give the value that prints the same here."""
    if isinstance(value, dict):
        return {key: _numbers(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_numbers(item) for item in value]
    if isinstance(value, float):
        printed = f"{value:g}"
        same: float = int(printed) if printed.lstrip("-").isdigit() else float(printed)
        if json.dumps(same) != printed:
            raise NotEncodable("a number that llama.cpp prints in a form of its own")
        return same
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise NotEncodable("an integer of more than 64 bits")
    return value


def _merge_system(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Where the template knows no system role, its text goes in front of the next message."""
    if len(messages) < 2 or messages[0]["role"] != "system":
        return messages
    system, following = messages[:2]
    if not isinstance(system["content"], str) or not isinstance(following["content"], str):
        raise NotEncodable("a system message in parts, for a template without a system role")
    merged = {**following, "content": f"{system['content']}\n{following['content']}"}
    return [merged, *messages[2:]]


def _join(texts: Iterable[str], separator: str) -> str:
    """Join, with no separator before the first text that is not empty."""
    joined = ""
    for text in texts:
        joined = f"{joined}{separator}{text}" if joined else text
    return joined
