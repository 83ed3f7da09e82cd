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

"""Serves one function over HTTP: python3 -P server.py /function/handler.py

The contract is docs/runtimes.md. HTTP is uvicorn's, with uvloop and httptools.
"""

import asyncio
import atexit
import contextlib
import contextvars
import gc
import importlib.util
import inspect
import io
import json
import logging
import math
import os
import re
import signal
import socket
import sys
import threading
import time
import traceback
import zlib
from bisect import bisect_left
from collections import deque
from datetime import datetime, timezone
from urllib.parse import parse_qs, unquote

HEALTH_PATH = "/healthz"

# Longer than the idle timeout of any usual proxy: who reuses a connection must
# be the one to close it, or a request now and then meets a closing socket.
KEEP_ALIVE_S = 620

# What is left of a function's time for its 504 to be there before the platform
# sends one that says less: a tenth of it, and no more than this.
TIMEOUT_MARGIN_S = 1

# How many calls of a main that is not asynchronous run at once, and how many
# more may hang.
THREADS = 64

# How long a body that comes in pieces may take, if not the function's own time is longer.
BODY_S = 300

# How long what is to be done at the end may take, such as to send telemetry.
FLUSH_S = 5

CHUNK_BYTES = 64 * 1024

TEXT_TYPE = b"text/plain; charset=utf-8"
STRUCTURED_TYPE = "application/cloudevents+json"

# How long a server that drains keeps its idle connections. Each answer tells the caller to
# open another connection, and a caller cannot repeat a request that meets a closing one.
LINGER_S = 2

TERMINATION_LOG = "/dev/termination-log"

# Kubernetes keeps the last 2048 bytes of a log as the termination message.
TERMINATION_MESSAGE_BYTES = 1500

handler_file = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else "handler.py")
function_dir = os.path.dirname(handler_file)

draining = False
last_words = None  # why the process ends by itself


class StatusError(Exception):
    """An error whose status and message are meant for the caller."""

    def __init__(self, status, message):
        super().__init__(message)
        self.status = status


# ---- request and response


class Headers(dict):
    """Header fields by name, in whatever case; those that came twice joined."""

    def __init__(self, pairs=()):
        super().__init__()
        for name, value in pairs:
            name, value = name.decode("latin-1"), value.decode("latin-1")
            self[name] = f"{self[name]}, {value}" if name in self else value

    def __getitem__(self, name):
        return super().__getitem__(name.lower())

    def __setitem__(self, name, value):
        super().__setitem__(name.lower(), value)

    def __delitem__(self, name):
        super().__delitem__(name.lower())

    def __contains__(self, name):
        return super().__contains__(name.lower())

    def get(self, name, default=None):
        return super().get(name.lower(), default)


class Fields(dict):
    """The fields of a query or a form, as Bottle's FormsDict: the last value of each, all by getall."""

    def __init__(self, text, more=None):
        self.lists = parse_qs(text, keep_blank_values=True)
        for name, values in more.lists.items() if more else ():
            self.lists.setdefault(name, []).extend(values)
        super().__init__((name, values[-1]) for name, values in self.lists.items())

    def get(self, key, default=None, index=-1, type=None):
        try:
            value = self.lists[key][index]
            return type(value) if type else value
        except Exception:
            return default

    def getunicode(self, name, default=None, encoding=None):
        return self.get(name, default)

    def getall(self, key):
        return self.lists.get(key, [])

    def allitems(self):
        return [(name, value) for name, values in self.lists.items() for value in values]

    getone, getlist = get, getall

    def add(self, name, value):
        self.lists.setdefault(name, []).append(value)
        self[name] = value

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)  # Else copy and pickle take text for a method.
        return self.get(name, "")


class Request:
    """What event["extensions"]["request"] is: as in Bottle, as far as it is a plain request."""

    # Made for each request: what is not asked for costs nothing.
    _headers = _id = _parts = _query = data = None

    def __init__(self, scope, body=b""):
        self.scope = scope
        self.method = scope["method"]
        self._body = body

    @property
    def path(self):
        return self.scope["path"]

    @property
    def query_string(self):
        return self.scope["query_string"].decode("latin-1")

    @property
    def query(self):
        if self._query is None:
            self._query = Fields(self.query_string)
        return self._query

    GET = query

    @property
    def headers(self):
        if self._headers is None:
            self._headers = Headers(self.scope["headers"])
        return self._headers

    def get_header(self, name, default=None):
        return self.headers.get(name, default)

    @property
    def content_type(self):
        return self.headers.get("content-type", "").lower()

    @property
    def content_length(self):
        return len(self._body)

    @property
    def body(self):
        return io.BytesIO(self._body)

    @property
    def json(self):
        return self.data if is_json(media_type(self.content_type)) else None

    @property
    def forms(self):
        kind = media_type(self.content_type)
        if kind.startswith("multipart/"):
            return load_more().multipart(self)[0]
        return Fields(self._body.decode(errors="replace") if kind == "application/x-www-form-urlencoded" else "")

    @property
    def POST(self):
        fields = Fields("", self.forms)
        if media_type(self.content_type).startswith("multipart/"):
            for name, file in self.files.allitems():
                fields.add(name, file)
        return fields

    @property
    def params(self):
        return Fields(self.query_string, self.forms)

    @property
    def url(self):
        host = self.headers.get("x-forwarded-host") or self.headers.get("host", "")
        scheme = self.headers.get("x-forwarded-proto", "http")
        query = self.query_string
        return f"{scheme}://{host}{self.path}{'?' if query else ''}{query}"

    @property
    def remote_addr(self):
        forwarded = self.headers.get("x-forwarded-for")
        if forwarded:
            return forwarded.split(",")[0].strip()
        return (self.scope["client"] or [None])[0]

    @property
    def id(self):
        """The id in the log: the caller's, or one made up when first asked for."""
        if self._id is None:
            self._id = request_id(self.headers)
        return self._id

    def __getitem__(self, name):
        return self.environ[name]


def request_id(headers):
    given = headers.get("x-request-id", "")
    # What is written into logs must not look like anything else.
    if re.fullmatch(r"[\w.:=+/-]{1,128}", given, re.ASCII):
        return given
    trace = re.match(r"[0-9a-f]{2}-([0-9a-f]{32})-", headers.get("traceparent", ""))
    return trace[1] if trace else new_id()


def new_id():
    import uuid  # It takes longer to load than most functions run.

    return str(uuid.uuid4())


class Response:
    """What event["extensions"]["response"] is: what goes with the answer that main returns."""

    __slots__ = ("status", "_headers", "cookies")

    def __init__(self):
        self.status = 200
        self._headers = None

    @property
    def headers(self):
        if self._headers is None:
            self._headers, self.cookies = Headers(), []
        return self._headers

    def set_header(self, name, value):
        self.headers[name] = str(value)

    def add_header(self, name, value):
        """Adds to the fields of that name. Those of cookies cannot be joined."""
        fields, value = self.headers, str(value)
        if name.lower() == "set-cookie":
            self.cookies.append(value)
        else:
            fields[name] = f"{fields[name]}, {value}" if name in fields else value

    def get_header(self, name, default=None):
        return self.headers.get(name, default)

    @property
    def content_type(self):
        return self.headers.get("content-type", "")

    @content_type.setter
    def content_type(self, value):
        self.set_header("content-type", value)


