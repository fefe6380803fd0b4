"""How vLLM's OpenAI server prepares a chat for its template (vllm/entrypoints/chat_utils.py)."""

import json
from typing import Any

from prefold.proxy.chat_request import (
    Chat,
    Message,
    Prepared,
    TemplateTraits,
    as_list,
    function_of,
    functions_of,
    texts_of,
    with_kept_members,
)
from prefold.proxy.encoding_errors import NotEncodable


def prepare_for_vllm(traits: TemplateTraits, chat: Chat) -> Prepared:
    if chat.continue_final_message:
        raise NotEncodable("continue_final_message")
    tools = None
    if chat.tools:
        defaults = {"name": None, "description": None, "parameters": None}
        tools = [
            {"type": "function", "function": {**defaults, **function}}
            for function in functions_of(chat)
        ]
    variables = {
        **chat.extra,
        "messages": [_message(traits, message) for message in chat.messages],
        "tools": tools,
        "documents": None,
        "add_generation_prompt": chat.add_generation_prompt,
    }
    return Prepared(variables=variables)


def _message(traits: TemplateTraits, message: Message) -> dict[str, Any]:
    role, texts = message["role"], texts_of(message.get("content"))
    prepared: dict[str, Any] = {"role": role}
    if traits.typed_content and role != "tool":
        prepared["content"] = [{"type": "text", "text": text} for text in texts]
    else:
        prepared["content"] = "\n".join(text for text in texts if text)
    if role == "assistant" and message.get("tool_calls"):
        prepared["tool_calls"] = [_call(call) for call in as_list(message["tool_calls"])]
    return with_kept_members(prepared, message)


def _call(call: Message) -> dict[str, Any]:
    function = dict(function_of(call))
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except ValueError:
            arguments = {}
    function["arguments"] = {} if arguments is None else arguments
    return {**call, "function": function}
