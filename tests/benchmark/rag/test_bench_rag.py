"""The benchmark's own parts: its judge, its cache, its retrieval."""

import json
import lzma
from pathlib import Path

from tests.benchmark.rag.corpus import chat, meetings, passages, shuffled
from tests.benchmark.rag.orders import TreeCache, compare


def write_passages(folder: Path) -> Path:
    rows = [
        {
            "question": f"what is tea {number}",
            "answers": [f"green {number}"],
            "ctxs": [{"title": f"Tea {number}", "text": f"Tea {number} is green {number}."}],
        }
        for number in range(60)
    ]
    path = folder / "passages.jsonl.xz"
    path.write_bytes(lzma.compress("\n".join(map(json.dumps, rows)).encode()))
    return path


def test_a_cache_reuses_what_begins_alike() -> None:
    """Up to the first difference; leaves go before what they stand on."""
    sizes = dict.fromkeys(range(10), 1)
    cache = TreeCache(4)
    assert [cache.reused(order, sizes) for order in ([1, 2, 3], [1, 2, 4], [2, 1], [1, 2, 3])] == [
        *(0, 2, 0),
        2,
    ]


def test_each_question_has_its_own_passage_among_others(tmp_path: Path) -> None:
    """Different ones, the same for the same seed, and the same ones in another order."""
    path = write_passages(tmp_path)
    made = passages(path, 30, corpus=50, top=4, seed=1)
    assert made == passages(path, 30, corpus=50, top=4, seed=1)
    for one, again in zip(made, shuffled(made, 2), strict=True):
        assert len(set(one.documents)) == 4
        assert sum(one.gold[0] + "." in document for document in one.documents) == 1
        assert set(again.documents) == set(one.documents)
        assert chat(one)[1]["content"].count("<document>") == 4
    assert any(a != b for a, b in zip(made, shuffled(made, 2), strict=True))


def test_chunks_are_of_one_meeting(tmp_path: Path) -> None:
    """As a pipeline that looks in one meeting would find them."""
    rows = [
        {
            "meeting_transcripts": [{"speaker": "A", "content": f"word{number} " * 2000}],
            "specific_query_list": [{"query": f"about {number}?"}],
        }
        for number in range(5)
    ]
    path = tmp_path / "meetings.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    for one in meetings(path, 20, top=3, seed=1):
        word = f"word{one.text.removeprefix('about ').rstrip('?')}"
        assert len(one.documents) == 3
        assert all(word in document for document in one.documents)


def test_an_order_shares_more_than_none(tmp_path: Path) -> None:
    """Ours beside what was retrieved; and a roomy cache is no worse than a tight one."""
    questions = passages(write_passages(tmp_path), 300, corpus=40, top=4, seed=1)
    found = compare(questions, (300, 10**9), 1)
    assert found["chains, then most shared (prefold)"][1] > 1.5 * found["as retrieved"][1]
    assert all(tight <= roomy for tight, roomy in found.values())