# What else Bottle's requests and responses have, which compat.py has.
MORE = {
    Request: ("auth", "chunked", "cookies", "copy", "environ", "files", "fullpath", "get", "get_cookie", "is_ajax", "is_xhr", "keys",
              "remote_route", "script_name", "urlparts"),
    Response: ("charset", "delete_cookie", "headerlist", "iter_headers", "set_cookie", "status_code", "status_line"),
}


class More:
    """An attribute that loads compat.py, which replaces it."""

    def __init__(self, name):
        self.name = name

    def __get__(self, of, owner=None):
        load_more()
        return getattr(of, self.name)


for owner, names in MORE.items():
    for attribute in names:
        setattr(owner, attribute, More(attribute))

more = None
loading_more = threading.Lock()


def load_more():
    """Loads compat.py, once, with the first use of anything in it."""
    global more
    with loading_more:
        if more is None:
            file = os.path.join(os.path.dirname(os.path.abspath(__file__)), "compat.py")
            spec = importlib.util.spec_from_file_location("kiln_compat", file)
            module = importlib.util.module_from_spec(spec)
            module.server = sys.modules[__name__]
            spec.loader.exec_module(module)
            for of, names in MORE.items():
                for name in names:
                    setattr(of, name, vars(getattr(module, of.__name__))[name])
            more = module
        return more


class SDK:
    """Makes the module sdk, if the function has none of that name."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        return importlib.util.spec_from_loader(name, SDK) if name == "sdk" else None

    @staticmethod
    def create_module(spec):
        return None

    @staticmethod
    def exec_module(module):
        vars(module).update(load_more().SDK)


# ---- events


class CloudEvent(dict):
    """A CloudEvent as a dict of its attributes and data."""

    def encode(self, extensions=None):
        event = {**self, **(extensions or {})}
        if isinstance(event.get("data"), (bytes, bytearray)):
            import base64

            event["data_base64"] = base64.b64encode(event.pop("data")).decode()
        return encode_event(event)


# As Kubeless called them.
KUBELESS_NAMES = {
    "event-id": "ce-id",
    "event-type": "ce-type",
    "event-time": "ce-time",
    "event-namespace": "ce-source",
}


class Event(dict):
    """What main gets. The attributes of a CloudEvent are in it as "ce-type" and so on."""

    # Whether no page of another origin has sent it.
    plain = True

    # Made for each event: what is not asked for costs nothing.
    _response = None

    def __init__(self, request):
        self.request = request

    def __contains__(self, name):
        return super().__contains__(name) or name == "extensions" or name in KUBELESS_NAMES

    def __missing__(self, name):
        if name == "extensions":
            self[name] = {"request": self.request, "response": self.response}
            return self[name]
        attribute = KUBELESS_NAMES.get(name)
        if attribute is not None:
            return self.request.headers.get(name, self.get(attribute))
        if name == "tracer":
            return self.tracer
        if name.startswith("ce-"):
            return None
        raise KeyError(name)

    def get(self, name, default=None):
        return self[name] if name in self or name == "tracer" else default

    @property
    def ceHeaders(self):
        return self  # It was the dict, once.

    @property
    def response(self):
        response = self._response
        if response is None:
            response = self._response = Response()
        return response

    @property
    def tracer(self):
        return find_tracer()

    def setResponseHeader(self, name, value):
        self.response.set_header(name, value)

    def setResponseContentType(self, content_type):
        self.response.set_header("content-type", content_type)

    def setResponseStatus(self, status):
        self.response.status = status

    def resolveDataType(self, data):
        if isinstance(data, str):
            return "text/plain"
        return "application/octet-stream" if isinstance(data, (bytes, bytearray)) else "application/json"

    def buildResponseCloudEvent(self, id, type, data):
        """A CloudEvent to return from main, or to publish."""
        event = self._new_cloud_event(data, id=id, type=type)
        if "ce-eventtypeversion" in self:
            event["eventtypeversion"] = self["ce-eventtypeversion"]
        return event

    def emitCloudEvent(self, type, source, data, optionalCloudEventAttributes=None):
        """Sends a new CloudEvent to the sink that the Function is bound to, and waits for it."""
        event = self._new_cloud_event(data, id=new_id(), type=type, source=source, time=now())
        event.update(optionalCloudEventAttributes or {})
        return self.publishCloudEvent(event)

    def publishCloudEvent(self, event):
        """Sends a CloudEvent, a dict of attributes and data, to the sink, and waits for it."""
        return publish(CloudEvent(event), self.request.headers)

    def _new_cloud_event(self, data, **attributes):
        default = f"/{os.environ.get('FUNC_NAMESPACE', '')}/{os.environ.get('FUNC_NAME', '')}"
        event = CloudEvent(source=self.get("ce-source", default), specversion="1.0",
                           datacontenttype=self.resolveDataType(data))
        event.update(attributes, data=data)
        return event


class SinkStatus(int):
    """A sink's status, as requests has it, too."""

    status_code = property(int)


def publish(event, request_headers):
    """Sends an event in structured mode to K_SINK, as Knative's SinkBinding sets it."""
    import urllib.error
    import urllib.request

    sink = os.environ.get("K_SINK")
    if not sink:
        raise RuntimeError("there is no sink to publish to: K_SINK is not set (a SinkBinding sets it)")
    overrides = json.loads(os.environ.get("K_CE_OVERRIDES") or "{}")
    body = event.encode(overrides.get("extensions")).encode()
    headers = {"content-type": STRUCTURED_TYPE, **trace_context(request_headers)}
    request = urllib.request.Request(sink, data=body, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=settings.timeout) as answer:
            return SinkStatus(answer.status)
    except urllib.error.HTTPError as error:
        raise RuntimeError(f"the sink refused the event: {error.code} {error.reason}") from None


def trace_context(request_headers):
    """The header fields that say what trace an event is of: below the span that runs, else below the caller's."""
    fields = {}
    if "opentelemetry.trace" in sys.modules:  # Else nobody has begun a span.
        from opentelemetry import propagate

        propagate.inject(fields)
    return fields or {name: request_headers[name] for name in ("traceparent", "tracestate") if name in request_headers}


def read_event(event, headers, body):
    """Fills the event with what the request says."""
    content_type = kind = headers.get(b"content-type")
    if body and b"content-encoding" in headers:
        body = inflate(headers[b"content-encoding"].lower(), body)
    if kind is not None and kind != b"application/json":  # As most are.
        content_type = content_type.decode("latin-1")
        kind = media_type(content_type)
        if kind.startswith("application/cloudevents"):
            read_structured(event, kind, body)
            event.request.data = event["data"]
            return
    if b"ce-specversion" in headers:
        read_binary(event, headers)
        require_attributes(event)
    elif b"ce-type" in headers and b"ce-source" in headers:  # As Kyma had it.
        read_binary(event, headers)
    # No body is {}, as if it were an empty object.
    event["data"] = event.request.data = parse(body, kind, content_type) if body else {}


read = read_event  # what is done before main is called


def inflate(encoding, body):
    if encoding == b"identity":
        return body
    if encoding not in (b"gzip", b"x-gzip", b"deflate"):
        raise StatusError(415, f"content-encoding {encoding.decode('latin-1')} is not supported, gzip and deflate are")
    inflater = zlib.decompressobj(47)  # of either kind
    try:
        body = inflater.decompress(body, settings.body_limit + 1)
    except zlib.error as error:
        raise StatusError(400, f"request body is not {encoding.decode()}: {error}") from None
    if len(body) > settings.body_limit:
        raise too_large()
    if not inflater.eof:
        raise StatusError(400, f"request body is not {encoding.decode()}: it is cut off")
    return body


