"""A proxy whose compressor's model is on a vLLM server, by the bytes of vLLM's pooling endpoint."""

from __future__ import annotations

import asyncio
import base64
import json
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import numpy.typing as npt
import pytest

from prefold.compression.catalog import CompressorChoice, VllmPlace, open_compressor
from prefold.compression.compressor import (
    Compressor,
    CompressorGone,
    CompressorUnavailable,
    Passage,
    compress_checked,
)
from prefold.compression.llmlingua2 import LLMLingua2Scorer
from prefold.compression.protect import protect
from prefold.compression.scored import ScoredCompressor
from prefold.compression.tokenizer_files import tokenizer_files
from prefold.compression.worker.pool import WorkerPool
from prefold.proxy.compress_server import serving
from prefold.proxy.compression.switch import HEADER
from prefold.proxy.serve import Running
from prefold.proxy.settings import Compression
from tests.support.classifier_tokenizer import logits_by_place, tokenizer_folder
from tests.support.pooling_server import (
    Fault,
    PoolingServer,
    answering,
    changed,
    closing,
    served,
    silent,
)
from tests.support.prose import prose
from tests.support.proxy import BASE, proxy_before, until
from tests.support.upstream import ScriptedUpstream, scripted, whole

ANSWER = whole({"id": "a", "choices": [{"message": {"role": "assistant", "content": "Yes."}}]})
LONG = " ".join(f"Crate number {n} was counted twice by the old porter." for n in range(400))
TEXTS = [prose(1, 30), prose(2, 60) + "\n\n" + prose(3, 5), "a [SEP] b [CLS] " * 40, "", LONG]


class Local:
    """The same model in this process."""

    def __init__(self, folder: Path, longest: int = 512) -> None:
        files = tokenizer_files(folder)
        self.tokenizer: Any = files.tokenizer
        self.begin_id, self.end_id, self.unknown_id = files.begin_id, files.end_id, files.unknown_id
        self.revision, self.longest = "", longest
        self.options: Mapping[str, object] = {}

    def probabilities(self, rows: Sequence[Sequence[int]]) -> list[npt.NDArray[np.float32]]:
        assert max(map(len, rows)) <= self.longest
        return [1 / (1 + np.exp(one[:, 0] - one[:, 1])) for one in logits_by_place(rows)]


def made(folder: Path, **more: Any) -> PoolingServer:
    tokenizer = tokenizer_files(tokenizer_folder(folder)).tokenizer
    return PoolingServer(tokenizer=tokenizer, **{"logits": logits_by_place, **more})


async def opened(url: str, folder: Path, *, revision: str | None = None, **more: Any) -> Compressor:
    """It asks, and so it is opened beside the loop that answers."""
    place = VllmPlace(url=url, **{"api_key": "k3y", **more})
    choice = CompressorChoice(
        name="llmlingua2", model=str(folder), model_revision=revision, vllm=place
    )
    return await asyncio.to_thread(open_compressor, choice)


def passages(texts: Sequence[str]) -> list[Passage]:
    return [Passage(text=text, rate=0.5, protected=protect(text)) for text in texts]


@pytest.mark.parametrize("knows_activation", [True, False])
@pytest.mark.parametrize("longest", [512, 100])
async def test_what_is_kept_is_what_the_same_model_keeps_here(
    tmp_path: Path, knows_activation: bool, longest: int
) -> None:
    """In windows that the server takes, several of them in one request; also from a server that
    gives probabilities whatever is asked for."""
    server = made(tmp_path, knows_activation=knows_activation, max_model_len=longest)
    local = ScoredCompressor(LLMLingua2Scorer(Local(tmp_path, longest)))
    async with served(server) as url:
        there = await opened(url, tmp_path)
        server.asked.clear()
        found = await asyncio.to_thread(compress_checked, there, passages(TEXTS))
    assert found == compress_checked(local, passages(TEXTS))
    assert sum(len(one.text(text)) < len(text) for one, text in zip(found, TEXTS, strict=True)) > 2
    [asked] = server.asked
    assert len(asked["input"]) > len(TEXTS)
    assert {(row[0], row[-1]) for row in asked["input"]} == {(2, 3)}
    assert all(2 not in row[1:] and 3 not in row[:-1] for row in asked["input"])


