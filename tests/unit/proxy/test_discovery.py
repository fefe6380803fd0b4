"""Backends that are discovered: by the addresses of a name, and by a file."""

import asyncio
import json
import logging
import os
import socket
from collections.abc import Collection, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefold.proxy.discovery import dns
from prefold.proxy.discovery.dns import DnsSource, Family
from prefold.proxy.discovery.file import FileSource, listed
from prefold.proxy.discovery.following import Following, following, sources_of
from prefold.proxy.discovery.sources import DiscoveryError, beside
from prefold.proxy.errors import SettingsError
from prefold.proxy.settings import Backend, Discovery

# By DNS.


class Names:
    """A resolver that answers as it is told to, once each; the last answer again and again."""

    def __init__(self, *answers: Collection[str] | Exception) -> None:
        self._answers = list(answers)
        self.asked: list[tuple[str, int]] = []

    async def __call__(self, host: str, family: int) -> Collection[str]:
        self.asked.append((host, family))
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


def by_dns(names: Names, family: Family = "any") -> DnsSource:
    template = Backend(url="http://vllm:8000", engine="vllm", api_key="k", max_in_flight=7)
    return DnsSource(host="vllm", port=8000, family=family, template=template, resolve=names)


def named(backends: Sequence[Backend]) -> list[str]:
    return [backend.name for backend in backends]


async def test_each_address_is_a_backend() -> None:
    """Named after it, whatever the order of the answer; everything else is the template's."""
    found = await by_dns(Names(["10.0.0.10", "fd00::1", "10.0.0.9", "fe80::1%eth0"])).look()

    assert named(found) == ["10.0.0.9:8000", "10.0.0.10:8000", "[fd00::1]:8000"]
    assert found[2].url == "http://[fd00::1]:8000"
    assert {(one.engine, one.api_key, one.max_in_flight) for one in found} == {("vllm", "k", 7)}


@pytest.mark.parametrize(
    ("family", "asked"),
    [("any", socket.AF_UNSPEC), ("ipv4", socket.AF_INET), ("ipv6", socket.AF_INET6)],
)
async def test_only_addresses_of_the_family_are_asked_for(family: Family, asked: int) -> None:
    """A pod with one of each would be two backends."""
    names = Names(["10.0.0.1"])
    await by_dns(names, family).look()

    assert names.asked == [("vllm", asked)]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), "not known"),
        (OSError(), "OSError"),
        (UnicodeError("label empty or too long"), "not a name"),
        ([], "no addresses"),
        (["fe80::1%eth0"], "no addresses"),
    ],
)
async def test_no_answer_says_nothing_of_the_backends(
    answer: Collection[str] | Exception, reason: str
) -> None:
    """An empty answer is none either."""
    with pytest.raises(DiscoveryError, match=f"vllm: .*{reason}"):
        await by_dns(Names(answer)).look()


async def test_a_resolver_that_never_answers_is_not_waited_for() -> None:
    """At most a few seconds; here none."""

    async def silent(host: str, family: int) -> Collection[str]:
        await asyncio.Event().wait()
        return []

    source = DnsSource(
        host="vllm",
        port=1,
        family="any",
        template=Backend(url="http://x:1"),
        resolve=silent,
        timeout_s=0.0,
    )
    with pytest.raises(DiscoveryError, match="no answer"):
        await source.look()


async def test_the_machines_own_resolver() -> None:
    """Addresses as texts, those of the family that was asked for."""
    assert set(await dns.resolve("localhost", socket.AF_INET)) == {"127.0.0.1"}


# By a file.

ONE = {"url": "http://10.0.0.1:8000", "name": "one"}
TWO = {"url": "http://10.0.0.2:8000/"}


