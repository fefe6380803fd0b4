"""Ids are the reference library's, whichever library makes them; sources load to the same thing."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tokenizers import AddedToken
from tokenizers import Tokenizer as HuggingFaceTokenizer

from prefold.proxy.errors import NotEncodable, TokenizerError
from prefold.proxy.tokens.chat_template import Dialect
from prefold.proxy.tokens.gguf_tokenizer import tokenizer_parts
from prefold.proxy.tokens.probe_texts import probe_texts, random_texts
from prefold.proxy.tokens.tokenizer import Tokenizer, load_tokenizer
from tests.support.tiny_gguf import write_gguf
from tests.support.tiny_tokenizer import CHATML, SPECIALS, tiny_bpe, tiny_unigram, write_folder


def test_probe_texts_are_the_same_in_every_process() -> None:
    """A verdict on the fast library must not depend on chance."""
    assert probe_texts(SPECIALS) == probe_texts(SPECIALS)
    assert len(set(random_texts(300, seed=1))) > 290


@pytest.mark.parametrize("make", [tiny_bpe, tiny_unigram])
def test_ids_are_those_of_the_reference_library(make: type) -> None:
    """Whether or not `fastokens` was proved, every id is what `tokenizers` answers."""
    reference = make()
    tokenizer = Tokenizer(reference.to_str(), name="tiny")
    for text in random_texts(200, seed=5, special_tokens=SPECIALS):
        expected = reference.encode(text, add_special_tokens=False).ids
        ids = tokenizer.encode(text)
        assert ids.dtype == np.uint32
        assert ids.tolist() == expected


def test_the_fast_library_is_used_where_it_proved_equal() -> None:
    """A byte-level BPE is encoded by fastokens, and the verdict says on how many texts."""
    tokenizer = Tokenizer(tiny_bpe().to_str(), name="tiny")
    assert tokenizer.fast
    assert "encoded by fastokens (identical ids on 3" in tokenizer.describe()


def test_the_slow_library_is_used_where_the_fast_one_cannot_follow() -> None:
    """A Unigram model falls back to `tokenizers`, and the verdict says why."""
    tokenizer = Tokenizer(tiny_unigram().to_str(), name="tiny")
    assert not tokenizer.fast
    assert "encoded by tokenizers (fastokens " in tokenizer.describe()


def test_a_byte_without_a_token_is_left_to_the_slow_library(tmp_path: Path) -> None:
    """`fastokens` refuses it and `tokenizers` drops it, as llama.cpp does: the ids are the same."""
    # Byte 0xf4 begins the characters of plane 16.
    parts = tokenizer_parts(write_gguf(tmp_path / "tiny.gguf", without="ô"))
    tokenizer = Tokenizer(parts.tokenizer_json, name="tiny")
    reference = HuggingFaceTokenizer.from_str(parts.tokenizer_json)
    assert tokenizer.fast
    assert "left to tokenizers" in tokenizer.describe()
    assert tokenizer.encode("a\U0010ffffb").size == 5
    for text in random_texts(300, seed=6, special_tokens=SPECIALS):
        expected = reference.encode(text, add_special_tokens=False).ids
        assert tokenizer.encode(text).tolist() == expected
    with pytest.raises(NotEncodable):
        tokenizer.encode("\U0010ffff\ud800")


def test_the_slow_library_can_be_asked_for() -> None:
    """For comparison, and for whoever does not want the fast one."""
    tokenizer = Tokenizer(tiny_bpe().to_str(), name="tiny", try_fast=False)
    assert not tokenizer.fast
    assert "fastokens was not asked for" in tokenizer.describe()


def test_special_tokens_in_a_text_are_parsed_and_none_are_added() -> None:
    """As engines do it: parse_special is on, a BOS is added for plain completions only."""
    tokenizer = Tokenizer(tiny_bpe(bos="<|endoftext|>").to_str(), name="tiny")
    bos, start = (tiny_bpe().token_to_id(token) for token in ("<|endoftext|>", "<|im_start|>"))
    assert tokenizer.special_tokens == SPECIALS
    assert tokenizer.encode("<|im_start|>").tolist() == [start]
    assert tokenizer.bos_ids == (bos,)
    assert tokenizer.encode_with_bos("<|im_start|>").tolist() == [bos, start]
    # Also before a BOS that the client wrote: llama.cpp then has two.
    assert tokenizer.encode_with_bos("<|endoftext|>").tolist() == [bos, bos]


def test_truncation_and_padding_in_the_file_are_ignored() -> None:
    """They are a trainer's settings; an engine encodes the whole prompt."""
    reference = tiny_bpe()
    reference.enable_truncation(2)
    reference.enable_padding(length=500)
    tokenizer = Tokenizer(reference.to_str(), name="tiny")
    assert tokenizer.encode("xyz").size == 3
    assert tokenizer.fast


