"""The compression demo's questions, and what its table is made of."""

from __future__ import annotations

from prefold.proxy.demo.compressing import Asked, summarise
from prefold.proxy.demo.rag_workload import AGAIN, CACHED, NEW, NEXT, SITUATIONS, build_questions


def test_a_seed_means_the_same_questions() -> None:
    """Another one, others; each situation as often as asked."""
    questions = build_questions(seed=1, each=2, document_tokens=50)
    assert questions == build_questions(seed=1, each=2, document_tokens=50)
    assert questions != build_questions(seed=2, each=2, document_tokens=50)
    counted = [question.situation for question in questions]
    assert [counted.count(situation) for situation in SITUATIONS] == [2] * len(SITUATIONS)


def test_situations_are_what_they_are_called() -> None:
    """The same documents under another question, a turn that goes on, originals sent before."""
    new, again, following, whole, warm = build_questions(seed=3, each=1, document_tokens=50)
    assert (new.situation, again.situation, following.situation) == (NEW, AGAIN, NEXT)
    assert (whole.situation, whole.mode, warm.situation) == ("", "off", CACHED)
    documents = [one.messages[1]["content"][:-1] for one in (new, again, whole, warm)]
    assert documents[0] == documents[1]
    assert documents[2] == documents[3] != documents[0]
    assert new.messages[1]["content"][-1] != again.messages[1]["content"][-1]
    assert following.messages[:2] == new.messages


def test_what_was_gained_is_measured_on_the_same_question() -> None:
    """Pairs are compared, and what was not predicted stays unknown."""

    def asked(ttft_s: float, tokens: int, **told: str) -> Asked:
        return Asked(situation=NEW, ttft_s=ttft_s, prompt_tokens=tokens, told=told)

    off = [asked(1.0, 100), asked(3.0, 100)]
    on = [
        asked(0.5, 60, form="compressed", reason="pays", predicted_gain_s="0.4"),
        asked(2.0, 60, form="compressed", reason="pays", predicted_gain_s="0.6"),
    ]
    [report] = summarise(off, on)
    assert (report.prompt_tokens, report.sent_tokens) == (100, 60)
    assert report.forms == {"compressed (pays)": 2}
    assert (report.predicted_gain_ms, report.measured_gain_ms) == (500.0, 750.0)
    [unknown] = summarise(off, [asked(1.0, 100), asked(1.0, 100)])
    assert unknown.predicted_gain_ms is None
    assert unknown.forms == {"original (short)": 2}
