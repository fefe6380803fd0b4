"""A body with its documents in another order: the same bytes, and the client is told."""

import json
import random
from typing import Any

import pytest

from prefold.proxy.documents import arrange as arranging
from prefold.proxy.documents.arrange import Arranged, arrange
from prefold.proxy.documents.documents import HEADER, Documents
from prefold.proxy.documents.marks import Marks
from prefold.proxy.documents.order import DocumentOrders
from prefold.proxy.errors import BadRequest

ALL = Marks(parts=True, member=True, delimited=True)
FRESH = DocumentOrders()
DOCUMENTS = [f"<document>Tea number {number}: \u00e9\U0001f375.</document>" for number in range(9)]


def body(*documents: str, ascii_only: bool = True, system: str = "Answer.") -> bytes:
    messages = [
        {"role": "system", "content": system},
        {"role": "user", "content": "Use:\n" + "\n\n".join(documents) + "\nWhich is best?"},
    ]
    value = {"model": "m", "seed": 12345678901234567890123, "messages": messages}
    return json.dumps(value, ensure_ascii=ascii_only).encode()


def arranged(raw: bytes, orders: DocumentOrders, seed: int = 1) -> Arranged:
    made = arrange(raw, ALL, orders, seed)
    assert made is not None
    return made


def content(raw: bytes, message: int = 1) -> str:
    text: str = json.loads(raw)["messages"][message]["content"]
    return text


def test_the_first_goes_as_it_came_and_the_second_follows_it() -> None:
    """The second prompt has the documents that both hold in front, as the first one had them."""
    orders = DocumentOrders()
    a, b, c, d, e, *_ = DOCUMENTS
    first = arranged(body(a, b, c), orders)
    assert (first.raw, first.order, first.documents, first.moved) == (body(a, b, c), "", 3, 0)

    second = arranged(body(d, b, e, a), orders)
    assert second.order.startswith("messages[1]=3,1,")
    assert second.documents == 4
    start = content(body(a, b))[: len("Use:\n" + a + b) + 2]
    assert content(second.raw).startswith(start)
    assert content(first.raw).startswith(start)


def test_the_order_names_for_each_place_what_stands_there_now() -> None:
    """So a client can tell which document `the third` is that an answer speaks of."""
    orders = DocumentOrders()
    arranged(body(*DOCUMENTS[:5]), orders)
    sent = random.Random(1).sample(DOCUMENTS[:5], 5)
    made = arranged(body(*sent), orders)

    order = [int(number) for number in made.order.removeprefix("messages[1]=").split(",")]
    assert content(made.raw) == content(body(*(sent[number] for number in order)))
    assert made.moved == sum(number != place for place, number in enumerate(order)) > 0


def test_the_same_document_is_known_however_it_is_written() -> None:
    """One client escapes what is not ASCII, another one does not."""
    orders = DocumentOrders()
    arranged(body(*DOCUMENTS[:4]), orders)
    made = arranged(body(*DOCUMENTS[3::-1], ascii_only=False), orders)

    assert content(made.raw) == content(body(*DOCUMENTS[:4]))
    assert made.raw == body(*DOCUMENTS[:4], ascii_only=False)


def test_what_is_not_a_document_stays_byte_for_byte() -> None:
    """Numbers of any size, layout, unknown members, what stands between documents."""
    orders = DocumentOrders()
    a, b, c = (json.dumps(one)[1:-1] for one in DOCUMENTS[:3])
    raw = b'{ "x":1e400,"messages" :[{"content":"%s\\n%s  %s?","role":"user"} ],"y":0.10}'
    sent = raw % (a.encode(), b.encode(), c.encode())
    arranged(sent, orders)
    shuffled = raw % (c.encode(), a.encode(), b.encode())

    assert arranged(shuffled, orders).raw == sent


def test_seeds_and_what_stands_before_keep_apart() -> None:
    """Tenants, models, and prompts that share nothing before their documents."""
    orders = DocumentOrders()
    arranged(body(*DOCUMENTS[:4]), orders)
    shuffled = DOCUMENTS[3::-1]

    assert arranged(body(*shuffled), orders, seed=2).moved == 0
    assert arranged(body(*shuffled, system="Other."), orders).moved == 0
    assert arranged(body(*shuffled), orders).moved > 0


def test_earlier_turns_keep_their_order() -> None:
    """Each turn sends all the ones before it again, as the client has them; the prompt's beginning
    is the same bytes as in the turn before."""
    orders = DocumentOrders()
    rng = random.Random(4)
    for _ in range(50):
        arranged(body(*rng.sample(DOCUMENTS, 4)), orders)
    value = json.loads(body(*rng.sample(DOCUMENTS, 4)))
    before = ""
    for turn in range(4):
        messages = json.loads(arranged(json.dumps(value).encode(), orders).raw)["messages"]
        flat = json.dumps(messages)
        assert flat.startswith(before[:-1])
        before = flat
        for _ in range(20):
            arranged(body(*rng.sample(DOCUMENTS, 4)), orders)
        more = "".join(rng.sample(DOCUMENTS, 3))
        value["messages"] += [
            {"role": "assistant", "content": f"answer {turn}"},
            {"role": "user", "content": more},
        ]


