"""The admin port on a real socket: who may ask, what is shown, and backends that come and go."""

import dataclasses
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from urllib.parse import quote

import aiohttp
import pytest

from prefold.proxy.errors import SettingsError
from prefold.proxy.serve import running
from prefold.proxy.settings import Backend, Server, Settings
from tests.support.proxy import BASE
from tests.support.upstream import scripted

Json = dict[str, object]
NOWHERE = "http://127.0.0.1:9"
BEARER = {"Authorization": "Bearer key-of-the-admin"}


class Admin:
    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session
        self.next: Settings | None = None

    def load(self) -> Settings:
        if self.next is None:
            raise SettingsError("server.port: expected a number")
        return self.next

    async def ask(
        self,
        method: str,
        path: str,
        json: object = None,
        *,
        data: bytes | None = None,
        headers: dict[str, str] | None = None,
    ) -> tuple[int, Json]:
        async with self._session.request(
            method, path, json=json, data=data, headers=headers
        ) as answer:
            assert answer.content_type == "application/json"
            return answer.status, await answer.json()

    async def names(self) -> list[object]:
        status, body = await self.ask("GET", "/backends")
        assert status == 200
        assert isinstance(body["backends"], list)
        return [backend["name"] for backend in body["backends"]]


@asynccontextmanager
async def admin_of(*backends: Backend, admin_key: str = "") -> AsyncIterator[Admin]:
    server = dataclasses.replace(BASE.server, admin_key=admin_key)
    settings = dataclasses.replace(BASE, server=server, backends=backends)
    reads: list[Callable[[], Settings]] = []
    async with (
        running(settings, reload=lambda: reads[0]()) as server_running,
        aiohttp.ClientSession(server_running.admin_url) as session,
    ):
        admin = Admin(session)
        admin.next = settings
        reads.append(admin.load)
        yield admin


def one_backend() -> AbstractAsyncContextManager[Admin]:
    return admin_of(Backend(name="a", url=NOWHERE, api_key="secret-of-a"))


PATHS = [
    ("GET", "/metrics"),
    ("GET", "/report"),
    ("GET", "/backends"),
    ("POST", "/backends"),
    ("DELETE", "/backends/a"),
    ("POST", "/reload"),
    ("GET", "/nothing"),
]


@pytest.mark.parametrize(("method", "path"), PATHS)
async def test_with_an_admin_key_every_path_needs_it(method: str, path: str) -> None:
    """Also those that there are not."""
    async with admin_of(Backend(name="a", url=NOWHERE), admin_key="key-of-the-admin") as admin:
        for headers in (
            {},
            {"Authorization": "Bearer wrong"},
            {"Authorization": "Bearer key-of-the-admin-and-more"},
            {"Authorization": "Basic key-of-the-admin"},
            {"Authorization": "key-of-the-admin"},
            {"X-Api-Key": "key-of-the-admin"},
        ):
            status, body = await admin.ask(method, path, headers=headers)
            assert status == 401
            assert "key-of" not in str(body)
        status, body = await admin.ask("GET", "/backends", headers=BEARER)

        assert status == 200


@pytest.mark.parametrize(("method", "path"), PATHS)
async def test_the_pages_of_a_browser_are_not_answered(method: str, path: str) -> None:
    """Whatever page it is, and with the key as without."""
    for key in ("", "key-of-the-admin"):
        async with admin_of(Backend(name="a", url=NOWHERE), admin_key=key) as admin:
            for origin in ("https://evil.example", "http://127.0.0.1:8001", "null"):
                status, _ = await admin.ask(method, path, headers={"Origin": origin, **BEARER})
                assert status == 403
            assert (await admin.ask("GET", "/backends", headers=BEARER))[0] == 200


