"""The model of this process that answers: what it says is its likeliest continuation."""

from pathlib import Path
from typing import Any

import pytest

from prefold.proxy.tokens.tokenizer import load_tokenizer
from tests.benchmark.rag.corpus import Question, chat
from tests.compression.answering import LocalModel
from tests.compression.tiny_models import SENTENCES, llama_folder

TEMPLATE = "{% for one in messages %}{{ one.role }}: {{ one.content }}\n{% endfor %}assistant:"
QUESTIONS = [
    Question((SENTENCES[0],), "what?"),
    Question(tuple(SENTENCES[:3]), "where?"),
    Question(("",), "why?"),
]
MOST = 7


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A causal model with a chat template."""
    made = llama_folder(tmp_path)
    (made / "chat_template.jinja").write_text(TEMPLATE, encoding="utf-8")
    return made


def test_an_answer_is_the_likeliest_token_after_token(folder: Path) -> None:
    """Whatever is padded beside it: the same as one token at a time, alone and without a cache."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model: Any = AutoModelForCausalLM.from_pretrained(folder)
    decoder: Any = AutoTokenizer.from_pretrained(folder)
    loaded = load_tokenizer(str(folder), try_fast=False)
    assert loaded.template is not None
    wanted = []
    for one in QUESTIONS:
        ids = loaded.tokenizer.encode(loaded.template.render(chat(one), None, {})).tolist()
        prompt = len(ids)
        while len(ids) < prompt + MOST:
            with torch.inference_mode():
                following = int(model(torch.tensor([ids])).logits[0, -1].argmax())
            if following == decoder.eos_token_id:
                break
            ids.append(following)
        wanted.append(decoder.decode(ids[prompt:], skip_special_tokens=True))

    assert LocalModel(str(folder)).answers(QUESTIONS, MOST) == wanted
    assert len(set(wanted)) > 1


def test_a_model_without_a_chat_template_is_refused(tmp_path: Path) -> None:
    """What it would be asked is not known."""
    made = llama_folder(tmp_path)
    config = made / "tokenizer_config.json"
    assert "chat_template" not in config.read_text(encoding="utf-8")

    with pytest.raises(ValueError, match="no chat template"):
        LocalModel(str(made))