def rewritten(path: Path, text: str | bytes) -> None:
    """As careful writers do: another file takes its place."""
    fresh = path.with_name("fresh")
    fresh.write_bytes(text.encode() if isinstance(text, str) else text)
    fresh.replace(path)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.json", json.dumps([ONE, TWO])),
        ("a", json.dumps({"backends": [ONE, TWO]})),
        (
            "a.toml",
            '[[backends]]\nurl = "http://10.0.0.1:8000"\nname = "one"\n'
            '[[backends]]\nurl = "http://10.0.0.2:8000/"\n',
        ),
    ],
)
async def test_a_file_lists_what_the_settings_would(tmp_path: Path, name: str, text: str) -> None:
    """As JSON, or as TOML where its name says so; with the same defaults."""
    path = tmp_path / name
    path.write_text(text)
    found = await FileSource(path).look()

    assert found == (
        Backend(url="http://10.0.0.1:8000", name="one"),
        Backend(url="http://10.0.0.2:8000", name="10.0.0.2:8000"),
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not JSON: line 1"),
        ('{"backends": 7}', "expected a list"),
        ('{"backends": [], "more": 1}', "expected a list"),
        ('[{"url": "http://x:1", "nmae": "a"}]', r"backends\[0\].nmae; did you mean"),
        ('[{"url": 7}]', r"backends\[0\]"),
        ("[7]", r"backends\[0\]"),
        ('[{"url": "http://x:1/v1"}]', "only scheme"),
        ('[{"url": "http://x:1"}, {"url": "http://x:1"}]', "used twice"),
        ('[{"url": "http://x:1", "api_key": "env:NO_SUCH_NAME"}]', "not set"),
        ("[" * 100_000, "nested too deep"),
        (b"\xff", "not UTF-8"),
    ],
)
async def test_a_file_that_is_wrong_says_why(
    tmp_path: Path, text: str | bytes, reason: str
) -> None:
    """And is looked at again when it changes, not before."""
    path = tmp_path / "a.json"
    rewritten(path, text)
    source = FileSource(path)
    for _ in range(2):
        with pytest.raises(DiscoveryError, match=reason):
            await source.look()
    rewritten(path, json.dumps([ONE]))

    assert named(await source.look()) == ["one"]


async def test_a_file_is_read_when_it_is_another_one(tmp_path: Path) -> None:
    """By its inode, time or size; one that is gone is an error, an empty list is none."""
    path = tmp_path / "a.json"
    rewritten(path, json.dumps([ONE]))
    source = FileSource(path)
    before = await source.look()
    assert await source.look() is before
    os.utime(path, ns=(1, 1))
    assert await source.look() is not before
    path.unlink()
    with pytest.raises(DiscoveryError, match="cannot read"):
        await source.look()
    rewritten(path, "[]")

    assert await source.look() == ()


def test_a_toml_file_that_is_none_says_so() -> None:
    """Without any of its text: a key may stand there."""
    with pytest.raises(ValueError, match=r"^not TOML$"):
        listed(b'api_key = "secret', toml=True)


# Beside what is named.

BACKENDS = st.lists(
    st.builds(
        lambda name, url: Backend(name=name, url=f"http://{url}:1"),
        st.sampled_from("abcd"),
        st.sampled_from("wxyz"),
    ),
    unique_by=lambda backend: backend.name,
    max_size=4,
)


@given(BACKENDS, BACKENDS)
def test_no_server_is_there_twice(named_ones: list[Backend], found: list[Backend]) -> None:
    """What is named stays as it is; a name or a URL of it is taken."""
    made = beside(named_ones, found)
    taken = {one.name for one in named_ones}, {one.url for one in named_ones}

    assert list(made[: len(named_ones)]) == named_ones
    assert list(made[len(named_ones) :]) == [
        one for one in found if one.name not in taken[0] and one.url not in taken[1]
    ]


# Following.