def read_binary(event, headers):
    """CloudEvents, binary mode: an attribute is a header, the data is the body."""
    for name, value in headers.items():
        if name.startswith(b"ce-"):
            value = value.decode("latin-1")
            event[name.decode("latin-1")] = unquote(value) if "%" in value else value
    if b"content-type" in headers:
        event["ce-datacontenttype"] = headers[b"content-type"].decode("latin-1")


def read_structured(event, content_type, body):
    """CloudEvents, structured mode: attributes and data are one JSON object."""
    if content_type != STRUCTURED_TYPE:
        raise StatusError(415, f"{content_type} is not supported")
    envelope = parse_json(body)
    if not isinstance(envelope, dict):
        raise StatusError(400, "a CloudEvent must be a JSON object")
    data = envelope.pop("data", {})
    encoded = envelope.pop("data_base64", None)
    if encoded is not None:
        import base64

        try:
            data = base64.b64decode(str(encoded), validate=True)
        except ValueError:
            raise StatusError(400, "data_base64 of the CloudEvent is not valid") from None
    for name, value in envelope.items():
        event[f"ce-{name}"] = value
    event["data"] = data
    require_attributes(event)


def require_attributes(event):
    for name in ("ce-id", "ce-source", "ce-type"):
        if not dict.get(event, name):
            raise StatusError(400, f'the CloudEvent has no attribute "{name[3:]}"')
    version = dict.get(event, "ce-specversion")
    if version != "1.0":
        raise StatusError(400, f"CloudEvents version {json.dumps(version)} is not supported, 1.0 is")


def parse(body, kind, content_type):
    """Turns a body into event["data"]."""
    if kind == b"application/json":
        return parse_json(body)
    if kind is None:
        return body.decode(errors="replace")
    if is_json(kind):
        return parse_json(body)
    if kind == "application/x-www-form-urlencoded":
        fields = parse_qs(decode(body, content_type), keep_blank_values=True)
        return {name: values[0] if len(values) == 1 else values for name, values in fields.items()}
    if kind.startswith("text/") or kind == "application/xml" or kind.endswith("+xml"):
        return decode(body, content_type)
    return body


def decode(body, content_type):
    charset = re.search(r"""(?i);\s*charset=["']?([^\s"';]+)""", content_type)
    try:
        return body.decode(charset[1] if charset else "utf-8", "replace")
    except LookupError:
        raise StatusError(415, f"charset {charset[1]} is not supported") from None


def parse_json(body):
    try:
        return decode_json(body.decode("utf-8", "replace"))
    except json.JSONDecodeError as error:
        if body.startswith(b"\xef\xbb\xbf"):
            return parse_json(body[3:])
        raise StatusError(
            400, f"request body is not valid JSON at line {error.lineno}, column {error.colno}: {error.msg}"
        ) from None
    except (ValueError, RecursionError) as error:
        raise StatusError(400, f"request body is not valid JSON: {error}") from None


def no_constant(name):
    raise ValueError(f"{name} is no JSON")


# Made once: json.loads and json.dumps make them anew each time.
decode_json = json.JSONDecoder(parse_constant=no_constant).decode
encode_json = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode
encode_event = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False, default=str).encode


def media_type(content_type):
    return content_type.split(";", 1)[0].strip().lower()


def is_json(content_type):
    return content_type in ("application/json", "text/json") or content_type.endswith("+json")


# ---- serving


async def app(scope, receive, send):
    """The function as an ASGI application."""
    if scope["type"] != "http":
        return
    headers = dict(scope["headers"])
    request = Request(scope)
    event = Event(request)
    if scope["path"] == HEALTH_PATH and request.method in ("GET", "HEAD") and not scope["query_string"]:
        await respond(send, 200, [(b"content-type", b"text/plain"), (b"content-length", b"2")], b"ok")
        return
    if b"origin" in headers:
        event.plain = False
        if request.method == "OPTIONS" and b"access-control-request-method" in headers:
            await answer_preflight(send, headers)
            return
    try:
        body = b""
        if b"content-length" in headers or b"transfer-encoding" in headers:
            body = request._body = await read_body(scope, headers, receive)
        read(event, headers, body)
    except StatusError as error:  # The caller's mistake: the function is not called.
        await send_error(send, request, error)
        return
    await call(event, send)


async def answer_preflight(send, headers):
    """Answers a browser's question whether a page may send a request."""
    answer = [
        (b"access-control-allow-origin", b"*"),
        (b"access-control-allow-methods", headers[b"access-control-request-method"]),
    ]
    if b"access-control-request-headers" in headers:
        answer.append((b"access-control-allow-headers", headers[b"access-control-request-headers"]))
    await respond(send, 204, answer, b"")


async def read_body(scope, headers, receive):
    if int(headers.get(b"content-length", 0)) > settings.body_limit:
        raise too_large()
    if WHOLE in scope:
        body = (await receive())["body"]
        if len(body) > settings.body_limit:
            raise too_large()
        return body
    try:
        async with asyncio.timeout(max(settings.timeout, BODY_S)):
            return await read_pieces(receive)
    except TimeoutError:
        raise StatusError(408, "the request body does not come") from None


async def read_pieces(receive):
    body, more = bytearray(), True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise StatusError(400, "the caller has gone")
        body += message.get("body", b"")
        if len(body) > settings.body_limit:
            raise too_large()
        more = message.get("more_body")
    return bytes(body)


def too_large():
    return StatusError(413, f"request body is larger than {settings.body_limit} bytes")


# The tasks and exchanges that main runs in and when they began, the oldest first.
running = {}


async def call(event, send, exchange=None):
    """Runs main and answers, with 504 when its time is up. Of an exchange a thread has called main already."""
    task = exchange or asyncio.current_task()
    began = exchange.began if exchange else watch(task)
    request, raised = event.request, False
    try:
        try:
            if is_async:
                result = await main(event, context)
            else:
                result = unpack(exchange.take())[1] if exchange else await threads.run(main, event, context)
                if inspect.iscoroutine(result):
                    result = await result
        except Exception as error:
            if not is_response(error):
                raise
            result, raised = error, True  # As those of web frameworks that are raised.
        if type(result) not in VALUES:
            result = await unfold(event, result)
    except (Exception, asyncio.CancelledError, SystemExit) as error:
        if isinstance(error, asyncio.CancelledError):
            if task in running:
                raise
            error = StatusError(504, f"main did not finish within {settings.timeout:g} s")
        measure(request.method, began, True)
        await send_error(send, request, error, True)
        return
    finally:
        running.pop(task, None)
    measure(request.method, began, raised)
    try:
        if isinstance(result, Stream):
            await stream(send, event, result)
        else:
            await whole(send, event, result)
    except Exception as error:
        calls[request.method].failures += not raised
        if isinstance(error, CutOff):
            raise
        await send_error(send, request, error, True)


clock = None  # wakes when the time of the oldest call is up


def watch(task):
    """Has the task cancelled when its time is up, which begins now."""
    global clock
    if clock is None:  # One timer for all costs less than one for each.
        clock = asyncio.get_running_loop().call_later(time_limit(), give_up)
    began = running[task] = time.monotonic()
    return began


