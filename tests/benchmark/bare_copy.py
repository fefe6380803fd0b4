"""The least that aiohttp on both sides costs: a body in, the same body out, nothing looked at.

`python bare_copy.py UPSTREAM [PORT]` prints its address, and ends with its standard input.
"""

import asyncio
import sys

import aiohttp
import uvloop
from aiohttp import web


async def main() -> None:
    async with aiohttp.ClientSession(sys.argv[1], connector=aiohttp.TCPConnector(limit=0)) as up:

        async def copy(request: web.Request) -> web.StreamResponse:
            body = await request.read()
            async with up.post(request.path, data=body) as answer:
                headers = {"Content-Type": answer.headers["Content-Type"]}
                if answer.content_type != "text/event-stream":
                    return web.Response(body=await answer.read(), headers=headers)
                response = web.StreamResponse(headers=headers)
                await response.prepare(request)
                async for chunk in answer.content.iter_any():
                    await response.write(chunk)
                await response.write_eof()
                return response

        app = web.Application(client_max_size=2**26)
        app.router.add_post("/{path:.*}", copy)
        runner = web.AppRunner(app, access_log=None, handler_cancellation=True)
        await runner.setup()
        port = int(sys.argv[2]) if len(sys.argv) > 2 else 0
        await web.TCPSite(runner, "127.0.0.1", port).start()
        print(f"http://127.0.0.1:{runner.addresses[0][1]}", flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.buffer.read)
        await runner.cleanup()


if __name__ == "__main__":
    uvloop.run(main())
