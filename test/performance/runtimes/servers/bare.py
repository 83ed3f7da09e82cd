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

"""A bare ASGI application on the server that Kiln's wrapper uses."""

import json
import os

import uvicorn


async def app(scope, receive, send):
    if scope["method"] == "GET":
        body = b"hello"
    else:
        data, more = b"", True
        while more:
            message = await receive()
            data += message.get("body", b"")
            more = message.get("more_body")
        body = f"hello {json.loads(data)['name']}".encode()
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


uvicorn.run(app, host="127.0.0.1", port=int(os.environ["PORT"]), loop="uvloop", http="httptools", ws="none",
            lifespan="off", log_config=None, access_log=False, proxy_headers=False, server_header=False)
