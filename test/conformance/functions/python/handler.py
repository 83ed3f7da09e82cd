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

"""The function of the conformance suite, for Python."""

import time


class NotFound(Exception):
    status = 404


def later(event, context):
    time.sleep(0.01)
    return "later"


def long(event, context):
    time.sleep(2)
    return "after a long time"


def stream(event, context):
    def pieces():
        yield "one "
        yield b"two"

    return pieces()


def stream_throws(event, context):
    raise NotFound("no such thing")
    yield


def circular(event, context):
    circle = {}
    circle["circle"] = circle
    return circle


def created(event, context):
    event.setResponseStatus(201)
    event.setResponseHeader("x-a", "1")
    event.setResponseContentType("text/csv; charset=utf-8")
    return "a,b"


def no_content(event, context):
    event.setResponseStatus(204)
    return "text"


def data(event, context):
    data = event["data"]
    kind = {dict: "object", list: "list", str: "text", bytes: "bytes"}[type(data)]
    return {"kind": kind, "data": list(data) if kind == "bytes" else data}


def request(event, context):
    request = event["extensions"]["request"]
    return {"method": request.method, "path": request.path, "a": request.query.get("a"), "b": request.query["b"],
            "sent": request.headers["X-Sent"]}


def parameters(event, context):
    query = event["extensions"]["request"].query
    return {"all": query.getall(key="a"), "one": query.get(key="b"), "none": query.get(key="c", default="none")}


def cookies(event, context):
    request = event["extensions"]["request"]
    return {"a": request.cookies.getall("a")[0], "none": request.get_cookie("c", default="none")}


def set_cookies(event, context):
    response = event["extensions"]["response"]
    response.set_cookie("a", "1", path="/")
    response.set_cookie("b", "2", path="/")
    return "set"


def append(event, context):
    response = event["extensions"]["response"]
    response.add_header("x-a", "1")
    response.add_header("x-a", "2")
    return "appended"


def file(event, context):
    request = event["extensions"]["request"]
    upload = request.files["f"]
    return {"a": request.forms["a"], "name": upload.filename, "text": upload.file.read().decode()}


def throws(event, context):
    raise ValueError("secret")


def not_found(event, context):
    raise NotFound("no such thing")


def throws_after(event, context):
    created(event, context)
    raise NotFound("no such thing")


def kubeless(event, context):
    return [event[name] for name in ("event-type", "event-id", "event-time", "event-namespace")]


PATHS = {
    "/text": lambda event, context: "hé",
    "/empty": lambda event, context: "",
    "/bytes": lambda event, context: b"AB",
    "/object": lambda event, context: {"a": [1, "é", None, True]},
    "/number": lambda event, context: 0,
    "/list": lambda event, context: [1, 2],
    "/nothing": lambda event, context: None,
    "/later": later,
    "/long": long,
    "/stream": stream,
    "/stream-throws": stream_throws,
    "/stream-number": lambda event, context: iter([1]),
    "/circular": circular,
    "/status": lambda event, context: event.setResponseStatus(202),
    "/created": created,
    "/no-content": no_content,
    "/method": lambda event, context: event["extensions"]["request"].method,
    "/data": data,
    "/length": lambda event, context: str(len(event["data"])),
    "/request": request,
    "/parameters": parameters,
    "/cookies": cookies,
    "/set-cookies": set_cookies,
    "/append": append,
    "/is-json": lambda event, context: event["extensions"]["request"].content_type.startswith("application/json"),
    "/is-xhr": lambda event, context: event["extensions"]["request"].is_xhr,
    "/file": file,
    "/context": lambda event, context: {name: value for name, value in context.items() if name != "runtime"},
    "/throws": throws,
    "/not-found": not_found,
    "/throws-after": throws_after,
    "/slow": lambda event, context: time.sleep(10),
    "/event": lambda event, context: {name: value for name, value in event.items() if name != "extensions"},
    "/answer": lambda event, context: event.buildResponseCloudEvent("2", "answer", {"a": 1}),
    "/kubeless": kubeless,
}


def main(event, context):
    handle = PATHS.get(event["extensions"]["request"].path, lambda event, context: "not a path of the function")
    return handle(event, context)
