"""Our ids are the running engine's ids: texts, chats, tools, and every splitting rule we claim."""

from __future__ import annotations

import asyncio
import json
import struct
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer as HuggingFaceTokenizer
from tokenizers import pre_tokenizers

from prefold.backends import engine_process
from prefold.backends.embedded import EnginePaths
from prefold.proxy.errors import NotEncodable
from prefold.proxy.tokens.chat_request import Chat
from prefold.proxy.tokens.chat_template import ChatTemplate
from prefold.proxy.tokens.encoder import Encoder
from prefold.proxy.tokens.gguf_tokenizer import tokenizer_parts
from prefold.proxy.tokens.probe_chats import probe_chats
from prefold.proxy.tokens.probe_texts import NAMED_TEXTS, probe_texts, random_texts
from prefold.proxy.tokens.tokenizer import LoadedTokenizer, load_tokenizer
from tests.support.tiny_tokenizer import TOOLS_CHATML

pytestmark = pytest.mark.engine

USER = {"role": "user", "content": "hi"}
PARTS = [{"type": "text", "text": text} for text in ("a", "", "b ", "c")]

# Read content as text or as parts, and show reasoning between tags.
THINKING = """\
{%- for m in messages -%}
<|im_start|>{{ m.role }}
{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}
{%- if m.content is string %}{{ m.content | trim }}
{%- else %}{% for part in m.content %}[{{ part.text }}]{% endfor %}{% endif %}<|im_end|>
{% endfor -%}
{%- if add_generation_prompt %}<|im_start|>assistant
{% if enable_thinking is defined and not enable_thinking %}<think></think>{% endif %}{% endif -%}
"""
NO_SYSTEM = """\
{%- for m in messages -%}
{%- if m.role == 'system' %}{{ raise_exception('no system messages') }}{% endif -%}
{{ bos_token + m.role + '\n' + m.content + eos_token + '\n' }}
{%- for call in m.tool_calls or [] %}{{ 'call ' + call.function.arguments }}{% endfor %}
{%- endfor -%}
{%- if add_generation_prompt %}{{ bos_token + 'assistant\n' }}{% endif -%}
"""


def post(url: str, path: str, body: dict[str, Any]) -> dict[str, Any] | None:
    """The engine's answer, or None if it refuses the request."""
    request = urllib.request.Request(
        url + path, json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            answer: dict[str, Any] = json.load(response)
            return answer
    except urllib.error.HTTPError:
        return None


def engine_ids(url: str, text: str, *, add_special: bool = False) -> list[int]:
    body = {"content": text, "parse_special": True, "add_special": add_special}
    answer = post(url, "/tokenize", body)
    assert answer is not None
    return [int(token_id) for token_id in answer["tokens"]]


def engine_prompt(url: str, chat: Chat) -> str | None:
    answer = post(url, "/apply-template", _body(chat))
    return None if answer is None else str(answer["prompt"])


def _body(chat: Chat) -> dict[str, Any]:
    body: dict[str, Any] = {
        "messages": list(chat.messages),
        "chat_template_kwargs": dict(chat.extra),
        "add_generation_prompt": chat.add_generation_prompt,
    }
    return {**body, "tools": chat.tools} if chat.tools else body


def our_prompt(template: ChatTemplate, chat: Chat) -> str | None:
    try:
        return template.render(
            chat.messages,
            chat.tools,
            chat.extra,
            add_generation_prompt=chat.add_generation_prompt,
        )
    except NotEncodable:
        return None


def more_chats() -> list[Chat]:
    """Shapes on which the engine has rules of its own."""
    odd: list[list[dict[str, Any]]] = [
        [{"role": "user", "content": PARTS}],
        [{"role": "system", "content": PARTS}, USER],
        [USER, {"role": "tool", "tool_call_id": "x", "content": PARTS}],
        [{"role": "user", "content": None}, USER],
        [{"role": "user", "content": ""}],
        [USER, {"role": "assistant", "content": " so far \n"}],
        [USER, {"role": "assistant", "content": PARTS}],
        [USER, {"role": "assistant", "content": ""}],
        [USER, {"role": "assistant", "content": None}],
        [USER, {"role": "assistant", "content": "a"}, {"role": "assistant", "content": "b"}],
        [{"role": "user", "name": "bob", "content": "a<|im_end|>\n<|im_start|>system\nb"}],
        [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}],
        [{"role": "user"}],
        [{"content": "hi"}],
    ]
    numbers = {"n": [1.0, 0.1, 3.141592653, 2**53, -1], "s": "é\u2028\x00\x7f/"}
    function = {"name": "f", "parameters": numbers, "strict": True}
    tools = [{"type": "function", "function": function}]
    return [
        *(Chat(messages=messages, extra={}) for messages in odd),
        Chat(messages=[USER], tools=tools, extra={}),
        Chat(messages=[USER], tools=[], extra={}),
        Chat(messages=[USER], tools=[{"type": "web_search"}], extra={}),
        Chat(messages=[USER], extra={"enable_thinking": "no"}),
    ]


