"""In which order documents go out: shared, stable, bounded."""

import random

import pytest

from prefold.proxy.documents import order as ordering
from prefold.proxy.documents.order import Chains, DocumentOrders

CONTEXT = 7


def seen(orders: DocumentOrders, context: int = CONTEXT) -> DocumentOrders:
    """A context that was met before is where documents may move."""
    orders.order(context, (0,))
    return orders


def test_a_new_context_keeps_the_order_that_was_sent() -> None:
    """Nothing that stands before the documents is in a cache: nothing is to be gained."""
    orders = DocumentOrders()
    assert tuple(orders.order(CONTEXT, (3, 1, 2))) == (3, 1, 2)
    assert tuple(orders.order(CONTEXT + 1, (2, 1, 3))) == (2, 1, 3)


def test_the_same_documents_come_out_in_the_same_order() -> None:
    """Whatever was sent since, and in whatever order they come: earlier turns do not change."""
    orders = seen(DocumentOrders())
    rng = random.Random(1)
    first = tuple(orders.order(CONTEXT, (5, 6, 7, 8)))
    for _ in range(500):
        orders.order(CONTEXT, rng.sample(range(1, 40), 5))
    for _ in range(5):
        assert tuple(orders.order(CONTEXT, rng.sample((5, 6, 7, 8), 4))) == first


def test_a_chain_that_was_sent_is_followed() -> None:
    """As far as it is made of the documents at hand: that is what a cache holds."""
    orders = DocumentOrders()
    orders.order(CONTEXT, (9, 4, 6, 2))
    assert tuple(orders.order(CONTEXT, (1, 2, 4, 6, 9))) == (9, 4, 6, 2, 1)
    assert tuple(orders.order(CONTEXT, (6, 4, 9, 1))) == (9, 4, 6, 1)


def test_the_most_sent_chain_is_followed() -> None:
    """Where there are several."""
    chains = Chains()
    for order in ([1, 2], [3, 4], [3, 4]):
        chains.learn(order)
    assert chains.order([1, 2, 3])[0] == 3


def test_beyond_chains_the_most_shared_come_first_and_new_ones_by_digest() -> None:
    """So that what two prompts have in common stands in front in both."""
    chains = Chains()
    chains.learn([9, 1])
    chains.learn([8, 2, 1])
    chains.learn([7, 2, 1])
    assert chains.order([30, 2, 1, 20]) == [1, 2, 20, 30]


def test_what_was_seen_long_ago_counts_less() -> None:
    """A document that was asked for twice as often, some half-lives ago, has fallen behind."""
    chains = Chains()
    for _ in range(200):
        chains.learn([1])
    for number in range(3 * ordering.HALF_LIFE):
        chains.learn([2 if number % 30 == 0 else 1000 + number])
    assert chains.order([1, 2]) == [2, 1]


def test_repeated_documents_stay_together() -> None:
    """A document that is there twice is sent twice."""
    orders = seen(DocumentOrders())
    assert sorted(orders.order(CONTEXT, (4, 5, 4, 4))) == [4, 4, 4, 5]


def test_contexts_know_nothing_of_each_other() -> None:
    """What is shared after one system prompt, or by one tenant, says nothing of another."""
    orders = seen(seen(DocumentOrders(), 1), 2)
    for _ in range(3):
        orders.order(1, (9, 5))
        orders.order(1, (9, 6))
    assert tuple(orders.order(1, (3, 9))) == (9, 3)
    assert tuple(orders.order(2, (3, 9))) == (3, 9)


def test_what_another_process_decided_holds_here() -> None:
    """And is told once, not each time it is used."""
    told: list[tuple[int, tuple[int, ...]]] = []
    one = seen(DocumentOrders(lambda context, order: told.append((context, tuple(order)))))
    other = DocumentOrders()
    for _ in range(3):
        one.order(CONTEXT, (9, 5, 1))
    one.order(CONTEXT, (9, 5, 2, 3))
    assert len(told) == 3

    for context, order in told:
        other.take_in(context, order)
    assert tuple(other.order(CONTEXT, (3, 2, 5, 9))) == tuple(one.order(CONTEXT, (2, 3, 5, 9)))


def telling(told: list[int]) -> DocumentOrders:
    return DocumentOrders(lambda _, order: told.extend(order))


def test_two_that_decided_at_once_come_to_agree() -> None:
    """Each hears of the other's order after it has its own: one of them holds in both."""
    told: list[list[int]] = [[], []]
    both = [telling(told[0]), telling(told[1])]
    for orders, sent in zip(both, ((1, 2, 3), (3, 1, 2)), strict=True):
        orders.order(CONTEXT, sent)
    for orders, theirs in zip(both, reversed(told), strict=True):
        orders.take_in(CONTEXT, theirs)
    assert [tuple(orders.order(CONTEXT, (2, 3, 1))) for orders in both] == [(1, 2, 3)] * 2


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one busy context, and of many that come once."""
    monkeypatch.setattr(ordering, "MAX_KNOWN", 400)
    monkeypatch.setattr(ordering, "MAX_KNOWN_OF_ONE", 200)
    monkeypatch.setattr(ordering, "MAX_REMEMBERED", 300)
    monkeypatch.setattr(ordering, "MAX_CONTEXTS", 50)
    orders = DocumentOrders()
    rng = random.Random(2)
    for number in range(2000):
        context = CONTEXT if number % 2 else rng.randrange(100)
        sent = rng.sample(range(500), 6)
        assert sorted(orders.order(context, sent)) == sorted(sent)
        contexts, known, documents = orders.size
        assert contexts <= 50
        assert known <= 400
        assert documents <= 300


def test_pruning_keeps_what_is_seen_most() -> None:
    """And says how much is left."""
    chains = Chains()
    for number in range(100):
        chains.learn([1, 2, 100 + number])
    before = len(chains)
    chains.prune()
    assert chains.order([2, 1, 500]) == [1, 2, 500]
    assert 0 < len(chains) <= before // 2 + 2
    Chains().prune()


def test_shared_documents_become_a_common_beginning() -> None:
    """Of prompts that hold two frequent documents among rare ones, in any order, all but the first
    few begin with those two."""
    orders = seen(DocumentOrders())
    rng = random.Random(3)
    begun = []
    for number in range(60):
        sent = [1, 2, 100 + 2 * number, 101 + 2 * number]
        rng.shuffle(sent)
        begun.append(set(orders.order(CONTEXT, sent)[:2]))
    assert begun[3:] == [{1, 2}] * 57