def time_limit():
    return settings.timeout - min(settings.timeout / 10, TIMEOUT_MARGIN_S)


def give_up():
    """Cancels the calls whose time is up."""
    global clock
    clock = None
    for task, began in list(running.items()):
        left = began + time_limit() - time.monotonic()
        if left > 0:
            clock = asyncio.get_running_loop().call_later(left, give_up)
            return
        del running[task]
        task.cancel()


async def unfold(event, result):
    """Takes a response apart, and has the first piece of a stream, which can still fail like all else."""
    if not isinstance(result, str) and is_response(result):
        result = adopt(event.response, result)
    if is_stream(result):
        kind = Stream if hasattr(result, "__aiter__") else BlockingStream
        result = kind(result, event.request.scope[CONNECTION])
        if event.request.method != "HEAD":
            try:
                await result.fetch()
            except BaseException:
                await result.close()
                raise
    return result


# What is neither a response nor a stream for sure.
VALUES = {str, bytes, dict, list, tuple, int, float, bool, type(None), CloudEvent}


def encode(value):
    """Returns the content type and the body for what main returned."""
    if isinstance(value, str):
        return TEXT_TYPE, value.encode()
    if value is None:
        return None, b""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return b"application/octet-stream", bytes(value)
    if isinstance(value, CloudEvent):
        return STRUCTURED_TYPE.encode(), value.encode().encode()
    return b"application/json", encode_json(value).encode()


async def whole(send, event, value):
    """Answers with a value."""
    answer = plain_answer(event, value)
    if answer is None:
        content_type, body = encode(value)
        pairs = header_pairs(event, content_type)
        status = event.response.status
        if content_type is None:
            status = 204 if status == 200 else status
        elif status in BODILESS:
            body = b""
        else:
            pairs.append((b"content-length", b"%d" % len(body)))
        await respond(send, status, pairs, body)
    elif WHOLE in event.request.scope:
        await send({"type": WHOLE, "answer": answer})
    else:
        await respond(send, *answer)


def plain_answer(event, value):
    """Returns status, header fields and body for a value, unless something goes with it."""
    response = event._response
    if not event.plain or response is not None and (response._headers is not None or response.status != 200):
        return None
    content_type, body = encode(value)
    if content_type is None:
        # Success without content, which event sources take as "no reply event".
        return 204, [], body
    return 200, [(b"content-type", content_type), (b"content-length", b"%d" % len(body))], body


async def respond(send, status, headers, body):
    await begin(send, status, headers)
    await send({"type": "http.response.body", "body": body})


async def begin(send, status, headers):
    if draining:
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": status, "headers": headers})


# The statuses after which a body would be taken for the next answer.
BODILESS = (204, 304)

HEADER_NAME = re.compile(r"[\w!#$%&'*+.^`|~-]+", re.ASCII)
HEADER_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


def header_pairs(event, content_type):
    """The header fields of an answer, which is checked: of a mistake uvicorn would tell the caller nothing."""
    response = event.response
    response.status = status_of(response.status)
    if not 200 <= response.status <= 599:
        raise ValueError(f"{response.status} is no status of an answer")
    fields = response.headers
    fields.pop("content-length", None)
    if content_type is not None and "content-type" not in fields:
        fields["content-type"] = content_type.decode()
    if not event.plain and "access-control-allow-origin" not in fields:
        # Pages of any origin may see answers, as with all of this function's predecessors.
        fields["access-control-allow-origin"] = "*"
    pairs = [*fields.items(), *(("set-cookie", cookie) for cookie in response.cookies)]
    for name, value in pairs:
        if not HEADER_NAME.fullmatch(name) or HEADER_CONTROL.search(value):
            raise ValueError(f"{json.dumps(name)}: {json.dumps(value)} is no header field")
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in pairs]


def status_of(status):
    """The code of a status, which may be a line, such as "404 Not Found"."""
    return int(status.split(" ", 1)[0] if isinstance(status, str) else status)


def is_response(value):
    """Tells the responses of Bottle, Flask and their like, which need not be installed."""
    return isinstance(getattr(value, "status_code", None), int) and hasattr(value, "headers")


def adopt(response, other):
    """Takes over status and header fields, and returns the body."""
    response.status = other.status_code
    pairs = getattr(other, "headerlist", None) or list(other.headers.items())
    known = {"set-cookie"}
    for name, value in pairs:
        (response.add_header if name.lower() in known else response.set_header)(name, value)
        known.add(name.lower())
    body = other.get_data() if hasattr(other, "get_data") else getattr(other, "body", None)
    if isinstance(body, (list, tuple, set)):  # Of pieces, as WSGI has them.
        body = b"".join(piece.encode() if isinstance(piece, str) else piece for piece in body)
    return None if body is None or body == "" or body == b"" else body


def is_stream(value):
    return inspect.isgenerator(value) or hasattr(value, "__aiter__") or hasattr(value, "read") or hasattr(value, "__next__")


END = object()


class Stream:
    """What an asynchronous generator or iterator yields, piece by piece, as long as there is a caller."""

    piece = END

    def __init__(self, source, connection):
        self.source = source
        self.connection = connection
        self.iterator = self.iterate()

    def iterate(self):
        return aiter(self.source)

    async def fetch(self):
        """Has the next piece, which is END when the caller has gone, too."""
        connection = self.connection
        if connection.transport.is_closing():
            self.piece = END
            return
        connection.fetching = task = asyncio.current_task()
        try:
            piece = await self.step()
            if piece is not END:
                piece = piece.encode() if isinstance(piece, str) else bytes(memoryview(piece))
        except asyncio.CancelledError:
            if not connection.transport.is_closing():
                raise
            task.uncancel()
            piece = END
        finally:
            connection.fetching = None
        self.piece = piece

    async def step(self):
        if self.piece is not END:
            # A generator that never waits must not keep all others waiting, nor what it has yielded from being sent.
            await asyncio.sleep(0)
        return await anext(self.iterator, END)

    async def close(self):
        for opened in (self.iterator,) if self.iterator is self.source else (self.iterator, self.source):
            with contextlib.suppress(Exception, SystemExit):
                close = getattr(opened, "aclose", None) or opened.close
                closing = close()
                if inspect.isawaitable(closing):
                    await closing


class BlockingStream(Stream):
    """What a generator, an iterator or a file yields: each step may block."""

    def __init__(self, source, connection):
        super().__init__(source, connection)
        self.busy = threading.Lock()  # held by a step, and for good by who closes the source
        self.closed = False

    def iterate(self):
        source = self.source
        return iter(lambda: source.read(CHUNK_BYTES) or END, END) if hasattr(source, "read") else iter(source)

    async def step(self):
        return await threads.run(self.advance)

    def advance(self):
        if not self.busy.acquire(blocking=False):
            return END  # It was closed before this step's turn came.
        try:
            return next(self.iterator, END)
        finally:
            self.busy.release()
            if self.closed and self.busy.acquire(blocking=False):
                self.close_source()  # Nobody waits for this step any more.

    async def close(self):
        self.closed = True
        if hasattr(self.source, "close") and self.busy.acquire(blocking=False):
            await threads.run(self.close_source)

    def close_source(self):
        with contextlib.suppress(Exception, SystemExit):
            self.source.close()