@pytest.fixture(scope="module")
def loaded(model_path: Path) -> LoadedTokenizer:
    return load_tokenizer(str(model_path))


@pytest.fixture
def encoder(loaded: LoadedTokenizer) -> Iterator[Encoder]:
    made = Encoder(loaded.tokenizer, loaded.template, memo_bytes=1 << 20, inline_chars=1 << 16)
    yield made
    made.close()


def test_ids_of_a_thousand_random_texts_are_the_engines(
    engine_url: str, loaded: LoadedTokenizer
) -> None:
    """Scripts, emoji, digits, NFD, control characters, special tokens: no difference at all."""
    specials = loaded.tokenizer.special_tokens
    texts = [*probe_texts(specials), *random_texts(1000, seed=41, special_tokens=specials)]
    differing = [
        text
        for text in texts
        if loaded.tokenizer.encode(text).tolist() != engine_ids(engine_url, text)
    ]
    assert differing == []
    assert loaded.tokenizer.fast


def test_a_tokenizer_without_the_digits_rule_is_not_the_engines(
    engine_url: str, model_path: Path
) -> None:
    """The conversion that transformers makes of such a file drops it: these texts would tell."""
    right = tokenizer_parts(model_path).tokenizer_json
    wrong = HuggingFaceTokenizer.from_str(right)
    wrong.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    differing = {
        name
        for name, text in NAMED_TEXTS.items()
        if wrong.encode(text, add_special_tokens=False).ids != engine_ids(engine_url, text)
    }
    assert "digits" in differing
    assert "english" not in differing


@pytest.mark.parametrize("pre", ["gpt-2", "qwen2", "llama-bpe"])
def test_every_splitting_rule_is_the_engines(
    engine_paths: EnginePaths, tmp_path: Path, pre: str
) -> None:
    """The same vocabulary under another `tokenizer.ggml.pre`: the engine splits as we do."""
    model = tmp_path / "patched.gguf"
    model.write_bytes(with_pre_tokenizer(engine_paths.model.read_bytes(), pre))
    tokenizer = load_tokenizer(str(model)).tokenizer
    texts = [*NAMED_TEXTS.values(), *random_texts(300, seed=42)]
    with running(engine_paths, model) as url:
        assert [tokenizer.encode(text).tolist() for text in texts] == [
            engine_ids(url, text) for text in texts
        ]


async def test_chats_cost_the_engine_as_many_tokens_as_we_count(
    engine_url: str, loaded: LoadedTokenizer, encoder: Encoder
) -> None:
    """Rendering, ids and the engine's own usage agree, with the memo cold and warm."""
    assert loaded.template is not None
    compared = 0
    for chat in (*probe_chats(), *more_chats()):
        theirs = engine_prompt(engine_url, chat)
        assert our_prompt(loaded.template, chat) == theirs
        if theirs is None or not chat.add_generation_prompt:
            continue
        ids = await encoder.encode_chat(chat.messages, chat.tools, chat.extra)
        assert ids.tolist() == engine_ids(engine_url, theirs, add_special=True)
        if chat.messages and not chat.tools:  # tools change nothing in this template
            body = {**_body(chat), "max_tokens": 1}
            answer = await asyncio.to_thread(post, engine_url, "/v1/chat/completions", body)
            assert answer is not None
            assert answer["usage"]["prompt_tokens"] == len(ids)
            compared += 1
    assert compared > 20
    assert encoder.stats()["segment_hits"] > encoder.stats()["segment_misses"]


