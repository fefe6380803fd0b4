"""TLS on the data port and to a backend, end to end."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest
import trustme

from prefold.proxy.serve import running
from prefold.proxy.settings import Backend
from prefold.proxy.tls import client_context, server_context
from tests.support.proxy import BASE
from tests.support.upstream import ScriptedUpstream, whole

CHAT = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
ANSWER = {"id": "c1", "choices": [], "usage": {"prompt_tokens": 1}}


@pytest.fixture
def authority() -> trustme.CA:
    return trustme.CA()


def written(authority: trustme.CA, folder: Path) -> tuple[Path, Path, Path]:
    """Authority, certificate and key of 127.0.0.1."""
    issued = authority.issue_cert("127.0.0.1")
    ca, certificate, key = folder / "ca.pem", folder / "certificate.pem", folder / "key.pem"
    authority.cert_pem.write_to_path(str(ca))
    issued.cert_chain_pems[0].write_to_path(str(certificate))
    issued.private_key_pem.write_to_path(str(key))
    return ca, certificate, key


async def test_prompts_go_encrypted_on_both_sides(authority: trustme.CA, tmp_path: Path) -> None:
    """A client over TLS, a backend over TLS with the operator's own authority; a backend whose
    authority is not known is never ready, so there is no backend for its models."""
    ca, certificate, key = written(authority, tmp_path)
    stranger = tmp_path / "stranger.pem"
    trustme.CA().cert_pem.write_to_path(str(stranger))
    upstream = ScriptedUpstream([whole(ANSWER)])
    server = await asyncio.start_server(
        upstream.handle, "127.0.0.1", 0, ssl=server_context(certificate, key)
    )
    url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    settings = replace(
        BASE, server=replace(BASE.server, tls_certificate=str(certificate), tls_key=str(key))
    )
    async with server:
        for file, expected in ((ca, 200), (stranger, 503)):
            backend = Backend(name="b", url=url, ca_file=str(file))
            async with (
                running(replace(settings, backends=(backend,))) as proxy,
                aiohttp.ClientSession(
                    proxy.url, connector=aiohttp.TCPConnector(ssl=client_context(ca))
                ) as http,
            ):
                assert proxy.url.startswith("https://")
                await proxy.proxy.monitor.probe(next(iter(proxy.proxy.pool)))
                async with http.post("/v1/chat/completions", json=CHAT) as answer:
                    assert answer.status == expected
        assert len(upstream.received) == 1
