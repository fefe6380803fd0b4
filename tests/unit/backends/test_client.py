"""The client against raw sockets: what a server may do to a connection, and what becomes of it.

Every wait is bounded by a time-out of the client that is far longer than the test should take, so
that a hang fails as a time-out and not as a pass.
"""

import asyncio
import gzip
import ssl
import tracemalloc
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
import trustme

from prefold.backends.client import Client
from prefold.backends.errors import (
    BackendError,
    ConnectFailed,
    ConnectRefused,
    UpstreamDisconnected,
    UpstreamTimeout,
)
from prefold.backends.http1 import Limits, Upstream

Reply = Callable[["Server", asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
MAX = 2**24


@dataclass
class Server:
    """Reads whole requests and lets `reply` write; counts connections and requests."""

    reply: Reply
    url: str = ""
    connections: int = 0
    requests: list[bytes] = field(default_factory=list)
    """The heads."""
    bodies: list[bytes] = field(default_factory=list)
    reads_bodies: bool = True
    tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.tasks.add(asyncio.create_task(self.handle(reader, writer)))

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                self.requests.append(head)
                if self.reads_bodies:
                    self.bodies.append(await _body(head, reader))
                await self.reply(self, reader, writer)
                if writer.is_closing():
                    await writer.wait_closed()
                    return
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            return  # the client left, or the test is over
        finally:
            writer.transport.abort()


async def _body(head: bytes, reader: asyncio.StreamReader) -> bytes:
    lines = head.lower().split(b"\r\n")
    if b"transfer-encoding: chunked" in lines:
        body = b""
        while size := int(await reader.readuntil(b"\r\n"), 16):
            body += await reader.readexactly(size)
            await reader.readuntil(b"\r\n")
        await reader.readuntil(b"\r\n")
        return body
    lengths = [line[15:] for line in lines if line.startswith(b"content-length:")]
    return await reader.readexactly(int(lengths[0])) if lengths else b""


@asynccontextmanager
async def serving(
    reply: Reply, *, reads_bodies: bool = True, tls: ssl.SSLContext | None = None
) -> AsyncIterator[Server]:
    server = Server(reply, reads_bodies=reads_bodies)
    listener = await asyncio.start_server(server.accept, "127.0.0.1", 0, ssl=tls)
    port = listener.sockets[0].getsockname()[1]
    server.url = f"http://127.0.0.1:{port}" if tls is None else f"https://localhost:{port}"
    try:
        yield server
    finally:
        listener.close()
        for task in server.tasks:
            task.cancel()
        await asyncio.gather(*server.tasks)


def saying(*pieces: bytes, then_close: bool = False) -> Reply:
    """Each piece a write of its own."""

    async def reply(
        server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0.002)
        if then_close:
            writer.close()

    return reply


def in_turn(*replies: Reply) -> Reply:
    """One for each request, the last one again and again."""

    async def reply(
        server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        number = min(len(server.requests), len(replies)) - 1
        await replies[number](server, reader, writer)

    return reply


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with Client(Limits(connect_s=5.0, first_byte_s=20.0, idle_s=20.0)) as client:
        yield client


async def post(client: Client, server: Server, method: str = "POST") -> tuple[int, bytes]:
    upstream = await client.send(method, server.url + "/x", headers={}, body=b"{}")
    try:
        return upstream.status, await upstream.read(MAX)
    finally:
        upstream.close()


async def pieces_until_error(upstream: Upstream) -> tuple[bytes, BackendError | None]:
    got = b""
    try:
        async for piece in upstream.chunks():
            got += piece
    except BackendError as error:
        return got, error
    finally:
        upstream.close()
    return got, None


OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
HELLO = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


async def test_a_connection_is_used_again_after_a_whole_answer(client: Client) -> None:
    """Also for other methods, and for an answer without a body."""
    empty = saying(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
    async with serving(in_turn(saying(OK), saying(OK), empty)) as server:
        assert await post(client, server) == (200, b"{}")
        assert await post(client, server, "DELETE") == (200, b"{}")
        assert await post(client, server, "HEAD") == (200, b"")
        assert await post(client, server, "GET") == (200, b"")

        assert server.connections == 1
        assert [request.split()[0] for request in server.requests] == [
            b"POST",
            b"DELETE",
            b"HEAD",
            b"GET",
        ]


@pytest.mark.parametrize(
    "broken", [b"zz\r\nhello\r\n", b"-5\r\nhello\r\n", b"5\r\nhelloXX0\r\n\r\n"]
)
async def test_a_chunk_that_cannot_be_read_fails_at_once(client: Client, broken: bytes) -> None:
    """Not at the idle limit: the connection is closed, and whoever reads the body learns it."""
    async with serving(saying(CHUNKED, b"3\r\nabc\r\n", broken)) as server:
        upstream = await client.send("POST", server.url, headers={}, body=b"{}")
        async with asyncio.timeout(5):
            got, error = await pieces_until_error(upstream)

        assert got.startswith(b"abc")
        assert isinstance(error, UpstreamDisconnected)


async def test_a_chunk_that_cannot_be_read_fails_at_once_on_a_used_connection(
    client: Client,
) -> None:
    """The body that ends with the connection is the last one that it carried."""
    broken = saying(CHUNKED, b"3\r\nabc\r\n", b"zz\r\n")
    async with serving(in_turn(saying(OK), saying(OK), broken)) as server:
        for _ in range(2):
            await post(client, server)
        async with asyncio.timeout(5):
            with pytest.raises(UpstreamDisconnected):
                await post(client, server)

        assert server.connections == 1


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(
            b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n"
            b"5\r\nhello\r\n0\r\n\r\n",
            id="both lengths",
        ),
        pytest.param(
            b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 2\r\n\r\nhello",
            id="two lengths",
        ),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n{}", id="negative length"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 9" + b"9" * 30 + b"\r\n\r\n", id="huge"),
        pytest.param(b"nonsense\r\n\r\n", id="not HTTP"),
        pytest.param(b"HTTP/1.1 99 X\r\nContent-Length: 0\r\n\r\n", id="no status"),
        pytest.param(
            b"HTTP/1.1 101 Switching\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n",
            id="upgrade",
        ),
        pytest.param(
            b"HTTP/1.1 200 OK\r\nX: " + b"a" * 70_000 + b"\r\nContent-Length: 2\r\n\r\n{}",
            id="a header of 70,000 bytes",
        ),
        pytest.param(CHUNKED + b"3\r\nabc\r\nzz\r\n", id="broken chunk at once"),
    ],
)
async def test_an_answer_that_cannot_be_trusted_is_an_error(client: Client, answer: bytes) -> None:
    """And its connection is not used again."""
    async with serving(in_turn(saying(answer), saying(OK))) as server:
        async with asyncio.timeout(5):
            with pytest.raises(UpstreamDisconnected):
                await post(client, server)

        assert await post(client, server) == (200, b"{}")
        assert server.connections == 2


EVIL = OK.replace(b"{}", b"ev")


@pytest.mark.parametrize(
    ("method", "pieces"),
    [
        pytest.param(
            "POST", [b"HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n", b"hello"], id="204"
        ),
        pytest.param(
            "POST", [b"HTTP/1.1 304 Same\r\nContent-Length: 5\r\n\r\n", b"hello"], id="304"
        ),
        pytest.param("HEAD", [OK[:-2], b"{}"], id="HEAD"),
        pytest.param("POST", [OK + b"junk"], id="junk in the same write"),
        pytest.param("POST", [OK, b"junk"], id="junk while idle"),
        pytest.param("POST", [OK + EVIL], id="a second answer in the same write"),
        pytest.param("POST", [OK, EVIL], id="a second answer while idle"),
        pytest.param("POST", [OK, EVIL, EVIL], id="two more"),
    ],
)
async def test_bytes_left_over_never_reach_the_next_request(
    client: Client, method: str, pieces: list[bytes]
) -> None:
    """Not as an answer, not as a part of one: that connection is closed."""
    heard = asyncio.Event()

    async def answer(
        server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        await saying(*pieces)(server, reader, writer)
        heard.set()

    async with serving(in_turn(answer, saying(OK))) as server:
        await post(client, server, method)
        await heard.wait()
        await asyncio.sleep(0.01)  # what is on its way arrives: on loopback, at once

        assert await post(client, server) == (200, b"{}")
        assert server.connections == 2


@pytest.mark.parametrize(
    ("pieces", "closes", "connections"),
    [
        pytest.param([b"HTTP/1.0 200 OK\r\n\r\nhello"], True, 2, id="1.0, until the end"),
        pytest.param(
            [b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 5\r\n\r\nhello"],
            False,
            1,
            id="1.0, kept alive",
        ),
        pytest.param([b"HTTP/1.1 200 OK\r\n\r\nhel", b"lo"], True, 2, id="no length"),
        pytest.param(
            [
                b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n",
                b"HTTP/1.1 100 Continue\r\n\r\n",
                HELLO,
            ],
            False,
            1,
            id="1xx before it",
        ),
        pytest.param(
            [CHUNKED + b"5;a=b\r\nhello\r\n0\r\nX-Trailer: 1\r\n\r\n"], False, 1, id="trailer"
        ),
        pytest.param(
            [b"HTTP/1.1 200 OK\r\nX: " + b"a" * 60_000 + b"\r\nContent-Length: 5\r\n\r\nhello"],
            False,
            1,
            id="a header of 60,000 bytes",
        ),
    ],
)
async def test_unusual_answers_are_read(
    client: Client, pieces: list[bytes], closes: bool, connections: int
) -> None:
    """Whatever HTTP/1 allows."""
    async with serving(saying(*pieces, then_close=closes)) as server:
        assert await post(client, server) == (200, b"hello")
        assert await post(client, server) == (200, b"hello")
        assert server.connections == connections


@pytest.mark.parametrize(
    "cut",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello",
        CHUNKED + b"5\r\nhello\r\n",
        CHUNKED + b"9\r\nhello",
    ],
)
async def test_a_body_that_is_cut_gives_what_came_and_then_an_error(
    client: Client, cut: bytes
) -> None:
    """Silence is no end of a body that has a length."""
    head, _, body = cut.partition(b"\r\n\r\n")
    async with serving(saying(head + b"\r\n\r\n", body, then_close=True)) as server:
        upstream = await client.send("POST", server.url, headers={}, body=b"{}")
        got, error = await pieces_until_error(upstream)

        assert got == b"hello"
        assert isinstance(error, UpstreamDisconnected)


async def test_a_whole_body_is_read_however_slowly(client: Client) -> None:
    """The server has sent it all and closed; the reader takes its time."""
    size = 1_000_000
    body = b"".join(b"%x\r\n%s\r\n" % (1000, b"y" * 1000) for _ in range(size // 1000))
    async with serving(saying(CHUNKED + body + b"0\r\n\r\n", then_close=True)) as server:
        upstream = await client.send("POST", server.url, headers={}, body=b"{}")
        read = 0
        async for piece in upstream.chunks():
            read += len(piece)
            await asyncio.sleep(0.005)
        upstream.close()

        assert read == size


async def test_cookies_are_not_kept(client: Client) -> None:
    """They would belong to whoever asked before."""
    cookie = OK.replace(b"\r\n", b"\r\nSet-Cookie: sid=first\r\n", 1)
    async with serving(saying(cookie)) as server:
        await post(client, server)
        await post(client, server)

        assert b"cookie" not in server.requests[1].lower()


async def test_nothing_is_added_to_the_headers_that_are_given(client: Client) -> None:
    """But for the host and the body's framing."""
    async with serving(saying(OK)) as server:
        upstream = await client.send("POST", server.url, headers={"X-A": "1"}, body=b"{}")
        upstream.close()
        lines = server.requests[0].decode().strip().split("\r\n")[1:]

        assert sorted(line.partition(":")[0] for line in lines) == ["Content-Length", "Host", "X-A"]


# Compressed answers.


def compressed(coding: str, body: bytes, *pieces: bytes, extra: str = "") -> list[bytes]:
    head = f"HTTP/1.1 200 OK\r\nContent-Encoding: {coding}\r\n{extra}"
    length = f"Content-Length: {len(body) + sum(map(len, pieces))}\r\n\r\n"
    return [(head + length).encode() + body, *pieces]


def bare_deflate(body: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(body) + packer.flush()


@pytest.mark.parametrize(
    ("coding", "pack"),
    [
        ("gzip", gzip.compress),
        ("GZip", gzip.compress),
        ("x-gzip", gzip.compress),
        ("deflate", zlib.compress),
        ("deflate", bare_deflate),
    ],
)
async def test_a_compressed_answer_is_decoded_and_its_headers_say_so(
    client: Client, coding: str, pack: Callable[[bytes], bytes]
) -> None:
    """Neither a coding nor a length is left; the rest is."""
    packed = pack(b"hello " * 1000)
    async with serving(saying(*compressed(coding, packed, extra="X-Kept: 1\r\n"))) as server:
        upstream = await client.send("POST", server.url, headers={}, body=b"{}")
        assert await upstream.read(MAX) == b"hello " * 1000
        upstream.close()

        assert dict(upstream.headers) == {"X-Kept": "1"}


async def test_a_compressed_stream_is_decoded_as_it_comes(client: Client) -> None:
    """One decoder for the whole body: a flush in between is no end."""
    packer = zlib.compressobj(wbits=zlib.MAX_WBITS | 16)
    flushed = [
        packer.compress(event) + packer.flush(zlib.Z_SYNC_FLUSH)
        for event in (b"data: 1\n\n", b"data: 2\n\n")
    ]
    go = asyncio.Event()

    async def answer(
        server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n" + flushed[0])
        await go.wait()
        writer.write(flushed[1] + packer.flush())
        writer.close()

    async with serving(answer) as server:
        upstream = await client.send("POST", server.url, headers={}, body=b"{}")
        chunks = upstream.chunks()
        assert await anext(chunks) == b"data: 1\n\n"
        go.set()
        assert b"".join([chunk async for chunk in chunks]) == b"data: 2\n\n"
        upstream.close()


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
async def test_an_empty_body_with_a_coding_is_an_empty_body(client: Client, coding: str) -> None:
    """There is nothing to decode."""
    async with serving(saying(*compressed(coding, b""))) as server:
        assert await post(client, server) == (200, b"")


@pytest.mark.parametrize("coding", ["br", "zstd", "compress", "gzip, gzip"])
async def test_other_codings_are_refused(client: Client, coding: str) -> None:
    """We asked for none, and could not read the answer."""
    async with serving(in_turn(saying(*compressed(coding, b"abc")), saying(OK))) as server:
        with pytest.raises(UpstreamDisconnected, match="not asked for"):
            await post(client, server)

        assert await post(client, server) == (200, b"{}")


async def test_a_transfer_coding_is_refused(client: Client) -> None:
    """Its name would be lost with the framing, and the client read noise."""
    zipped = CHUNKED.replace(b"chunked", b"gzip, chunked") + b"3\r\nabc\r\n0\r\n\r\n"
    async with serving(saying(zipped)) as server:
        with pytest.raises(UpstreamDisconnected, match="not asked for"):
            await post(client, server)


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(gzip.compress(b"hello" * 100)[:-9], id="cut"),
        pytest.param(b"\x1f\x8b nonsense", id="broken"),
        pytest.param(b"plain text", id="not compressed"),
        pytest.param(gzip.compress(b"hello") + b"more", id="bytes after it"),
    ],
)
async def test_a_broken_compressed_body_is_an_error(client: Client, body: bytes) -> None:
    """Never a shorter answer."""
    async with serving(saying(*compressed("gzip", body))) as server:
        with pytest.raises(UpstreamDisconnected):
            await post(client, server)


async def test_what_inflates_a_thousandfold_is_never_held_whole(client: Client) -> None:
    """400 KB that become 400 MB: given up early, whoever reads it and however large it may be."""
    packer = zlib.compressobj(9, wbits=zlib.MAX_WBITS | 16)
    bomb = b"".join([packer.compress(bytes(2**20)) for _ in range(400)]) + packer.flush()
    async with serving(saying(*compressed("gzip", bomb))) as server:
        for bound in (1_000_000, 10**9):
            tracemalloc.start()
            upstream = await client.send("POST", server.url, headers={}, body=b"{}")
            with pytest.raises(UpstreamDisconnected):
                await upstream.read(bound)
            upstream.close()
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()

            assert peak < 64 * 2**20


async def test_a_body_may_be_bounded(client: Client) -> None:
    """At the bound it is whole, above it an error."""
    async with serving(saying(HELLO)) as server:
        for bound, fits in ((5, True), (4, False)):
            upstream = await client.send("POST", server.url, headers={}, body=b"{}")
            if fits:
                assert await upstream.read(bound) == b"hello"
            else:
                with pytest.raises(UpstreamDisconnected, match="more than 4 bytes"):
                    await upstream.read(bound)
            upstream.close()


# Kept-alive connections, and when a request is sent again.


async def test_posts_over_connections_that_the_server_closes_do_not_fail(client: Client) -> None:
    """It closes each one 50 ms after its answer, just as the next request is written."""

    async def answer(
        server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        writer.write(OK)
        asyncio.get_running_loop().call_later(0.05, writer.close)

    async with serving(answer) as server:
        statuses = []
        for _ in range(60):
            statuses.append((await post(client, server))[0])
            await asyncio.sleep(0.0495)

        assert statuses == [200] * 60


def dropping(
    server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> Awaitable[None]:
    async def drop() -> None:
        writer.transport.abort()

    return drop()


async def test_a_request_lost_on_a_used_connection_is_sent_once_more(client: Client) -> None:
    """On a fresh one."""
    async with serving(in_turn(saying(OK), dropping, saying(OK))) as server:
        await post(client, server)

        assert await post(client, server) == (200, b"{}")
        assert (server.connections, len(server.requests)) == (2, 3)


async def test_a_request_lost_on_a_fresh_connection_is_not_sent_again(client: Client) -> None:
    """The server may have died of it."""
    async with serving(in_turn(dropping, saying(OK))) as server:
        with pytest.raises(UpstreamDisconnected):
            await post(client, server)

        assert len(server.requests) == 1


async def test_a_request_lost_twice_is_not_sent_a_third_time(client: Client) -> None:
    """Once is what the race with an idle connection's end can cost."""
    async with serving(in_turn(saying(OK), dropping, dropping, saying(OK))) as server:
        await post(client, server)
        with pytest.raises(UpstreamDisconnected):
            await post(client, server)

        assert len(server.requests) == 3


async def test_a_request_is_not_sent_again_after_a_byte_of_the_answer(client: Client) -> None:
    """It was received, and is perhaps at work."""

    async def half(
        server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        writer.write(OK[:-1])
        await writer.drain()
        writer.close()

    async with serving(in_turn(saying(OK), half, saying(OK))) as server:
        await post(client, server)
        with pytest.raises(UpstreamDisconnected):
            await post(client, server)

        assert len(server.requests) == 2


async def test_an_upload_is_sent_as_it_comes_and_never_twice(client: Client) -> None:
    """Its pieces are gone once they were sent."""
    sent = []

    async def pieces() -> AsyncIterator[bytes]:
        for number in range(3):
            sent.append(number)
            yield b"piece %d;" % number

    async with serving(in_turn(saying(OK), saying(OK), dropping, saying(OK))) as server:
        await post(client, server)
        upstream = await client.send("POST", server.url, headers={}, body=pieces())
        assert await upstream.read(MAX) == b"{}"
        upstream.close()
        assert server.bodies[1] == b"piece 0;piece 1;piece 2;"
        with pytest.raises(UpstreamDisconnected):
            await client.send("POST", server.url, headers={}, body=pieces())

        assert sent == [0, 1, 2] * 2
        assert len(server.requests) == 3


class ClientsFault(Exception):
    pass


async def test_an_upload_that_fails_is_not_the_servers_fault(client: Client) -> None:
    """Its own error comes out, and the half request's connection is not used again."""

    async def pieces() -> AsyncIterator[bytes]:
        yield b"one"
        raise ClientsFault

    async with serving(saying(OK)) as server:
        await post(client, server)
        with pytest.raises(ClientsFault):
            await client.send("POST", server.url, headers={}, body=pieces())

        assert await post(client, server) == (200, b"{}")
        assert server.connections == 2


async def test_an_answer_before_the_end_of_an_upload_spoils_the_connection(client: Client) -> None:
    """The rest of the upload would be read as the next request."""
    asked = asyncio.Event()

    async def pieces() -> AsyncIterator[bytes]:
        yield b"one"
        asked.set()
        await asyncio.Event().wait()

    async with serving(saying(OK), reads_bodies=False) as server:
        upstream = await client.send("POST", server.url, headers={}, body=pieces())
        assert await upstream.read(MAX) == b"{}"
        upstream.close()
        assert asked.is_set()
        await post(client, server, "DELETE")

        assert server.connections == 2


# TLS.


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
async def tls_server(authority: trustme.CA) -> AsyncIterator[Server]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    async with serving(saying(OK), tls=context) as server:
        yield server


def trusting(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


async def test_a_certificate_of_the_given_authority_is_trusted(
    client: Client, tls_server: Server, authority: trustme.CA
) -> None:
    """Connections are kept alive under TLS, too."""
    context = trusting(authority)
    for _ in range(2):
        upstream = await client.send("POST", tls_server.url, headers={}, body=b"{}", ssl=context)
        assert await upstream.read(MAX) == b"{}"
        upstream.close()

    assert tls_server.connections == 1


async def test_a_certificate_is_checked_even_where_another_backend_trusts_it(
    client: Client, tls_server: Server, authority: trustme.CA
) -> None:
    """By default against the system's authorities, and no connection is shared between contexts."""
    await client.fetch("GET", tls_server.url, headers={}, timeout_s=20.0, ssl=trusting(authority))
    for context in (None, trusting(trustme.CA())):
        with pytest.raises(ConnectFailed, match="its certificate cannot be trusted"):
            await client.send("POST", tls_server.url, headers={}, body=b"{}", ssl=context)

    assert len(tls_server.requests) == 1


async def test_a_certificate_for_another_name_is_refused(
    client: Client, tls_server: Server, authority: trustme.CA
) -> None:
    """Whoever signed it."""
    url = tls_server.url.replace("localhost", "127.0.0.1")
    with pytest.raises(ConnectFailed):
        await client.send("POST", url, headers={}, body=b"{}", ssl=trusting(authority))


# Silence.


async def test_silence_before_and_within_an_answer_is_a_time_out() -> None:
    """Before the head, before the first byte of the body, between two reads."""
    limits = Limits(connect_s=5.0, first_byte_s=0.05, idle_s=0.05)
    for said in ([], [CHUNKED], [CHUNKED, b"3\r\nabc\r\n"]):
        async with Client(limits) as client, serving(saying(*said)) as server:
            with pytest.raises(UpstreamTimeout):
                await post(client, server)


async def test_where_nobody_listens_the_connection_is_refused(client: Client) -> None:
    """That is known at once."""
    async with serving(saying(OK)) as server:
        url = server.url
    with pytest.raises(ConnectRefused):
        await client.send("POST", url, headers={})
