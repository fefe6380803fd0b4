"""Failures in words: each cause has its own, and says what to do."""

from __future__ import annotations

import errno
import os
import socket

import aiohttp
import pytest

from prefold.proxy.failures import cannot_listen, cannot_listen_at, no_answer


@pytest.mark.parametrize(
    ("number", "told"),
    [
        (errno.EADDRINUSE, "something else does; give another --port"),
        (errno.EADDRNOTAVAIL, "does not have that address"),
        (errno.EACCES, "not allowed; ports from 1024"),
        (errno.ENOMEM, os.strerror(errno.ENOMEM)),
    ],
)
def test_why_a_port_cannot_be_had(number: int, told: str) -> None:
    """With the address that was wanted."""
    message = cannot_listen_at(OSError(number, "text"), "10.0.0.1", 80)

    assert message.startswith("cannot listen on 10.0.0.1:80: ")
    assert told in message


def test_a_host_without_an_address_is_told_as_that() -> None:
    """Its number means something else than a system's."""
    error = socket.gaierror(socket.EAI_NONAME, "text")

    assert "no address is known for 'nobody'" in cannot_listen_at(error, "nobody", 80)


@pytest.mark.parametrize(
    ("text", "option"),
    [("on address ('h', 81): in use", "--admin-port"), ("on address ('h', 80): in use", "--port")],
)
def test_the_option_is_that_of_the_port_that_is_taken(text: str, option: str) -> None:
    """The error's text has the address."""
    error = OSError(errno.EADDRINUSE, text)

    assert f"another {option} " in cannot_listen(
        error, host="h", port=80, admin_host="h", admin_port=81
    )


async def test_why_a_server_did_not_answer() -> None:
    """Real errors, of a closed port, of two addresses that are none, and of a name."""
    told = {}
    async with aiohttp.ClientSession() as http:
        for url in ("http://127.0.0.1:9", "127.0.0.1:9", "//", "http://nobody.invalid"):
            try:
                await http.get(url)
            except aiohttp.ClientError as error:
                told[url] = no_answer(url, error)

    assert "nothing listens there" in told["http://127.0.0.1:9"]
    assert "expected http://HOST:PORT" in told["127.0.0.1:9"]
    assert "expected http://HOST:PORT" in told["//"]
    assert "no address is known for 'nobody.invalid'" in told["http://nobody.invalid"]


def test_silence_is_told_as_that() -> None:
    """A TimeoutError has no text of its own."""
    assert no_answer("http://a", TimeoutError()) == "http://a: no answer in time"