async def stream(send, event, source):
    try:
        pairs = header_pairs(event, b"application/octet-stream")
        await begin(send, event.response.status, pairs)
        if event.response.status in BODILESS:
            source.piece = END
        try:
            while source.piece is not END:
                await send({"type": "http.response.body", "body": source.piece, "more_body": True})
                await source.fetch()
        except (Exception, SystemExit) as error:
            log_error(event.request, error, 500)
            raise CutOff from None
    finally:
        await source.close()
    await send({"type": "http.response.body", "body": b""})


class CutOff(Exception):
    """Half an answer must not look like a whole one: uvicorn closes the connection."""


async def send_error(send, request, error, called=False):
    """Answers with an error. What is not meant for the caller is in the log alone, under the id the caller gets."""
    stated = getattr(error, "status", None)
    if not (isinstance(stated, int) and 400 <= stated <= 599):
        stated = None
    status = stated or 500
    answer = {"message": "Internal Server Error" if stated is None else str(error)}
    if status >= 500:
        answer["id"] = request.id
        log_error(request, error, status)
    elif called:  # It may be of another server that main has asked.
        log("WARNING", f"main failed: {summary(error)}", requestId=request.id, status=status)
    event = Event(request)
    event.plain = "origin" not in request.headers
    event.response.status = status
    await whole(send, event, answer)


def log_error(request, error, status):
    stack = "".join(traceback.format_exception(error))
    log("ERROR", f"main failed: {summary(error)}", requestId=request.id, status=status, stack=stack)


# ---- threads


class Threads:
    """Runs what may block, so many calls at once, and hands what comes of them back to the loop.

    To wake a thread costs more than most calls: one is woken for all that came at
    once, takes call after call, and the loop is told of many in one go.
    """

    def __init__(self, loop, most):
        self.loop = loop
        self.most = most
        self.context = contextvars.copy_context()  # that of a call which is of no task
        self.count = 0
        self.lost = 0  # in calls that were given up
        self.counting = threading.Lock()
        self.calls = deque()  # that no thread has taken
        self.begun = set()  # the futures of those that run, and that somebody waits for
        self.outcomes = deque()  # that the loop has not been told
        self.asleep = []  # a lock for each thread that sleeps, which wakes when it is released
        self.beginning = False  # begin is about to run
        self.waking = False  # a thread has been woken, and has not looked for calls yet
        self.telling = False  # tell is about to run

    async def run(self, function, *args):
        """Returns what the function returns, or raises what it raises. Once begun it goes on, if that is cancelled."""
        future = self.loop.create_future()
        # As asyncio.to_thread does: the span of the request is the parent of those that main begins.
        self.add(future, contextvars.copy_context().run, function, *args)
        try:
            return unpack(await future)
        except asyncio.CancelledError:
            self.give_up(future)
            raise
        finally:
            del future  # It has the error, which has this by its traceback.

    def add(self, future, function, *args):
        """Has the future get what the function returns or raises: a future of asyncio's, or what is like one."""
        self.calls.append((future, function, args))
        if not self.beginning:
            self.beginning = True
            self.loop.call_soon(self.begin)

    def give_up(self, future):
        """Has another thread take the place of that of a call which is not waited for any more."""
        try:
            self.begun.remove(future)
        except KeyError:
            return  # It has ended, or not begun.
        with self.counting:
            self.count -= 1
            self.lost += 1
        if self.lost > self.most:
            drain(f"{self.lost} calls of main hang though their time is up or their caller has gone, and nothing can end them: "
                  "set a timeout for what main waits for")
        if self.calls and not self.waking:
            self.wake()

    def begin(self):
        self.beginning = False
        if not self.waking:
            self.wake()

    def wake(self):
        """Wakes a thread, or starts one. Where all are busy, the next that is not takes the call."""
        try:
            lock = self.asleep.pop()
        except IndexError:
            self.start()
            return
        self.waking = True
        lock.release()

    def start(self):
        with self.counting:
            if self.count == self.most:
                return
            self.count += 1
            name = f"main_{self.count}"
        self.waking = True
        try:
            thread = threading.Thread(target=self.work, name=name, daemon=True)
            contextvars.Context().run(thread.start)  # It is of no request more than of another.
        except (RuntimeError, MemoryError) as error:  # The next call tries again.
            self.waking = False
            with self.counting:
                self.count -= 1
            log("WARNING", f"there is no thread for main: {summary(error)}")

    def work(self):
        """Takes calls and sleeps, in turns: what each thread does."""
        lock = threading.Lock()
        lock.acquire()
        while True:
            self.waking = False
            if not self.take_calls():
                return
            self.asleep.append(lock)
            # Whoever has just added a call may have found nobody asleep.
            if self.calls and not self.waking:
                self.wake()
            lock.acquire()

    def take_calls(self):
        """Runs what calls there are, and says whether this thread still is one of so many."""
        while True:
            try:
                future, function, args = self.calls.popleft()
            except IndexError:
                return True
            self.begun.add(future)
            outcome = None
            if not future.done():  # Else its time was up before its turn came.
                if self.calls and not self.waking:
                    self.wake()  # This call may take long.
                try:
                    outcome = function(*args), None
                except (Exception, SystemExit) as error:
                    outcome = None, error
                except BaseException as error:  # Such as a CancelledError, which on the loop would be its own.
                    outcome = None, RuntimeError(summary(error)).with_traceback(error.__traceback__)
            try:
                self.begun.remove(future)
            except KeyError:  # Another thread has its place.
                with self.counting:
                    self.lost -= 1
                return False
            self.outcomes.append((future, outcome))
            del future, function, args, outcome
            if not self.telling:
                self.telling = True
                self.loop.call_soon_threadsafe(self.tell)

    def tell(self):
        self.telling = False
        while self.outcomes:
            future, outcome = self.outcomes.popleft()
            if future.done():
                continue  # Its time was up.
            try:
                future.set_result(outcome)
            except Exception as error:  # The others must be told all the same.
                background_error(self.loop, {"exception": error})


def unpack(outcome):
    """Returns what was returned, or raises what was raised."""
    result, error = outcome
    try:
        if error is not None:
            raise error
        return result
    finally:
        del outcome, error  # Else it would hold itself, by its traceback.


# ---- metrics and telemetry

# The upper bounds of the histogram's buckets, in seconds.
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class Calls:
    """How main was called, by one method."""

    __slots__ = ("total", "failures", "seconds", "buckets")

    def __init__(self):
        self.total = self.failures = 0
        self.seconds = 0.0
        self.buckets = [0] * len(BUCKETS)


calls = {}


def measure(method, began, failed):
    seconds = time.monotonic() - began
    of = calls.get(method)
    if of is None:
        of = calls[method] = Calls()
    of.total += 1
    of.seconds += seconds
    if failed:
        of.failures += 1
    bucket = bisect_left(BUCKETS, seconds)
    if bucket < len(BUCKETS):
        of.buckets[bucket] += 1