async def test_its_digest_names_what_can_be_known(tmp_path: Path) -> None:
    """Model and tokenizer; a model's other name is another one, since it may become that."""
    server = made(tmp_path / "a", aliases=("alias",))
    other = made(tmp_path / "b", model="other")
    async with served(server) as url, served(other) as there:
        one, same = [await opened(url, tmp_path / "a") for _ in range(2)]
        named = await opened(url, tmp_path / "a", model="keep")
        assert one.digest == same.digest == named.digest
        alias = await opened(url, tmp_path / "a", model="alias")
        assert compress_checked(alias, []) == []
        revised = await opened(url, tmp_path / "a", revision="2")
        assert len({one.digest, alias.digest, revised.digest}) == 3
        assert (await opened(there, tmp_path / "b")).digest != one.digest
        with pytest.raises(CompressorUnavailable, match="serves no model 'none'"):
            await opened(url, tmp_path / "a", model="none")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"key": "another"}, r"refuses compression\.api_key"),
        ({"activation": "none"}, "neither logits nor probabilities"),
        ({"logits": lambda rows: [np.ones((len(row), 9), "f4") for row in rows]}, "9 labels"),
        ({"fault": answering(400)}, "does not pool"),
        ({"fault": answering(404)}, "status 404"),
    ],
)
async def test_what_serves_something_else_is_not_opened(
    tmp_path: Path, change: dict[str, Any], why: str
) -> None:
    """The reason is for the log."""
    async with served(made(tmp_path, **change)) as url:
        with pytest.raises(CompressorUnavailable, match=why):
            await opened(url, tmp_path)


async def test_another_tokenizer_than_ours_is_told_at_once(tmp_path: Path) -> None:
    """Scores of other tokens would look like scores."""
    folder = tokenizer_folder(tmp_path / "other", letters="äé서")
    async with served(made(tmp_path / "served")) as url:
        with pytest.raises(CompressorUnavailable, match="its tokenizer"):
            await opened(url, folder)