def test_lone_surrogates_are_not_encodable() -> None:
    """JSON can carry them, UTF-8 cannot: the same exception from both libraries."""
    for reference in (tiny_bpe(), tiny_unigram()):
        with pytest.raises(NotEncodable):
            Tokenizer(reference.to_str(), name="tiny").encode("a\ud800")


def test_plain_special_tokens_are_cuts_and_other_tokens_are_not() -> None:
    """Text may be cut before a special token, not before a word or half a token."""
    tokenizer = Tokenizer(tiny_bpe().to_str(), name="tiny")
    assert [token for token in SPECIALS if tokenizer.cuts_at(token)] == list(SPECIALS)
    assert not tokenizer.cuts_at("hello")
    assert not tokenizer.cuts_at("<|im_")


@pytest.mark.parametrize(
    ("token", "cut"),
    [
        (AddedToken("<left>", lstrip=True, normalized=False), "<left>"),
        (AddedToken("<word>", single_word=True, normalized=False), "<word>"),
        (AddedToken("<normal>", normalized=True), "<normal>"),
        (AddedToken("<|im_end|><|im_end|>", normalized=False), "<|im_end|>"),
        (AddedToken("!<|im_end|>", normalized=False), "<|im_end|>"),
        (AddedToken("end<|", normalized=False), "<|im_end|>"),
        (AddedToken("<", normalized=False), "<|im_end|>"),
        (AddedToken("aba", normalized=False), "aba"),
    ],
)
def test_a_token_that_something_can_reach_across_is_no_cut(token: AddedToken, cut: str) -> None:
    """White space to its left, a neighbour that overlaps its beginning, or another token's end."""
    reference = tiny_bpe()
    reference.add_special_tokens([token])
    assert not Tokenizer(reference.to_str(), name="tiny").cuts_at(cut)


def test_a_tokenizer_that_adds_a_space_to_each_piece_is_put_to_the_test() -> None:
    """Prepending normalizers act on each piece between special tokens, cut or not: cuts hold."""
    tokenizer = Tokenizer(tiny_unigram().to_str(), name="tiny")
    text = "a b<|im_start|> c<|im_start|>d"
    pieces = ["a b", "<|im_start|> c", "<|im_start|>d"]
    assert tokenizer.cuts_at("<|im_start|>")
    assert tokenizer.encode(text).tolist() == np.concatenate(tokenizer.encode_many(pieces)).tolist()


def test_a_folder_and_a_gguf_file_of_one_model_load_alike(tmp_path: Path) -> None:
    """Both sources give the same ids; each stands for the engine that loads it."""
    gguf = load_tokenizer(str(write_gguf(tmp_path / "tiny.gguf", pre="gpt-2")))
    folder = load_tokenizer(str(write_folder(tmp_path / "folder", tiny_bpe())))
    assert gguf.dialect is Dialect.LLAMA_CPP
    assert folder.dialect is Dialect.VLLM
    for text in random_texts(50, seed=9, special_tokens=SPECIALS):
        assert gguf.tokenizer.encode(text).tolist() == folder.tokenizer.encode(text).tolist()
    chat = [{"role": "user", "content": "hello"}]
    assert gguf.template is not None
    assert folder.template is not None
    assert gguf.template.render(chat, None, {}) == folder.template.render(chat, None, {})
    assert (gguf.eos_token, folder.eos_token) == ("<|im_end|>", "<|im_end|>")


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("A", "A"),
        ([{"name": "tool_use", "template": "T"}, {"name": "default", "template": "D"}], "D"),
        ([{"name": "tool_use", "template": "T"}], None),
        (None, None),
    ],
)
def test_the_default_chat_template_is_taken(
    tmp_path: Path, template: object, expected: str | None
) -> None:
    """`chat_template` is a text or a list of named ones; a model may have none."""
    loaded = load_tokenizer(str(write_folder(tmp_path, tiny_bpe(), template=template)))
    rendered = loaded.template and loaded.template.render([], None, {})
    assert rendered == expected