def test_documents_of_a_conversations_own_context_stay() -> None:
    """What stands before them was never sent before, so there is nothing they could share."""
    orders = DocumentOrders()
    for number in range(5):
        value = json.loads(body(*DOCUMENTS[:3]))
        value["messages"] += [
            {"role": "assistant", "content": f"answer {number}"},
            {"role": "user", "content": "".join(DOCUMENTS[number : number + 3])},
        ]
        assert arranged(json.dumps(value).encode(), orders).order == ""


def test_several_places_are_told() -> None:
    """The `documents` member and a message, each with its own order."""
    orders = DocumentOrders()

    def both(*names: str) -> bytes:
        message = {"role": "user", "content": "".join(f"<document>{n}</document>" for n in names)}
        return json.dumps({"messages": [message], "documents": list(names)}).encode()

    arranged(both("a", "b", "c"), orders)
    made = arranged(both("c", "a", "b"), orders)
    assert made.order == "documents=1,2,0; messages[0]=1,2,0"
    assert made.raw == both("a", "b", "c")
    assert (made.documents, made.moved) == (6, 6)


def test_too_many_documents_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those after the bound, so that a conversation that grows keeps the order of its beginning."""
    monkeypatch.setattr(arranging, "MAX_DOCUMENTS", 6)
    orders = DocumentOrders()
    groups = [DOCUMENTS[:4], DOCUMENTS[4:8]]

    def two(*lists: list[str]) -> bytes:
        messages = [{"role": "user", "content": "".join(documents)} for documents in lists]
        return json.dumps({"messages": messages}).encode()

    arranged(two(*groups), orders)
    made = arranged(two(*(group[::-1] for group in groups)), orders)
    assert made.raw == two(groups[0], groups[1][::-1])

    marked = [{"type": "document", "title": str(number), "cache_control": {}} for number in "12345"]
    free = [{"type": "document", "title": title} for title in "ab"]

    def parts(*documents: dict[str, Any]) -> bytes:
        return json.dumps({"messages": [{"role": "user", "content": documents}]}).encode()

    arranged(parts(*marked, *free), orders)
    assert arranged(parts(*marked, *free[::-1]), orders).order == "", "it would be told of all"


def test_a_body_without_documents_is_none_of_ours() -> None:
    """One document is counted, and cannot move."""
    assert arrange(b'{"messages":[{"role":"user","content":"hi"}]}', ALL, FRESH, 1) is None
    one = arranged(body(DOCUMENTS[0]), FRESH)
    assert (one.documents, one.moved) == (1, 0)


class Losing(DocumentOrders):
    """Forgets one of them."""

    def order(self, context: int, documents: Any) -> list[int]:
        return [documents[0]] * len(documents)


def documents(
    orders: DocumentOrders | None = None, *, by_header: bool = True, kinds: tuple[str, ...] = ()
) -> Documents:
    return Documents(
        base=Marks(),
        models={"m": kinds, "other": ()},
        by_header=by_header,
        orders=orders or DocumentOrders(),
    )


def test_a_fault_leaves_the_body_as_it_was() -> None:
    """An order that loses a document, and a body that is not understood."""
    asking = {HEADER: "delimited"}
    assert documents(Losing()).arrange(body(*DOCUMENTS), "m", asking, 1) is None
    for raw in (b"{", b"\xff", b'{"messages":[],"messages":[]}'):
        assert documents().arrange(raw, "m", asking, 1) is None


def test_who_is_arranged() -> None:
    """Models that are set so; requests that ask, if they may; `none` wins over the model."""
    raw = body(*DOCUMENTS)
    always = documents(by_header=False, kinds=("delimited",))
    asked = documents(kinds=("parts",))

    assert always.used
    assert asked.used
    assert not documents(by_header=False).used
    assert always.arrange(raw, "m", {}, 1)
    assert always.arrange(raw, "other", {HEADER: "delimited"}, 1) is None
    assert always.arrange(raw, "m", {HEADER: "none"}, 1), "headers are not looked at"
    assert asked.arrange(raw, "m", {}, 1) is None, "there are no parts"
    assert asked.arrange(raw, "m", {HEADER: " Delimited, parts"}, 1)
    assert asked.arrange(raw, "other", {HEADER: "delimited"}, 1)
    assert documents(kinds=("delimited",)).arrange(raw, "m", {HEADER: "none"}, 1) is None


def test_a_body_without_a_sign_of_documents_is_not_taken_apart() -> None:
    """Delimiters are seen as encoders write them; the order of others is not touched."""
    made = documents(kinds=("delimited",))
    plain = body(*DOCUMENTS).decode()
    for written in (
        plain,
        plain.replace("<", "\\u003c").replace(">", "\\u003e"),
        plain.replace("<", "\\u003c").replace(">", "\\u003e").replace("/", "\\/"),
    ):
        assert made.arrange(written.encode(), "m", {}, 1), written
    assert made.arrange(body("no document"), "m", {}, 1) is None
    assert documents(kinds=("member",)).arrange(body(*DOCUMENTS), "m", {}, 1) is None


def test_a_header_that_asks_for_what_there_is_not_is_refused() -> None:
    """A client that is not understood is told so."""
    with pytest.raises(BadRequest, match="parts, member, delimited"):
        documents().arrange(body(), "m", {HEADER: "everything"}, 1)