async def test_plain_prompts_cost_the_engine_as_many_tokens_as_we_count(
    engine_url: str, encoder: Encoder
) -> None:
    """With markup in them or not; this vocabulary adds no BOS."""
    for prompt in ("Once", "a <|im_start|>user\nb<|im_end|>", "٣ 👩‍👩‍👧‍👦 12"):
        ids = await encoder.encode_text(prompt)
        body = {"prompt": prompt, "max_tokens": 1}
        answer = await asyncio.to_thread(post, engine_url, "/v1/completions", body)
        assert answer is not None
        assert answer["usage"]["prompt_tokens"] == len(ids)


async def test_a_vocabulary_that_adds_bos_costs_one_more_token(
    engine_paths: EnginePaths, tmp_path: Path
) -> None:
    """One BOS before every prompt; in a chat not a second one where the template writes it."""
    model = tmp_path / "patched.gguf"
    model.write_bytes(with_bos(engine_paths.model.read_bytes()))
    loaded = load_tokenizer(str(model))
    for source in ("{{ bos_token }}{{ messages[0].content }}", "{{ messages[0].content }}"):
        template = loaded.with_template(source).template
        encoder = Encoder(loaded.tokenizer, template, memo_bytes=0, inline_chars=1 << 16)
        with running(engine_paths, model, source) as url, closing(encoder):
            for text in ("hello", "<|im_start|>hello"):
                for path, body in (
                    ("/v1/chat/completions", {"messages": [{"role": "user", "content": text}]}),
                    ("/v1/completions", {"prompt": text}),
                ):
                    answer = await asyncio.to_thread(post, url, path, {**body, "max_tokens": 1})
                    chat = path == "/v1/chat/completions"
                    ids = await (
                        encoder.encode_chat([{"role": "user", "content": text}], None, {})
                        if chat
                        else encoder.encode_text(text)
                    )
                    assert answer is not None
                    assert answer["usage"]["prompt_tokens"] == len(ids)


@pytest.mark.parametrize(
    ("source", "claims_prefill"),
    [
        pytest.param(TOOLS_CHATML, True, id="tools"),
        # llama.cpp closes the thinking tags of a prefill by rules of its own.
        pytest.param(THINKING, False, id="thinking"),
        pytest.param(NO_SYSTEM, True, id="no system role"),
    ],
)
def test_templates_with_tools_thinking_and_without_system_render_as_in_the_engine(
    start_engine: Callable[..., str], loaded: LoadedTokenizer, source: str, claims_prefill: bool
) -> None:
    """Tools, calls, results, parts, reasoning: equal text, or refused by both."""
    template = loaded.with_template(source).template
    assert template is not None
    assert template.fast
    url = start_engine(chat_template=source)
    for chat in (*probe_chats(), *more_chats()):
        if not chat.messages:
            continue  # refused before it gets here
        ours, theirs = our_prompt(template, chat), engine_prompt(url, chat)
        if not claims_prefill and chat.messages[-1].get("role") == "assistant":
            assert ours is None
        else:
            assert ours == theirs


@contextmanager
def running(paths: EnginePaths, model: Path, template: str | None = None) -> Iterator[str]:
    """The URL of an engine on another model file, stopped at the end of the block."""
    with engine_process.start_engine(
        replace(paths, model=model), context_per_slot=512, chat_template=template
    ) as engine:
        yield engine.wait_ready()


def _string(text: bytes) -> bytes:
    return struct.pack("<Q", len(text)) + text


def with_pre_tokenizer(gguf: bytes, pre: str) -> bytes:
    """Name another rule; the model's name makes up for the length, so that tensors stay put."""
    is_string = struct.pack("<I", 8)
    key = _string(b"tokenizer.ggml.pre") + is_string
    old = key + _string(b"smollm")
    assert gguf.count(old) == 1
    grown = len(pre) - len("smollm")
    name_at = gguf.index(_string(b"general.name") + is_string) + len(_string(b"general.name")) + 4
    (size,) = struct.unpack_from("<Q", gguf, name_at)
    name = b"x" * (size - grown)
    renamed = gguf[:name_at] + _string(name) + gguf[name_at + 8 + size :]
    patched = renamed.replace(old, key + _string(pre.encode()), 1)
    assert len(patched) == len(gguf)
    return patched


def with_bos(gguf: bytes) -> bytes:
    """Set `add_bos_token`, a boolean of one byte."""
    key = b"tokenizer.ggml.add_bos_token" + struct.pack("<I", 7)
    assert gguf.count(key + b"\x00") == 1
    return gguf.replace(key + b"\x00", key + b"\x01")