def exposition():
    """The metrics in Prometheus' text format."""
    import resource

    lines = []

    def family(name, kind, text):
        lines.extend((f"# HELP {name} {text}", f"# TYPE {name} {kind}"))

    family("function_calls_total", "counter", "Calls of main.")
    lines += [f'function_calls_total{{method="{method}"}} {of.total}' for method, of in calls.items()]
    family("function_failures_total", "counter", "Calls of main that raised, or took too long.")
    lines += [f'function_failures_total{{method="{method}"}} {of.failures}' for method, of in calls.items()]
    family("function_duration_seconds", "histogram", "The time that main took.")
    for method, of in calls.items():
        below = 0
        for bound, count in zip(BUCKETS, of.buckets):
            below += count
            lines.append(f'function_duration_seconds_bucket{{method="{method}",le="{bound:g}"}} {below}')
        lines.append(f'function_duration_seconds_bucket{{method="{method}",le="+Inf"}} {of.total}')
        lines.append(f'function_duration_seconds_sum{{method="{method}"}} {of.seconds}')
        lines.append(f'function_duration_seconds_count{{method="{method}"}} {of.total}')
    usage = resource.getrusage(resource.RUSAGE_SELF)
    family("process_cpu_seconds_total", "counter", "CPU time of the process.")
    lines.append(f"process_cpu_seconds_total {usage.ru_utime + usage.ru_stime}")
    with contextlib.suppress(OSError):
        with open("/proc/self/statm") as statm:
            resident = int(statm.read().split()[1]) * resource.getpagesize()
        family("process_resident_memory_bytes", "gauge", "Resident memory of the process.")
        lines.append(f"process_resident_memory_bytes {resident}")
    return "\n".join(lines) + "\n"


async def metrics_app(scope, receive, send):
    if scope["type"] != "http":
        return
    found = scope["path"] == "/metrics"
    body = exposition().encode() if found else b""
    headers = [
        (b"content-type", b"text/plain; version=0.0.4; charset=utf-8"),
        (b"content-length", b"%d" % len(body)),
    ]
    await respond(send, 200 if found else 404, headers, body)


# What asks for OpenTelemetry's SDK, unless it is "none".
TELEMETRY = (
    "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT",
    "OTEL_EXPORTER_OTLP_LOGS_ENDPOINT", "OTEL_TRACES_EXPORTER", "OTEL_METRICS_EXPORTER", "OTEL_LOGS_EXPORTER",
)


def with_telemetry(application):
    """Loads OpenTelemetry's SDK from the function's dependencies, if the environment asks for it."""
    asked = any(os.environ.get(name, "").lower() not in ("", "none") for name in TELEMETRY)
    if not asked or os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return application
    os.environ.setdefault("OTEL_SERVICE_NAME", os.environ.get("FUNC_NAME", "function"))
    try:
        from opentelemetry.instrumentation import auto_instrumentation
        from opentelemetry.instrumentation.asgi import OpenTelemetryMiddleware

        auto_instrumentation.initialize()
        return OpenTelemetryMiddleware(application)
    except Exception as error:
        log("WARNING", f"there are no traces: {summary(error)}")
        return application


class NoSpan:
    """A span that does nothing, whatever is called on it."""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return False

    def __getattr__(self, name):
        return lambda *args, **kwargs: self


class NoTracer:
    """A tracer that does nothing."""

    def start_span(self, *args, **kwargs):
        return NoSpan()

    start_as_current_span = start_span


def find_tracer():
    """The tracer of the function's own OpenTelemetry, or one that does nothing."""
    try:
        from opentelemetry import trace

        return trace.get_tracer(os.environ.get("FUNC_NAME", "function"))
    except ImportError:
        return NoTracer()


# ---- life cycle


class Settings:
    """What the environment says, and what main is."""

    def __init__(self):
        self.port = setting("PORT", 8080, is_port)
        self.metrics_port = setting("OTEL_EXPORTER_PROMETHEUS_PORT", 9464, is_port)
        megabytes = setting("REQ_MB_LIMIT", 1, lambda value: 0 < value < math.inf)
        self.body_limit = int(megabytes * 2**20)
        self.timeout = setting("FUNC_TIMEOUT", 300, lambda value: 0 < value < math.inf)


def is_port(value):
    return value == int(value) and 0 <= value < 65536


def setting(name, default, valid):
    text = os.environ.get(name)
    try:
        value = float(text) if text else default
        if not valid(value):
            raise ValueError
    except ValueError:
        end(f"environment variable {name}: {json.dumps(text)} is not valid")
    return int(value) if value == int(value) else value


def new_context():
    return {
        "function-name": os.environ.get("FUNC_NAME"),
        "namespace": os.environ.get("FUNC_NAMESPACE"),
        "runtime": os.environ.get("FUNC_RUNTIME"),
        "timeout": settings.timeout,
        "memory-limit": os.environ.get("FUNC_MEMORY_LIMIT"),
        "body-size-limit": settings.body_limit / 2**20,
    }


def load():
    """Returns main of the function's module."""
    name = os.path.splitext(os.path.basename(handler_file))[0]
    spec = importlib.util.spec_from_file_location(name, handler_file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    wanted = os.environ.get("FUNC_HANDLER") or "main"
    found = getattr(module, wanted, None)
    if not callable(found):
        names = [key for key, value in vars(module).items() if inspect.isfunction(value) and value.__module__ == name]
        end(f'{os.path.basename(handler_file)}: has no function named "{wanted}" '
            f"(it has: {', '.join(names) or 'none'}); expected: def {wanted}(event, context)")
    return found


def takes_nothing(function):
    """Tells main(), as in Flask, from main(event, context)."""
    api = os.environ.get("FUNC_API")
    if api:
        if api not in ("event", "request"):
            end(f"environment variable FUNC_API: {json.dumps(api)} is not valid: it is event or request")
        return api == "request"
    try:
        signature = inspect.signature(function, follow_wrapped=False)
        if any(one.kind is one.VAR_POSITIONAL for one in signature.parameters.values()):
            signature = inspect.signature(function)  # A decorator takes anything: what it decorates tells.
    except (TypeError, ValueError):
        return False
    return can_take(signature) and not can_take(signature, None, None)


def can_take(signature, *arguments):
    try:
        signature.bind(*arguments)
    except TypeError:
        return False
    return True


def flask_main(function):
    """Returns the function as a main(event, context)."""
    try:
        import flask
    except ModuleNotFoundError as error:
        if error.name != "flask":
            raise
        end(f"{os.path.basename(handler_file)}: main takes no arguments, as in Flask: add flask to the function's dependencies, or take "
            "(event, context)")
    return load_more().flask_main(function, flask)


def listen(port):
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=2048)
    return socket.create_server(("", port), backlog=2048)


# What scopes have, and messages are called, where a plain answer can be sent as one message.
WHOLE = "kiln.whole"

# Where scopes have the protocol of the connection, which knows when the caller has gone.
CONNECTION = "kiln.connection"

# The versions of uvicorn that the shortcut was tested with.
SHORTCUT_VERSIONS = ("0.17.", "0.32.")


