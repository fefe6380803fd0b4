"""How SGLang's server prepares a chat for its template, as its source says (0.5.12 to 0.5.23).

Tools, calls and their results are not told: how they are written has changed from version to
version, and which of the tools a template sees depends on `tool_choice`.
"""

from typing import Any

from jinja2 import nodes

from prefold.proxy.errors import NotEncodable
from prefold.proxy.tokens.chat_request import Chat, Message, Prepared, TemplateTraits, texts_of

# Of a user's message it keeps the content alone.
_ROLES = {"system", "developer", "assistant", "user"}
_KEPT = ("name", "reasoning_content", "tool_calls")
# The others are what OpenAI's client gives back of an answer: the server drops them.
_KNOWN = {"role", "content", *_KEPT, "refusal", "annotations", "audio", "function_call"}
_OF_MEDIA = ("image", "audio", "video", "vision")
_MESSAGES = ("message", "msg", "m")


def prepare_for_sglang(traits: TemplateTraits, chat: Chat) -> Prepared:
    """It knows no `add_generation_prompt` and no `documents`: what a client sets is ignored."""
    if chat.tools:
        raise NotEncodable("SGLang's tools are not told exactly")
    if chat.reasoning_effort is not None or "reasoning_effort" in chat.extra:
        raise NotEncodable("SGLang's reasoning_effort depends on the model's parser")
    if chat.continue_final_message:
        raise NotEncodable("SGLang tokenizes a message to be continued apart from the rest")
    messages = [_message(traits, message) for message in chat.messages]
    if messages and messages[-1]["role"] == "assistant":
        # It becomes a user's, unless its content is a list.
        raise NotEncodable("SGLang rewrites a last message of the assistant")
    variables = {
        **chat.extra,
        "messages": messages,
        "tools": None,
        "documents": None,
        "add_generation_prompt": True,
    }
    return Prepared(variables=variables)


def takes_parts(source: str, tree: nodes.Template) -> bool:
    """Whether a template gets contents that are lists as lists of text parts: if it speaks of media
    at all, or goes over the content of a variable of a usual name. Others get one text."""
    if any(word in source for word in _OF_MEDIA):
        return True
    return any(_is_content(loop.iter) for loop in tree.find_all(nodes.For))


def _message(traits: TemplateTraits, message: Message) -> dict[str, Any]:
    role = message["role"]
    if role not in _ROLES or message.get("tool_calls"):
        raise NotEncodable("SGLang's calls, results and roles of its own are not told exactly")
    content = _content(traits, message.get("content"))
    if role == "user":
        return {"role": role, "content": content}
    if unknown := message.keys() - _KNOWN:
        raise NotEncodable(f"a message with {min(unknown)}")
    further = {name: message[name] for name in _KEPT if message.get(name) is not None}
    # In its order: a template may show a message as a whole.
    if isinstance(content, list):
        return {"role": role, **further, "content": content}
    return {"role": role, "content": content, **further}


def _content(traits: TemplateTraits, content: Any) -> str | list[dict[str, str]]:
    """A text stays one, whatever the template."""
    texts = texts_of(content)
    if not isinstance(content, list):
        return "".join(texts)
    if traits.sglang_parts:
        return [{"type": "text", "text": text} for text in texts]
    return " ".join(texts)


def _is_content(node: nodes.Node) -> bool:
    """`message.content` or `message['content']`, under filters, tests and slices."""
    while isinstance(node, nodes.Filter | nodes.Test) or (
        isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Slice)
    ):
        if node.node is None:
            return False
        node = node.node
    if isinstance(node, nodes.Getitem):
        named = isinstance(node.arg, nodes.Const) and node.arg.value == "content"
    else:
        named = isinstance(node, nodes.Getattr) and node.attr == "content"
    owner = node.node if isinstance(node, nodes.Getitem | nodes.Getattr) else None
    return named and isinstance(owner, nodes.Name) and owner.name in _MESSAGES
