"""Conversations on which template engines are known to disagree; written here, no one's prompts."""

from typing import Any

from prefold.proxy.tokens.chat_request import Chat

_TEXT = 'Ünïcode "quotes" <b>&amp;</b> 한국어 👍🏽\n\ttab {{ braces }} \\ slash  '
_SYSTEM = {"role": "system", "content": "You are terse.\n"}
_USER = {"role": "user", "content": "What is 2 + 2?"}
_ANSWER = {"role": "assistant", "content": " 4 "}
_PARTS = {
    "role": "user",
    "content": [{"type": "text", "text": "first"}, {"type": "text", "text": _TEXT}],
}
_THOUGHT = {"role": "assistant", "content": "<think>\nhm\n</think>\n\n4", "reasoning_content": "hm"}
_TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "Weather of a <place> & 'date'; größer",
            "parameters": {
                "type": "object",
                "properties": {
                    "place": {"type": "string", "enum": ["Zürich", "서울"]},
                    "days": {"type": "integer", "default": 3, "minimum": -1},
                    "scale": {"type": ["number", "null"], "default": 0.5},
                },
                "required": ["place"],
                "additionalProperties": False,
            },
        },
    },
    {"type": "function", "function": {"name": "now", "description": "", "parameters": {}}},
]


def _calling(content: str | None, *names: str) -> dict[str, Any]:
    calls = [
        {
            "id": f"call0000{position}",
            "type": "function",
            "function": {"name": name, "arguments": '{"place": "Zürich", "days": [1, null, true]}'},
        }
        for position, name in enumerate(names)
    ]
    return {"role": "assistant", "content": content, "tool_calls": calls}


def _result(position: int, content: str) -> dict[str, Any]:
    call_id = f"call0000{position}"
    return {"role": "tool", "tool_call_id": call_id, "name": "get_weather", "content": content}


def probe_chats() -> list[Chat]:
    """With and without system, tools, calls, results, parts, reasoning, many turns, a prefill."""
    turns = [_USER, _ANSWER] * 3
    one_call = [_USER, _calling(None, "get_weather"), _result(0, "17 °C")]
    two_calls = [
        _USER,
        _calling("Let me see.", "get_weather", "now"),
        _result(0, '{"t": 17}'),
        _result(1, _TEXT),
        _ANSWER,
        _USER,
    ]
    conversations: list[list[dict[str, Any]]] = [
        [_USER],
        [_SYSTEM, _USER],
        [{**_USER, "content": _TEXT}],
        [{**_USER, "content": ""}],
        [_PARTS],
        [_SYSTEM, *turns, _USER],
        [*turns, _PARTS],
        [*turns],
        [_USER, _THOUGHT, _USER],
        [_SYSTEM, *one_call],
        two_calls,
        [_SYSTEM, _USER, _SYSTEM, _USER],
        [_USER, _USER],
        [_ANSWER, _USER],
        [{"role": "developer", "content": "Be brief."}, _USER],
        [],
    ]
    chats = [
        Chat(messages=messages, tools=tools, extra={})
        for messages in conversations
        for tools in (None, _TOOLS)
    ]
    thinking = [
        Chat(messages=conversation, extra={"enable_thinking": enabled, "documents_note": None})
        for conversation in ([_USER], [_SYSTEM, _USER, _THOUGHT, _USER])
        for enabled in (True, False)
    ]
    open_ended = Chat(messages=[_SYSTEM, _USER], extra={}, add_generation_prompt=False)
    return [*chats, *thinking, open_ended]