def new_protocol(shortcut):
    """Makes a class of uvicorn's protocol, with a shortcut for requests that come whole, as most do.

    It is for them that ASGI costs most. Here such a request gets a scope with what is
    needed, is begun at once, and is answered in one go if there is nothing special to
    it. Where main is called in a thread, there is no task for it until something may
    have to wait. Whatever is not that simple takes uvicorn's own way.
    """
    from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

    class NoEvent:
        """Stands for an event that nobody waits for."""

        @staticmethod
        def set():
            pass

    class Exchange(RequestResponseCycle):
        """A request that came whole, and its answer: to Threads a future, to give_up a task."""

        # What uvicorn gives to each: they are few that are not so.
        disconnected = waiting_for_100_continue = response_started = response_complete = more_body = access_log = False
        keep_alive = True
        chunked_encoding = None
        expected_content_length = 0
        message_event = NoEvent
        event = outcome = task = None

        def __init__(self, protocol, method):
            self.transport = protocol.transport
            self.flow = protocol.flow
            self.logger = protocol.logger
            self.default_headers = protocol.server_state.default_headers
            self.on_response = protocol.on_whole_answer
            self.body = protocol.body
            path, _, query = protocol.url.partition(b"?")
            path = path.decode("ascii")
            self.scope = {
                "type": "http", "method": method, "path": unquote(path) if "%" in path else path, "query_string": query,
                "headers": protocol.headers, "client": protocol.client, WHOLE: True, CONNECTION: protocol,
            }

        async def receive(self):
            body, self.body = self.body, b""  # A connection that is kept must not keep it, too.
            return {"type": "http.request", "body": body}

        async def send(self, message):
            if message["type"] != WHOLE:
                await super().send(message)
            elif not self.write(*message["answer"]):
                await respond(super().send, *message["answer"])

        def write(self, status, headers, body):
            """Sends all of an answer, if that goes without waiting and the connection stays."""
            if self.flow.write_paused or self.disconnected or draining or not self.keep_alive:
                return False
            content = [STATUS_LINE[status]]
            for name, value in self.default_headers + headers:
                content += (name, b": ", value, b"\r\n")
            content += (b"\r\n", body)
            self.transport.write(b"".join(content))
            self.response_started = self.response_complete = True
            self.on_response()
            return True

        def begin(self):
            """Has a thread call main, and tells whether it will: it does not if app has more to do than that."""
            scope, body = self.scope, self.body
            headers = dict(scope["headers"])
            if scope["path"] == HEALTH_PATH or b"origin" in headers or len(body) > settings.body_limit:
                return False
            event = Event(Request(scope, body))
            try:
                read(event, headers, body)
            except Exception:  # app meets it, too, and says so.
                return False
            self.event, self.body = event, b""
            self.began = watch(self)
            scope[CONNECTION].tasks.add(self)
            threads.add(self, self.run, event)
            return True

        def run(self, event):
            """Calls main. Returns the answer, if that is a plain one, and what main returned."""
            result = threads.context.copy().run(main, event, context)
            return plain_answer(event, result) if type(result) in VALUES else None, result

        def done(self):
            return self.event is None

        def set_result(self, outcome):
            # Of a connection with requests that wait, uvicorn tells the last alone that it is lost.
            self.disconnected = self.disconnected or self.transport.is_closing()
            answer = outcome[0] and outcome[0][0]
            if answer and self.write(*answer):
                del running[self]
                measure(self.scope["method"], self.began, False)
                self.end()
            else:
                self.go_on(outcome)

        def cancel(self):
            if self.task is None:
                self.go_on((None, asyncio.CancelledError()))
                threads.give_up(self)
            elif self.outcome:  # A task that is cancelled before it begins would answer nothing.
                self.outcome = None, asyncio.CancelledError()
            else:
                self.task.cancel()

        def take(self):
            outcome, self.outcome = self.outcome, None
            return outcome

        def go_on(self, outcome):
            """Leaves the rest to a task, as it may have to wait."""
            event, self.event, self.outcome = self.event, None, outcome
            coroutine = self.run_asgi(lambda scope, receive, send: call(event, send, self))
            # One that began at once would hold the outcome for good, where that is an error, by its traceback.
            self.task = asyncio.Task(coroutine, loop=threads.loop, context=threads.context.copy())
            self.task.add_done_callback(self.end)

        def end(self, _=None):
            self.event = self.outcome = None  # A connection that is kept must not keep them, too.
            self.scope[CONNECTION].tasks.discard(self)

    class Connection(HttpToolsProtocol):
        """uvicorn's protocol, which ends a stream whose caller goes, and drops no request of which a part has come."""

        fetching = None  # the task that waits for the next piece of a stream

        def on_message_begin(self):
            super().on_message_begin()
            self.scope[CONNECTION] = self

        def connection_lost(self, error):
            super().connection_lost(error)
            if self.fetching is not None:
                self.fetching.cancel()

        def shutdown(self):
            if self.headers is None or self.cycle is not None and self.cycle.scope["headers"] is self.headers:
                super().shutdown()

    if not shortcut:
        return Connection

    class Protocol(Connection):
        """The same with the shortcut."""

        body = None  # of a request that may come whole, and has not yet
        length = 0  # of the headers that came before it
        first = True  # of the requests that were read at once
        idle_since = idle_timer = None

        def on_message_begin(self):
            self.url = b""
            self.headers = []
            self.expect_100_continue = False

        def on_headers_complete(self):
            if self.transport.is_closing():
                return  # The answer before it was the last: the caller sends this one again.
            before, parser, url = self.cycle, self.parser, self.url
            if (
                (before is None or before.response_complete) and url.startswith(b"/") and b"#" not in url and url.isascii()
                and parser.get_http_version() == "1.1" and parser.get_method() != b"HEAD" and not parser.should_upgrade()
                and not self.expect_100_continue and (b"connection", b"close") not in self.headers
            ):
                self.body = b""
                self.length = len(self.headers)
            else:
                self.leave_to_uvicorn()

        def on_body(self, body):
            if self.body is None:
                super().on_body(body)
            else:
                self.body += body

        def on_message_complete(self):
            if self.body is None:
                super().on_message_complete()
                return
            del self.headers[self.length:]  # Trailers must not pass for headers.
            exchange = self.cycle = Exchange(self, self.parser.get_method().decode("ascii"))
            self.body = None
            # Only one is begun at once, so that one connection does not keep all others waiting.
            first, self.first = self.first, False
            if first and not is_async and exchange.begin():
                return
            begin = begin_task if first else type(self.loop).create_task
            task = begin(self.loop, exchange.run_asgi(app))
            if not task.done():
                self.tasks.add(task)
                task.add_done_callback(self.tasks.discard)

        def data_received(self, data):
            self.first = True
            super().data_received(data)
            if self.body is not None:  # It came in pieces.
                body, self.body = self.body, None
                if not self.transport.is_closing():
                    self.leave_to_uvicorn()
                    super().on_body(body)

        def on_whole_answer(self):
            """Lets the timer of an idle connection run on, and does not set one for each answer."""
            if self.pipeline or self.flow.read_paused or self.transport.is_closing():
                self.on_response_complete()
                return
            self.idle_since = self.loop.time()
            if self.idle_timer is None:
                self.idle_timer = self.loop.call_later(self.timeout_keep_alive, self.end_idle)

        def end_idle(self):
            self.idle_timer = None
            if not self.cycle.response_complete or self.timeout_keep_alive_task is not None:
                return  # It is busy, or uvicorn has set a timer.
            left = self.idle_since + self.timeout_keep_alive - self.loop.time()
            if left > 0:
                self.idle_timer = self.loop.call_later(left, self.end_idle)
            else:
                self.timeout_keep_alive_handler()

        def connection_lost(self, error):
            super().connection_lost(error)
            if self.idle_timer is not None:
                self.idle_timer.cancel()

        def leave_to_uvicorn(self):
            url, headers, expect_100_continue = self.url, self.headers, self.expect_100_continue
            super().on_message_begin()
            super().on_url(url)
            self.headers += headers
            self.expect_100_continue = expect_100_continue
            super().on_headers_complete()

    return Protocol