async def test_backends_are_shown_with_their_state_and_without_credentials() -> None:
    """What an operator wants to know at a glance."""
    async with scripted([]) as upstream:
        backends = (
            Backend(name="up", url=upstream.url, api_key="secret-of-a", max_in_flight=7),
            Backend(name="down", url=NOWHERE),
        )
        async with admin_of(*backends) as admin:
            for _ in range(200):
                _, body = await admin.ask("GET", "/backends")
                if "'state': 'up'" in str(body):
                    break
            assert isinstance(body["backends"], list)
            up, down = body["backends"]

    assert up == {
        "name": "up",
        "url": upstream.url,
        "engine": "openai",
        "state": "up",
        "mode": "approximate",
        "mode_reason": up["mode_reason"],
        "in_flight": 0,
        "max_in_flight": 7,
        "queued_tokens": 0,
        "models": ["m"],
        "engine_load": dict.fromkeys(("running", "waiting", "kv_usage", "preemptions")),
    }
    assert up["mode_reason"]
    assert (down["name"], down["state"], down["models"]) == ("down", "down", [])
    assert down["engine_load"] is None
    assert "secret" not in str(body)


async def test_a_backend_is_added_and_removed() -> None:
    """Its name may be left to prefold; one that is there twice is refused."""
    async with one_backend() as admin:
        status, body = await admin.ask("POST", "/backends", {"url": "http://127.0.0.1:19"})
        assert (status, body["name"]) == (201, "127.0.0.1:19")
        assert await admin.names() == ["a", "127.0.0.1:19"]
        status, _ = await admin.ask("POST", "/backends", {"url": NOWHERE, "name": "a"})
        assert status == 409
        status, body = await admin.ask("DELETE", "/backends/a")
        assert (status, body) == (200, {"removed": ["a"]})
        status, _ = await admin.ask("DELETE", "/backends/a")

        assert status == 404
        assert await admin.names() == ["127.0.0.1:19"]


@pytest.mark.parametrize("name", ["with/slash", "50%", "ü ?#"])
async def test_a_name_may_be_anything_printable(name: str) -> None:
    """In the path it is percent-encoded."""
    async with one_backend() as admin:
        status, _ = await admin.ask("POST", "/backends", {"url": NOWHERE, "name": name})
        assert status == 201
        status, body = await admin.ask("DELETE", "/backends/" + quote(name, safe=""))

        assert (status, body) == (200, {"removed": [name]})


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{}",
        b"\xff",
        b"[" * 5000,
        b'{"url": 1}',
        b'{"url": "file:///etc/passwd"}',
        b'{"url": "http://x", "max_in_flight": 0}',
        b'{"url": "http://x", "engine": "unknown"}',
        b'{"url": "http://x", "api_key_file": "/etc/passwd"}',
        b'{"url": "https://x", "ca_file": "/etc/passwd"}',
        b'{"url": "http://x", "api_key": "env:HOME"}',
    ],
)
async def test_what_is_no_backend_is_refused(data: bytes) -> None:
    """Also what would make prefold read a file or its environment for whoever asks."""
    async with one_backend() as admin:
        status, body = await admin.ask("POST", "/backends", data=data)

        assert status == 400
        assert body["error"]
        assert await admin.names() == ["a"]


async def test_a_body_that_is_too_large_is_refused() -> None:
    """A backend takes a few lines."""
    async with one_backend() as admin:
        status, _ = await admin.ask("POST", "/backends", data=b" " * 100_000)

        assert status == 413


async def test_the_settings_are_read_again() -> None:
    """The answer says what was done, and what a restart would do."""
    async with one_backend() as admin:
        assert admin.next is not None
        admin.next = dataclasses.replace(
            admin.next,
            backends=(Backend(name="b", url=NOWHERE), *admin.next.backends),
            server=Server(port=1, admin_port=0),
        )
        status, body = await admin.ask("POST", "/reload")

        assert status == 200
        assert (body["added"], body["removed"], body["kept"]) == (["b"], [], ["a"])
        assert "server.port" in str(body["restart_needed_for"])
        assert await admin.names() == ["a", "b"]


async def test_settings_that_cannot_be_read_change_nothing() -> None:
    """And the answer says what is wrong with them."""
    async with one_backend() as admin:
        admin.next = None
        status, body = await admin.ask("POST", "/reload")

        assert status == 400
        assert "server.port: expected a number" in str(body)
        assert await admin.names() == ["a"]


async def test_unknown_paths_and_methods_are_error_objects() -> None:
    """As on the data port."""
    async with one_backend() as admin:
        assert (await admin.ask("GET", "/nothing"))[0] == 404
        assert (await admin.ask("POST", "/report"))[0] == 405
