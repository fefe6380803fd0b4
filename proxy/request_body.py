"""Reading a request's body, with the errors a client of OpenAI expects."""

from __future__ import annotations

from aiohttp import ClientPayloadError, web
from aiohttp.http_exceptions import HttpProcessingError

from prefold.proxy.errors import BadRequest, TooLarge


async def read_body(request: web.Request) -> bytes:
    """Decoded from its Content-Encoding; raises TooLarge or BadRequest."""
    try:
        return await request.read()
    except web.HTTPRequestEntityTooLarge as error:
        raise TooLarge(f"{error.text}.") from None
    except (ClientPayloadError, HttpProcessingError, web.RequestPayloadError):
        raise BadRequest("The request body could not be read.") from None