async def test_one_that_is_not_there_may_come_later(tmp_path: Path) -> None:
    """So it is no fault of the settings."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(CompressorGone) as told:
            await opened(f"http://127.0.0.1:{taken.getsockname()[1]}", tokenizer_folder(tmp_path))
    assert told.value.cause == "unreachable"


# A proxy before it.


@asynccontextmanager
async def proxied(
    upstream: ScriptedUpstream, url: str, folder: Path, **rules: Any
) -> AsyncIterator[tuple[WorkerPool, Running, aiohttp.ClientSession]]:
    """One whose compressor is ready."""
    compression = Compression(
        mode="on",
        compressor="llmlingua2",
        model=str(folder),
        url=url,
        protocol="vllm",
        api_key="k3y",
        min_tokens=100,
        **{"deadline_s": 10.0, **rules},
    )
    async with (
        proxy_before([upstream.url], settings=replace(BASE, compression=compression)) as proxy,
        aiohttp.ClientSession(proxy.url) as http,
    ):
        assert proxy.proxy.compression is not None
        pool = proxy.proxy.compression.pool
        await until(lambda: pool.up > 0, tries=3000)
        yield pool, proxy, http


async def ask(http: aiohttp.ClientSession, number: int) -> str:
    parts = [{"type": "text", "text": text} for text in (prose(number, 30), "Why?")]
    body = {"model": "m", "messages": [{"role": "user", "content": parts}]}
    async with http.post("/v1/chat/completions", json=body) as answer:
        assert answer.status == 200
        return answer.headers.get(HEADER, "")


def document(upstream: ScriptedUpstream) -> str:
    text = json.loads(upstream.received[-1].body)["messages"][0]["content"][0]["text"]
    assert isinstance(text, str)
    return text


def _fewer_tokens(answer: dict[str, Any]) -> None:
    answer["usage"]["prompt_tokens"] -= 1


def _other_labels(answer: dict[str, Any]) -> None:
    twice = base64.b64decode(answer["data"][0]["data"]) * 2
    answer["data"][0]["data"] = base64.b64encode(twice).decode()


def _fewer_rows(answer: dict[str, Any]) -> None:
    answer["data"].pop()


def _other_model(answer: dict[str, Any]) -> None:
    answer["model"] = "another"


@pytest.mark.parametrize(
    ("fault", "failed", "kind"),
    [
        (answering(400, prose(1, 2)), "text", "TextRefused"),
        (answering(413), "text", "TextRefused"),
        (answering(429), "process", "status_429"),
        (answering(500, prose(1, 2)), "process", "status_500"),
        (answering(503), "process", "status_503"),
        (answering(401), "process", "status_401"),
        (closing, "process", "unreachable"),
        (changed(_fewer_tokens), "process", "wrong_number_of_tokens"),
        (changed(_other_labels), "process", "wrong_number_of_labels"),
        (changed(_fewer_rows), "process", "wrong_number_of_rows"),
        (changed(_other_model), "process", "another"),
    ],
)
async def test_whatever_fails_there_the_original_goes_out_and_its_kind_is_counted(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    fault: Fault,
    failed: str,
    kind: str,
) -> None:
    """The same request is compressed when the fault is over; no log line quotes the text."""
    server = made(tmp_path)
    async with (
        scripted(ANSWER) as upstream,
        served(server) as url,
        proxied(upstream, url, tmp_path) as (pool, proxy, http),
    ):
        server.fault = fault
        told = await ask(http, 1)
        assert "form=original" in told
        assert "reason=failed" in told
        assert document(upstream) == prose(1, 30)
        await until(lambda: pool.faults.counts[failed, kind] > 0, tries=1000)
        line = f'prefold_compression_faults_total{{kind="{kind}",of="{failed}"}}'
        assert line in proxy.proxy.metrics.exposition().decode()

        server.fault = None
        await until(lambda: pool.up > 0, tries=3000)
        assert "form=compressed; compressor=llmlingua2" in await ask(http, 2)
        assert len(document(upstream)) < 0.7 * len(prose(2, 30))
    assert prose(1, 2)[:20] not in caplog.text


async def test_scores_that_are_no_numbers_are_one_texts_fault(tmp_path: Path) -> None:
    """The others of its batch are compressed."""
    server = made(tmp_path)

    def overflowing(rows: Sequence[Sequence[int]]) -> list[npt.NDArray[np.float32]]:
        found = logits_by_place(rows)
        for row, values in zip(rows, found, strict=True):
            if len(set(row)) < 6:  # the one about zzz
                values[1] = np.nan
        return found

    server.logits = overflowing
    odd = "zzz zz z " * 60
    async with (
        scripted(ANSWER) as upstream,
        served(server) as url,
        proxied(upstream, url, tmp_path) as (pool, _, http),
    ):
        parts = [{"type": "text", "text": text} for text in (odd, prose(2, 30), "Why?")]
        body = {"model": "m", "messages": [{"role": "user", "content": parts}]}
        async with http.post("/v1/chat/completions", json=body) as answer:
            assert "form=compressed; " in answer.headers[HEADER]
            assert "reason=failed" in answer.headers[HEADER]
        sent = json.loads(upstream.received[-1].body)["messages"][0]["content"]
        assert sent[0] == parts[0]
        assert len(sent[1]["text"]) < 0.7 * len(prose(2, 30))
        assert pool.faults.counts == {("text", "CompressorFault"): 1}


async def test_a_slow_one_is_waited_for_until_the_deadline(tmp_path: Path) -> None:
    """Then the original goes out, and after `hang_s` the question is given up."""
    server = made(tmp_path)
    async with (
        scripted(ANSWER) as upstream,
        served(server) as url,
        proxied(upstream, url, tmp_path, deadline_s=0.3, hang_s=1.0) as (pool, _, http),
    ):
        server.fault = silent
        told = await ask(http, 1)
        assert "form=original" in told
        assert "reason=late" in told
        await until(lambda: pool.faults.counts["process", "hung"] > 0, tries=1000)


async def test_it_comes_up_when_the_server_does(tmp_path: Path) -> None:
    """A model is loaded for minutes: until then prompts go out as they came."""
    server = made(tmp_path)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    rules = Compression(
        mode="on", compressor="llmlingua2", model=str(tmp_path), protocol="vllm", api_key="k3y"
    )
    rules = replace(rules, url=f"http://127.0.0.1:{port}", min_tokens=100, deadline_s=10.0)
    async with (
        scripted(ANSWER) as upstream,
        proxy_before([upstream.url], settings=replace(BASE, compression=rules)) as proxy,
        aiohttp.ClientSession(proxy.url) as http,
    ):
        assert proxy.proxy.compression is not None
        pool = proxy.proxy.compression.pool
        await until(lambda: pool.faults.counts["process", "unreachable"] > 0, tries=3000)
        assert await ask(http, 1) == ""
        async with served(server, port):
            await until(lambda: pool.up > 0, tries=3000)
            assert "form=compressed" in await ask(http, 1)


async def test_a_compress_server_tells_how_texts_failed_behind_it(tmp_path: Path) -> None:
    """The kind comes through to the proxy, and nothing else of it."""
    server = made(tmp_path)
    behind = Compression(
        compressor="llmlingua2", model=str(tmp_path), protocol="vllm", api_key="k3y"
    )
    async with (
        scripted(ANSWER) as upstream,
        served(server) as vllm,
        serving(replace(behind, url=vllm), "127.0.0.1", 0) as url,
    ):
        rules = Compression(mode="on", url=url, api_key="k3y", min_tokens=100, deadline_s=10.0)
        async with (
            proxy_before([upstream.url], settings=replace(BASE, compression=rules)) as proxy,
            aiohttp.ClientSession(proxy.url) as http,
        ):
            assert proxy.proxy.compression is not None
            pool = proxy.proxy.compression.pool
            await until(lambda: pool.up > 0, tries=3000)
            assert "form=compressed; compressor=llmlingua2" in await ask(http, 1)
            server.fault = answering(400, prose(2, 2))
            assert "form=original" in await ask(http, 2)
            assert document(upstream) == prose(2, 30)
            assert pool.faults.counts["text", "TextRefused"] == 1