class Told:
    """Source by `answers`, and who is told of what it finds."""

    name = "file"

    def __init__(self, *answers: Sequence[str] | DiscoveryError) -> None:
        self._answers = list(answers)
        self.answer: tuple[Backend, ...] | None = None
        """In place of `answers`."""
        self.refuse = ""
        self.lists: list[list[str]] = []

    async def look(self) -> tuple[Backend, ...]:
        if self.answer is not None:
            return self.answer
        answer = self._answers.pop(0)
        if isinstance(answer, DiscoveryError):
            raise answer
        return tuple(Backend(url=f"http://{name}:1", name=name) for name in answer)

    def found(self, backends: Sequence[Backend]) -> None:
        if self.refuse:
            raise SettingsError(self.refuse)
        self.lists.append(named(backends))


async def test_the_fleet_is_told_of_changes_only() -> None:
    """And keeps what it has while a source does not answer."""
    told = Told("ab", "ab", DiscoveryError("no answer"), "ab", "abc")
    follows = Following([told], told.found)
    for _ in range(5):
        await follows.look()

    assert told.lists == [["a", "b"], ["a", "b", "c"]]


async def test_what_is_not_named_any_more_goes_when_two_answers_lack_it() -> None:
    """At once only if its name or its server is there as another one. What is no answer does not
    count."""
    wrong = DiscoveryError("no answer")
    told = Told("ab", "b", wrong, wrong, "ab", "b", "cd", "cd", "", "")
    follows = Following([told], told.found)
    seen = []
    for _ in range(10):
        await follows.look()
        seen.append("".join(told.lists[-1]))

    assert [sorted(names) for names in seen] == [
        *(["a", "b"],) * 6,
        ["b", "c", "d"],
        *(["c", "d"],) * 2,
        [],
    ]
    other = Told()
    other.answer = (Backend(url="http://a:1", name="a"),)
    follows = Following([other], other.found)
    await follows.look()
    other.answer = (Backend(url="http://a:1", name="renamed"),)
    await follows.look()
    assert other.lists[-1] == ["renamed"]


async def test_what_is_wrong_is_said_once_and_so_is_its_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Each further reason is another line."""
    wrong, other = DiscoveryError("no answer"), DiscoveryError("no list")
    told = Told("a", wrong, wrong, other, other, "a", "a")
    follows = Following([told], told.found)
    with caplog.at_level(logging.INFO):
        for _ in range(7):
            await follows.look()

    lines = [record.getMessage() for record in caplog.records]
    assert lines == [
        "discovery: no answer; the backends stay as they are",
        "discovery: no list; the backends stay as they are",
        "discovery: the file is well again",
    ]
    assert follows.problems == ()


async def test_a_list_that_is_not_taken_over_is_tried_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """What is wrong with it may be elsewhere, and be gone."""
    told = Told("a", "a", "a")
    follows = Following([told], told.found)
    told.refuse = "taken"
    await follows.look()
    await follows.look()
    assert follows.problems == ("not taken over: taken",)
    told.refuse = ""
    await follows.look()

    assert told.lists == [["a"]]
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


async def test_several_sources_are_one_list() -> None:
    """Each server once, those of the first one first; one that fails does not keep the others."""
    names, told = Names(["10.0.0.1"], OSError(), OSError()), Told(["a"], ["a", "b"])
    follows = Following([by_dns(names), told], told.found)
    for _ in range(2):
        await follows.look()

    assert told.lists == [["10.0.0.1:8000", "a"], ["10.0.0.1:8000", "a", "b"]]


async def test_the_settings_name_the_sources(tmp_path: Path) -> None:
    """DNS with the family and the port given, then the file; without either there is nothing."""
    names = Names(["10.0.0.1"])
    path = tmp_path / "a.json"
    rewritten(path, json.dumps([ONE]))
    wanted = Discovery(dns="http://vllm:8000", dns_family="ipv4", file=str(path), api_key="k")
    sources = sources_of(wanted, names)

    assert [source.name for source in sources] == ["dns", "file"]
    [found] = await sources[0].look()
    assert (found.url, found.api_key) == ("http://10.0.0.1:8000", "k")
    assert sources_of(Discovery()) == []
    async with following(Discovery(), lambda found: pytest.fail("nothing was asked for")):
        pass