def begin_task(loop, coroutine):
    """Makes a task that runs at once up to where it first waits, where this Python can."""
    if sys.version_info < (3, 12):
        return loop.create_task(coroutine)
    return asyncio.Task(coroutine, loop=loop, eager_start=True)


def new_server(application):
    import uvicorn

    # Middleware of OpenTelemetry's wants all of ASGI.
    shortcut = application is app and uvicorn.__version__.startswith(SHORTCUT_VERSIONS)

    class Server(uvicorn.Server):
        """uvicorn's server, which here is ended by serve alone."""

        def install_signal_handlers(self):
            pass

        capture_signals = staticmethod(contextlib.nullcontext)

    return Server(uvicorn.Config(
        application, loop="uvloop", http=new_protocol(shortcut), ws="none", lifespan="off",
        log_config=None, access_log=False, proxy_headers=False, server_header=False, timeout_keep_alive=KEEP_ALIVE_S,
    ))


async def serve(application):
    """Serves until SIGTERM, and then until all requests are answered: the platform's grace period is the deadline."""
    loop = asyncio.get_running_loop()
    global server
    loop.set_exception_handler(background_error)
    server = new_server(application)
    loop.add_signal_handler(signal.SIGTERM, lambda: drain(linger=LINGER_S))
    loop.add_signal_handler(signal.SIGINT, drain)
    try:
        sock = listen(settings.port)
    except OSError as error:
        end(f"cannot listen on port {settings.port}: {error}")
    serving = asyncio.create_task(server.serve(sockets=[sock]))
    while not server.started and not serving.done():
        await asyncio.sleep(0)
    log("INFO", "ready", port=sock.getsockname()[1], python=sys.version.split()[0])
    metrics = asyncio.create_task(serve_metrics())
    await serving
    metrics.cancel()


def drain(why=None, linger=0):
    """Has the process end when all requests are answered, and not before idle connections have lingered."""
    global draining, last_words
    if draining:
        return
    log("INFO", "draining")
    last_words = why
    draining = True
    if linger and server.server_state.connections:
        asyncio.get_running_loop().call_later(linger, close)
    else:
        close()


def close():
    """Has the server accept no more connections, and close those that carry no request."""
    server.should_exit = True


async def serve_metrics():
    """Serves the metrics on a port of their own. A function runs without them, too."""
    try:
        sock = listen(settings.metrics_port)
    except OSError as error:
        log("WARNING", f"there are no metrics: {error}")
        return
    log("INFO", "metrics", port=sock.getsockname()[1])
    with contextlib.suppress(asyncio.CancelledError):
        await new_server(metrics_app).serve(sockets=[sock])


def background_error(loop, about):
    """Logs what goes wrong where no request waits for it."""
    error = about.get("exception")
    if isinstance(error, CutOff):
        return
    stack = "".join(traceback.format_exception(error)) if error else ""
    log("ERROR", f"in the background: {summary(error) if error else about.get('message')}", stack=stack)


def run():
    global context, is_async, main, read, settings, threads
    # As the first process of a container it gets no signal it does not ask for.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    settings = Settings()
    context = new_context()
    logger = logging.getLogger("uvicorn.error")
    logger.addHandler(ServerLog())
    logger.setLevel(logging.WARNING)
    logger.propagate = False
    sys.path.insert(0, function_dir)
    sys.meta_path.append(SDK)
    application = with_telemetry(app)
    try:
        main = load()
        if takes_nothing(main):
            main, read = flask_main(main), lambda *_: None  # Flask reads the body.
    except SystemExit as error:
        end(f"{os.path.basename(handler_file)}: it ends itself while it is loaded, with {error.code}")
    except BaseException as error:
        end(describe(error), error)
    is_async = inspect.iscoroutinefunction(main)
    # What is there by now stays: the garbage collector need not look at it again.
    gc.freeze()
    try:
        import uvloop
    except ImportError as error:
        end(f"the base image lacks a package of the wrapper's: {error}", error)
    loop = uvloop.new_event_loop()
    asyncio.set_event_loop(loop)
    threads = Threads(loop, THREADS)
    loop.run_until_complete(serve(application))
    flush()
    sys.stdout.flush()
    if last_words:
        end(last_words)
    os._exit(0)  # A main that nobody waits for must not keep the process.


def flush():
    """Does what was left for the end: OpenTelemetry's SDK sends what it still holds."""
    thread = threading.Thread(target=atexit._run_exitfuncs, daemon=True)
    thread.start()
    thread.join(FLUSH_S)


# ---- logs and last words


def now():
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def log(severity, message, **fields):
    entry = {"severity": severity, "timestamp": now(), "message": message, **fields}
    sys.stderr.write(json.dumps(entry, ensure_ascii=False, default=str) + "\n")
    sys.stderr.flush()


class ServerLog(logging.Handler):
    """Has what uvicorn says be as all the rest is."""

    def emit(self, record):
        error = record.exc_info and record.exc_info[1]
        if isinstance(error, CutOff):
            return  # It was logged.
        stack = {"stack": "".join(traceback.format_exception(error))} if error else {}
        log(record.levelname, record.getMessage().strip(), **stack)


def end(reason, error=None):
    """Ends the process with the reason as its last words, which Knative shows in the Revision."""
    if error is not None:
        log("CRITICAL", reason.split("\n", 1)[0], stack="".join(traceback.format_exception(error)))
    words = reason if len(reason) <= TERMINATION_MESSAGE_BYTES else reason[:TERMINATION_MESSAGE_BYTES] + "…"
    sys.stderr.write(words + "\n")
    sys.stderr.flush()
    with contextlib.suppress(OSError):
        # Only where Kubernetes has mounted it: it must not come into being here.
        fd = os.open(TERMINATION_LOG, os.O_WRONLY | os.O_TRUNC)
        os.write(fd, words.encode())
        os.close(fd)
    os._exit(1)


def describe(error):
    """Says what is wrong and where, in words for the function's author."""
    file, line, column = place(error)
    words = [f"{file}:{line}: {explain(error)}" if line else f"{file}: {explain(error)}"]
    text = source_line(file, line)
    if text:
        words.append(text)
        if column:
            words.append(re.sub(r"[^\t]", " ", text[: column - 1]) + "^")
    return "\n".join(words)


def place(error):
    """The topmost line of the function's own code in a traceback."""
    if isinstance(error, SyntaxError) and is_own(error.filename):
        return os.path.relpath(error.filename, function_dir), error.lineno, error.offset
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if is_own(frame.filename):
            return os.path.relpath(frame.filename, function_dir), frame.lineno, None
    return os.path.basename(handler_file), None, None


def is_own(file):
    return bool(file) and file.startswith(function_dir + os.sep) and not file.startswith(
        os.path.join(function_dir, "packages") + os.sep)


def source_line(file, line):
    if not line:
        return ""
    try:
        with open(os.path.join(function_dir, file), encoding="utf-8-sig") as source:
            text = source.read().splitlines()[line - 1]
    except (OSError, IndexError, UnicodeDecodeError):
        return ""
    return text if text.strip() and len(text) <= 160 else ""


def explain(error):
    if isinstance(error, ModuleNotFoundError) and error.name:
        return f"No module named '{error.name}': is it among the function's dependencies?"
    if isinstance(error, SyntaxError):
        return f"{type(error).__name__}: {error.msg}"
    return summary(error)


def summary(error):
    return f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    run()
