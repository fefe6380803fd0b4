"""Tokenizers of a few hundred tokens and chat templates, all made here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers
from tokenizers.processors import TemplateProcessing

SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
MERGES = (
    "h e",
    "l l",
    "he ll",
    "hell o",
    "Ġ hello",
    "i n",
    "a n",
    "an d",
    "1 2",
    "Ġ Ġ",
    "u s",
    "e r",
)

CHATML = """\
{% for message in messages %}
{% if loop.first and message.role != 'system' %}
{{ '<|im_start|>system\\nBe kind.<|im_end|>' }}
{% endif %}
{{ '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' }}
{% endfor %}
{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}
"""

# Tools as JSON lines in the system message, calls and results as XML-like blocks.
TOOLS_CHATML = """\
{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0].role == 'system' %}{{- messages[0].content + '\\n\\n' }}{%- endif %}
    {{- '<tools>\\n' }}
    {%- for tool in tools %}{{- tool | tojson + '\\n' }}{%- endfor %}
    {{- '</tools><|im_end|>\\n' }}
{%- elif messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == 'tool' %}
        {%- if loop.first or messages[loop.index0 - 1].role != 'tool' %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\\n<tool_response>\\n' + message.content + '\\n</tool_response>' }}
        {%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}
            {{- '<|im_end|>\\n' }}
        {%- endif %}
    {%- elif message.role == 'assistant' %}
        {{- '<|im_start|>assistant\\n' + message.content }}
        {%- for call in message.tool_calls or [] %}
            {{- '\\n<tool_call>\\n{"name": "' + call.function.name + '", "arguments": ' }}
            {{- call.function.arguments | tojson }}
            {{- '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role != 'system' or not loop.first %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}
"""

WEATHER_TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather <now> & 'later', größer",
        "parameters": {
            "type": "object",
            "properties": {
                "place": {"type": "string"},
                "days": {"type": "integer", "default": 3},
                "share": {"type": "number", "default": 0.25},
            },
            "required": ["place"],
        },
    },
}
WEATHER_CALL: dict[str, Any] = {
    "id": "call00001",
    "type": "function",
    "function": {"name": "get_weather", "arguments": '{"place":"Zürich","days":[1,null]}'},
}


def vocabulary(merges: tuple[str, ...] = MERGES) -> list[str]:
    """All bytes in GPT-2's alphabet, then what the merges make, then the special tokens."""
    merged = [merge.replace(" ", "") for merge in merges]
    return [*sorted(pre_tokenizers.ByteLevel.alphabet()), *merged, *SPECIALS]


def tiny_bpe(*, bos: str | None = None, prefix_space: bool = False) -> Tokenizer:
    """A byte-level BPE with the special tokens of ChatML."""
    ids = {token: position for position, token in enumerate(vocabulary())}
    pairs: list[tuple[str, str]] = [(left, right) for left, right in map(str.split, MERGES)]
    tokenizer = Tokenizer(models.BPE(vocab=ids, merges=pairs))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix_space)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, normalized=False) for token in SPECIALS])
    if bos is not None:
        tokenizer.post_processor = TemplateProcessing(
            single=f"{bos} $A", special_tokens=[(bos, ids[bos])]
        )
    return tokenizer


def tiny_unigram() -> Tokenizer:
    """A tokenizer that `fastokens` does not read, with a normalizer that prepends."""
    pieces = [("<unk>", 0.0), *((chr(code), -5.0) for code in range(32, 127)), ("▁", -2.0)]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=0))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    tokenizer.add_special_tokens([AddedToken(token, normalized=False) for token in SPECIALS])
    return tokenizer


def write_folder(
    folder: Path, tokenizer: Tokenizer, *, template: Any = CHATML, **config: Any
) -> Path:
    """The files a Hugging Face model folder has."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(tokenizer.to_str(), encoding="utf-8")
    settings = {"chat_template": template, "bos_token": None, "eos_token": SPECIALS[2], **config}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    return folder
