# Copyright 2026 The Kiln Authors
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.

"""A bare ASGI application on the server that Kiln's wrapper uses, which runs a function in a thread, as it may block.

loop.run_in_executor is the quickest of the usual ways: asyncio.to_thread does more upon it, and
anyio.to_thread.run_sync, which Starlette and FastAPI use, more than that.
"""

import asyncio
import json
import os

import uvicorn


def main(method, data):
    return "hello" if method == "GET" else f"hello {data['name']}"


async def app(scope, receive, send):
    data = None
    if scope["method"] != "GET":
        body, more = b"", True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body")
        data = json.loads(body)
    text = await asyncio.get_running_loop().run_in_executor(None, main, scope["method"], data)
    body = text.encode()
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


uvicorn.run(app, host="127.0.0.1", port=int(os.environ["PORT"]), loop="uvloop", http="httptools", ws="none",
            lifespan="off", log_config=None, access_log=False, proxy_headers=False, server_header=False)
