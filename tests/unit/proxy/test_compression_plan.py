"""In which form messages were sent, and what is to be done about the texts of the next request."""

from __future__ import annotations

import json
from array import array
from typing import Any

from prefold.compression.segment_cache import Kept, SegmentCache
from prefold.proxy.compression.forms import Forms, message_keys
from prefold.proxy.compression.plan import Plan
from prefold.proxy.compression.segments import turns
from prefold.proxy.compression.texts import SegmentRules
from prefold.proxy.documents.marks import Marks

RULES = SegmentRules(marks=Marks(parts=True), min_chars=10)
SECRET = b"k" * 16


def user(*texts: str) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "text", "text": text} for text in texts]}


class Scene:
    def __init__(self) -> None:
        self.forms = Forms()
        self.cache = SegmentCache(1 << 20)

    def plan(
        self,
        *messages: dict[str, Any],
        compressor: str = "c",
        rates: tuple[float, ...] = (0.5,),
        min_chars: int = 10,
    ) -> Plan:
        text = json.dumps({"messages": list(messages)})
        return Plan(
            text,
            turns(text, RULES),
            self.forms,
            self.cache,
            compressor=compressor,
            rates=rates,
            min_chars=min_chars,
            secret=SECRET,
        )

    def compress(self, plan: Plan) -> None:
        for piece in plan.missing():
            self.cache.put(piece.key, Kept(array("I", [0, 5]), 5))
        plan.look_again()


DOCUMENTS = user("document one", "document two", "the question")


def test_what_was_sent_stays() -> None:
    """Texts that were compressed are again, fixed; all others of that message never."""
    scene = Scene()
    plan = scene.plan(DOCUMENTS)
    assert [piece.segment.text for piece in plan.missing()] == ["document one", "document two"]
    scene.compress(plan)
    plan.note(plan.usable()[:1])

    later = scene.plan(DOCUMENTS, user("document new", "why?"))
    assert [(piece.segment.text, piece.fixed) for piece in later.pieces] == [
        ("document one", True),
        ("document new", False),
    ]
    assert [piece.segment.text for piece in later.usable(fixed_only=True)] == ["document one"]
    sent = json.loads(later.body(later.usable()))
    assert sent["messages"][0] == user("docum", "document two", "the question")


def test_another_beginning_is_another_conversation() -> None:
    """Nothing after what differs is held by a cache, so its form is free again."""
    scene = Scene()
    scene.plan(DOCUMENTS).note(())
    assert scene.plan(DOCUMENTS).pieces == []
    assert len(scene.plan({"role": "system", "content": "x"}, DOCUMENTS).pieces) == 2


def test_what_was_noted_first_holds() -> None:
    """Two requests with the same message may have been under way together."""
    scene = Scene()
    one, two = scene.plan(DOCUMENTS), scene.plan(DOCUMENTS)
    scene.compress(one)
    two.look_again()
    one.note(one.usable())
    two.note(())
    assert [piece.fixed for piece in scene.plan(DOCUMENTS).pieces] == [True, True]


def test_a_text_is_known_by_compressor_rate_and_itself() -> None:
    """The keys of its compressed forms; the place in a prompt is no part of them."""
    scene = Scene()
    plans = [
        scene.plan(DOCUMENTS),
        scene.plan(user("document two", "document one", "?")),
        scene.plan(DOCUMENTS, compressor="d"),
        scene.plan(DOCUMENTS, rates=(0.4, 0.5)),
    ]
    keys = [{piece.key for piece in plan.pieces} for plan in plans]
    assert keys[0] == keys[1]
    assert len(keys[0] | keys[2] | keys[3]) == 6


def test_what_was_sent_at_another_rate_stays() -> None:
    """The message is the same, byte for byte; new ones go at the new rate."""
    scene = Scene()
    plan = scene.plan(DOCUMENTS)
    scene.compress(plan)
    plan.note(plan.usable())
    later = scene.plan(DOCUMENTS, user("document new", "why?"), rates=(0.3, 0.4, 0.5))
    assert [(piece.fixed, piece.rate) for piece in later.pieces] == [
        (True, 0.5),
        (True, 0.5),
        (False, 0.3),
    ]
    assert {piece.key for piece in later.pieces[:2]} == {piece.key for piece in plan.pieces}


def test_what_was_long_enough_when_it_was_sent_stays() -> None:
    """Another least length is for what is new."""
    scene = Scene()
    plan = scene.plan(DOCUMENTS)
    scene.compress(plan)
    plan.note(plan.usable())
    new = user("document 3", "a document that is longer", "why?")
    later = scene.plan(DOCUMENTS, new, min_chars=20)
    assert [piece.segment.text for piece in later.pieces] == [
        "document one",
        "document two",
        "a document that is longer",
    ]


def test_what_is_best_left_alone_is_not_cut() -> None:
    """It is known, so nobody compresses it again."""
    scene = Scene()
    plan = scene.plan(DOCUMENTS)
    for piece in plan.pieces:
        scene.cache.put(piece.key, Kept(array("I", [0, 12]), 12))
    plan.look_again()
    assert (plan.missing(), plan.usable()) == ([], [])


def test_the_memory_of_forms_is_bounded() -> None:
    """The longest unused go first."""
    forms = Forms(2)
    forms.note(b"a", ())
    forms.note(b"b", (b"x",))
    assert forms.recall(b"a") == frozenset()
    forms.note(b"c", ())
    assert (forms.recall(b"a"), forms.recall(b"b"), len(forms)) == (frozenset(), None, 2)


def test_messages_are_known_by_all_before_them_and_by_the_secret() -> None:
    """Tenants and models cannot tell each other's."""
    text = json.dumps({"messages": [DOCUMENTS, DOCUMENTS]})
    one, two = message_keys(turns(text, RULES), SECRET)
    other, _ = message_keys(turns(text, RULES), b"other")
    assert len({one, two, other}) == 3