def test_a_template_file_wins_over_the_one_in_the_settings(tmp_path: Path) -> None:
    """As transformers does: chat_template.jinja is the newer form."""
    write_folder(tmp_path, tiny_bpe(), template="old")
    (tmp_path / "chat_template.jinja").write_text("new")
    loaded = load_tokenizer(str(tmp_path))
    assert loaded.template is not None
    assert loaded.template.render([], None, {}) == "new"
    other = loaded.with_template("other").template
    assert other is not None
    assert other.render([], None, {}) == "other"


def test_special_tokens_written_as_objects_are_read(tmp_path: Path) -> None:
    """`bos_token` is a text or an object with flags."""
    bos = {"content": "<|endoftext|>", "lstrip": False}
    folder = write_folder(tmp_path, tiny_bpe(), template="{{ bos_token }}!", bos_token=bos)
    loaded = load_tokenizer(str(folder))
    assert loaded.bos_token == "<|endoftext|>"
    assert loaded.template is not None
    assert loaded.template.render([], None, {}) == "<|endoftext|>!"


def test_llama_cpp_begins_every_chat_with_one_bos(tmp_path: Path) -> None:
    """Where the vocabulary says add_bos, whether or not the template writes it."""
    for template in ("{{ bos_token }}hello", "hello"):
        folder = write_folder(
            tmp_path,
            tiny_bpe(bos="<|endoftext|>"),
            template=template,
            bos_token="<|endoftext|>",
        )
        loaded = load_tokenizer(str(folder), dialect=Dialect.LLAMA_CPP)
        assert loaded.template is not None
        assert loaded.template.render([], None, {}) == "<|endoftext|>hello"
        as_vllm = load_tokenizer(str(folder), dialect=Dialect.VLLM)
        assert as_vllm.template is not None
        assert as_vllm.template.render([], None, {}) == template.replace(
            "{{ bos_token }}", "<|endoftext|>"
        )


def test_older_vocabulary_files_are_converted_by_transformers(tmp_path: Path) -> None:
    """A folder without tokenizer.json needs the optional package, and is read through it."""
    pytest.importorskip("transformers")
    data = json.loads(tiny_bpe().to_str())
    merges = "\n".join(" ".join(pair) for pair in data["model"]["merges"])
    (tmp_path / "vocab.json").write_text(json.dumps(data["model"]["vocab"]), encoding="utf-8")
    (tmp_path / "merges.txt").write_text(f"#version: 0.2\n{merges}\n", encoding="utf-8")
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "GPT2Tokenizer"}')
    loaded = load_tokenizer(str(tmp_path))
    expected = tiny_bpe().encode("hello hello in", add_special_tokens=False).ids
    assert loaded.tokenizer.encode("hello hello in").tolist() == expected


@pytest.mark.parametrize("broken", ["{}", "not json", '{"model": {"type": "Nope"}}'])
def test_an_unreadable_tokenizer_is_named(tmp_path: Path, broken: str) -> None:
    """The error says which source it was."""
    write_folder(tmp_path, tiny_bpe())
    (tmp_path / "tokenizer.json").write_text(broken)
    with pytest.raises(TokenizerError, match=tmp_path.name):
        load_tokenizer(str(tmp_path))


def test_a_hub_id_that_cannot_be_had_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a network the hub's error becomes ours, with the id in it."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(TokenizerError, match="nobody/nothing is no path here"):
        load_tokenizer("nobody/nothing")
    with pytest.raises(TokenizerError, match="no/such/path is no path here"):
        load_tokenizer("no/such/path")


def test_templates_that_need_the_settings_of_the_folder(tmp_path: Path) -> None:
    """A folder without tokenizer_config.json has a tokenizer, but no chat template."""
    write_folder(tmp_path, tiny_bpe())
    (tmp_path / "tokenizer_config.json").unlink()
    loaded = load_tokenizer(str(tmp_path))
    assert loaded.template is None
    assert loaded.tokenizer.encode("hello").size == 1
    assert loaded.with_template(CHATML).template is not None
