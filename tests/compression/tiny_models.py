"""Small token classifiers with random weights and tokenizers of the real kinds, made on the spot.

Nothing here can be had from a hub: the vocabularies are trained on sentences below.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    layers: int
    width: int
    heads: int
    inner: int

    def options(self) -> dict[str, Any]:
        return {
            "num_hidden_layers": self.layers,
            "hidden_size": self.width,
            "num_attention_heads": self.heads,
            "intermediate_size": self.inner,
        }


TINY = Shape(layers=2, width=48, heads=4, inner=96)
BERT_BASE = Shape(layers=12, width=768, heads=12, inner=3072)  # LLMLingua-2's small model
XLM_BASE = BERT_BASE  # XLM-R's smaller one has the same layers
XLM_LARGE = Shape(layers=24, width=1024, heads=16, inner=4096)  # and its large one

SENTENCES = (
    "The committee did not agree that the old bridge over the river should be closed in winter.",
    'However, the mayor of Springfield (a careful man) said it was "only a matter of time".',
    "In 1987 the plant made 4.2 million tonnes; prices rose by 3.5% to $1,000 within 12 months.",
    "She wrote to ops@example.org about https://example.org/a?b=1 and the file main_test.py.",
    "Eine gewöhnliche Prüfung dauert zwei Stunden, manchmal länger, wenn jemand fehlt.",
    "서울시는 내년부터 시내버스 요금을 올리기로 했다고 밝혔다. 시민들은 반대했다.",
    "北京市政府昨天宣布，从明年一月起将提高公共汽车的票价。市民团体表示不同意。",
    "東京都は来年の春からバスの運賃を値上げすると発表した。市民団体は反対した。",
    "def f(x):\n    return {\"a\": [x, 1], 'b': x ** 2}  # why not?",
)


def bert_folder(folder: Path, *, shape: Shape = TINY, seed: int = 0) -> Path:
    """Shape and name of LLMLingua-2's small model, which the package knows by its name."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=False)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(prefix="##")
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trainer = trainers.WordPieceTrainer(vocab_size=1200, special_tokens=special)
    tokenizer.train_from_iterator(_corpus(), trainer)
    fast = _hf().BertTokenizerFast(tokenizer_object=tokenizer, do_lower_case=False)
    config = _hf().BertConfig(
        vocab_size=tokenizer.get_vocab_size(),
        **shape.options(),
        num_labels=2,
    )
    return _saved(
        folder / "bert-base-multilingual-cased",
        _hf().BertForTokenClassification,
        config,
        fast,
        seed,
    )


def xlm_folder(folder: Path, *, shape: Shape = TINY, seed: int = 0) -> Path:
    """Shape and name of LLMLingua-2's large model."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC()])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(prepend_scheme="always")]
    )
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="always")
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    trainer = trainers.UnigramTrainer(vocab_size=900, special_tokens=special, unk_token="<unk>")
    tokenizer.train_from_iterator(_corpus(), trainer)
    fast = _hf().PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<s>",
        eos_token="</s>",
        unk_token="<unk>",
        sep_token="</s>",
        cls_token="<s>",
        pad_token="<pad>",
        mask_token="<mask>",
    )
    config = _hf().XLMRobertaConfig(
        vocab_size=tokenizer.get_vocab_size(),
        **shape.options(),
        max_position_embeddings=514,
        type_vocab_size=1,
        pad_token_id=1,
        num_labels=2,
    )
    return _saved(
        folder / "xlm-roberta-large", _hf().XLMRobertaForTokenClassification, config, fast, seed
    )


def modern_bert_folder(folder: Path, *, shape: Shape = TINY, seed: int = 0) -> Path:
    """A byte-level BPE tokenizer and ModernBERT's layers, as newer classifiers have."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = ["[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"]
    trainer = trainers.BpeTrainer(
        vocab_size=900,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator(_corpus(), trainer)
    fast = _hf().PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        pad_token="[PAD]",
        mask_token="[MASK]",
    )
    config = _hf().ModernBertConfig(
        vocab_size=tokenizer.get_vocab_size(),
        **shape.options(),
        num_labels=2,
        pad_token_id=3,
        cls_token_id=1,
        sep_token_id=2,
        bos_token_id=1,
        eos_token_id=2,
    )
    return _saved(folder / "modernbert", _hf().ModernBertForTokenClassification, config, fast, seed)


def llama_folder(folder: Path, *, seed: int = 0) -> Path:
    """A causal model with a byte-level BPE tokenizer."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=700,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator(_corpus(), trainer)
    fast = _hf().PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|endoftext|>")
    config = _hf().LlamaConfig(
        vocab_size=tokenizer.get_vocab_size(),
        **TINY.options(),
        max_position_embeddings=512,
        bos_token_id=0,
        eos_token_id=0,
    )
    return _saved(folder / "llama", _hf().LlamaForCausalLM, config, fast, seed)


def _hf() -> Any:
    """transformers, whose types change from release to release."""
    return import_module("transformers")


def _corpus() -> Iterator[str]:
    for _ in range(20):
        yield from SENTENCES


def _saved(folder: Path, kind: Any, config: Any, tokenizer: Any, seed: int) -> Path:
    """Weights with which tokens stay apart through all layers, and probabilities spread: with
    larger ones attention makes all tokens of a deep network alike, and roundings decide."""
    import torch

    torch.manual_seed(seed)
    model = kind(config)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.dim() > 1:
                gain = 2.5 if name.startswith(("classifier", "lm_head")) else 0.55
                weight.normal_(0, gain / config.hidden_size**0.5)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    saved = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    assert saved["vocab_size"] == len(tokenizer) > 200, len(tokenizer)
    return folder
