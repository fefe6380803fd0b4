"""How vLLM's OpenAI server prepares a chat for its template (vllm/entrypoints/chat_utils.py)."""

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
    functions_of,
    texts_of,
)


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
    if role == "assistant":
        if message.get("tool_calls"):
            prepared["tool_calls"] = [_call(call) for call in as_list(message["tool_calls"])]
        prepared |= _reasoning(traits, message)
    elif role == "tool" and "tool_call_id" in message:
        prepared["tool_call_id"] = message["tool_call_id"]
    if isinstance(message.get("name"), str):
        prepared["name"] = message["name"]
    return prepared


def _reasoning(traits: TemplateTraits, message: Message) -> dict[str, Any]:
    """`reasoning` under both its names; what the older name alone does depends on the version."""
    reasoning = message.get("reasoning")
    if reasoning is not None:
        return {"reasoning": reasoning, "reasoning_content": reasoning}
    if traits.reasoning and message.get("reasoning_content"):
        raise NotEncodable("reasoning_content, which vLLM's versions treat differently")
    return {}


def _call(call: Message) -> dict[str, Any]:
    function = dict(function_of(call))
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        try:
            function["arguments"] = json.loads(arguments)
        except ValueError:
            function["arguments"] = {}
    elif not isinstance(arguments, dict | list):
        function["arguments"] = {}
    return {**call, "function": function}
