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

"""What functions written for other platforms use beyond server.py, which loads this when it is first asked for.

That is the rest of Bottle's requests and responses, main() without arguments as in
Flask, and the module sdk. server is the module of server.py. docs/runtimes.md lists
what is missing.
"""

import asyncio
import base64
import contextlib
import contextvars
import copy
import inspect
import io
import os
import re
import sys
import unicodedata
from datetime import date, datetime, timedelta, timezone
from email.utils import formatdate
from http import HTTPStatus
from http.cookies import SimpleCookie
from urllib.parse import urlsplit

# An answer of Flask's that is not larger is sent as a whole.
WHOLE_BYTES = 1 << 20

# Where a WSGI environment has the event.
EVENT = "kiln.event"

# ---- Bottle's request


class Request:
    """The rest of server.Request."""

    @property
    def files(self):
        return multipart(self)[1]

    @property
    def cookies(self):
        fields = server.Fields("")
        for name, morsel in SimpleCookie(self.headers.get("cookie", "")).items():
            fields.add(name, morsel.value)
        return fields

    def get_cookie(self, key, default=None, secret=None, digestmod=None):
        if secret is not None:
            raise TypeError("signed cookies are not supported")
        return self.cookies.get(key) or default

    @property
    def urlparts(self):
        return urlsplit(self.url)

    @property
    def fullpath(self):
        return self.path

    @property
    def script_name(self):
        return "/"

    @property
    def is_xhr(self):
        return self.headers.get("x-requested-with", "").lower() == "xmlhttprequest"

    is_ajax = is_xhr

    @property
    def chunked(self):
        return "chunked" in self.headers.get("transfer-encoding", "").lower()

    @property
    def auth(self):
        scheme, _, encoded = self.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "basic":
            return None
        try:
            user, colon, password = base64.b64decode(encoded, validate=True).decode().partition(":")
        except ValueError:
            return None
        return (user, password) if colon else None

    @property
    def remote_route(self):
        forwarded = self.headers.get("x-forwarded-for")
        if forwarded:
            return [address.strip() for address in forwarded.split(",")]
        return [self.remote_addr] if self.remote_addr else []

    @property
    def environ(self):
        return environ_of(self)

    def get(self, key, default=None):
        return self.environ.get(key, default)

    def keys(self):
        return self.environ.keys()

    def copy(self):
        return copy.copy(self)


def multipart(request):
    """The text fields and the files of a form in parts."""
    if request._parts is None:
        request._parts = read_parts(request.headers.get("content-type", ""), request._body)
    return request._parts


DISPOSITION = re.compile(r';\s*([\w-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s";]+))')


def read_parts(content_type, body):
    forms, files = server.Fields(""), server.Fields("")
    boundary = re.search(r'(?i);\s*boundary\s*=\s*(?:"([^"]+)"|([^\s";]+))', content_type)
    if server.media_type(content_type) != "multipart/form-data" or not boundary:
        return forms, files
    delimiter = b"\r\n--" + (boundary[1] or boundary[2]).encode("latin-1")
    _, *parts = (b"\r\n" + body).split(delimiter)
    if not parts or not parts[-1].startswith(b"--"):
        raise server.StatusError(400, "request body is not multipart/form-data: it is cut off")
    for part in parts[:-1]:
        head, blank, content = part.partition(b"\r\n\r\n")
        headers = server.Headers(
            (name.strip(), value.strip()) for name, colon, value in (line.partition(b":") for line in head.split(b"\r\n")) if colon)
        options = {name.lower(): quoted.replace('\\"', '"') or plain for name, quoted, plain in DISPOSITION.findall(
            headers.get("content-disposition", "").encode("latin-1").decode("utf-8", "replace"))}
        if not blank or "name" not in options:
            raise server.StatusError(400, "request body is not multipart/form-data: a part has no name")
        if "filename" in options:
            files.add(options["name"], FileUpload(content, options["name"], options["filename"], headers))
        else:
            forms.add(options["name"], content.decode("utf-8", "replace"))
    return forms, files


class FileUpload:
    """A file of a form."""

    def __init__(self, content, name, filename, headers):
        self.file = io.BytesIO(content)
        self.name = name
        self.raw_filename = filename
        self.headers = headers
        self.content_length = len(content)

    @property
    def content_type(self):
        return self.headers.get("content-type", "")

    def get_header(self, name, default=None):
        return self.headers.get(name, default)

    @property
    def filename(self):
        """The name without folders, and without what file systems may not take."""
        name = unicodedata.normalize("NFKD", self.raw_filename).encode("ascii", "ignore").decode()
        name = re.sub(r"[^\w.\s-]", "", re.split(r"[/\\]", name)[-1])
        return re.sub(r"[\s-]+", "-", name).strip(".-")[:255] or "empty"

    def save(self, destination, overwrite=False, chunk_size=None):
        """Writes the file to a path, into a folder, or to what is open."""
        content = self.file.getvalue()
        if not isinstance(destination, (str, os.PathLike)):
            destination.write(content)
            return
        if os.path.isdir(destination):
            destination = os.path.join(destination, self.filename)
        if not overwrite and os.path.exists(destination):
            raise OSError("the file exists")
        with open(destination, "wb") as file:
            file.write(content)


def environ_of(request):
    """The request as WSGI has it."""
    scope, headers = request.scope, request.headers
    url = urlsplit(request.url)
    environ = {
        "REQUEST_METHOD": request.method,
        "SCRIPT_NAME": "",
        "PATH_INFO": scope["path"].encode().decode("latin-1"),
        "QUERY_STRING": request.query_string,
        "SERVER_NAME": url.hostname or "localhost",
        "SERVER_PORT": "443" if url.scheme == "https" else "80",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "REMOTE_ADDR": request.remote_addr or "",
        "CONTENT_TYPE": headers.get("content-type", ""),
        "CONTENT_LENGTH": str(len(request._body)),
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": url.scheme,
        "wsgi.input": io.BytesIO(request._body),
        "wsgi.input_terminated": True,
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
    }
    for name, value in headers.items():
        # A field with "_" would pass for another, with "-".
        if name not in ("content-type", "content-length") and "_" not in name:
            environ["HTTP_" + name.upper().replace("-", "_")] = value
    return environ


# ---- Bottle's response


class Response:
    """The rest of server.Response."""

    @property
    def status_code(self):
        return server.status_of(self.status)

    @property
    def status_line(self):
        code = self.status_code
        try:
            return f"{code} {HTTPStatus(code).phrase}"
        except ValueError:
            return f"{code} Unknown"

    @property
    def headerlist(self):
        return [*self.headers.items(), *(("set-cookie", cookie) for cookie in self.cookies)]

    def iter_headers(self):
        return iter(self.headerlist)

    @property
    def charset(self):
        found = re.search(r"charset=([^\s;]+)", self.content_type)
        return found[1] if found else "UTF-8"

    def set_cookie(self, name, value, secret=None, digestmod=None, **options):
        if secret is not None:
            raise TypeError("signed cookies are not supported")
        cookie = SimpleCookie({name: value})
        for option, given in options.items():
            option = option.lower().replace("_", "-")
            if option in ("max-age", "maxage"):
                option = "max-age"
                given = int(given.total_seconds()) if isinstance(given, timedelta) else int(given)
            elif option == "expires":
                given = http_date(given)
            elif option == "same-site":
                option = "samesite"
            if isinstance(given, str) and re.search(r"[;\x00-\x1f\x7f]", given):
                raise ValueError(f"{given!r} is not allowed in a cookie")
            cookie[name][option] = given
        self.add_header("set-cookie", cookie[name].OutputString())

    def delete_cookie(self, key, **options):
        self.set_cookie(key, "", **{**options, "max_age": -1, "expires": 0})


def http_date(value):
    if isinstance(value, str):
        return value
    if isinstance(value, datetime):
        value = (value if value.tzinfo else value.replace(tzinfo=timezone.utc)).timestamp()
    elif isinstance(value, date):
        value = datetime(value.year, value.month, value.day, tzinfo=timezone.utc).timestamp()
    return formatdate(value, usegmt=True)


# ---- main() without arguments, as in Flask


def flask_main(function, flask):
    """Makes a main(event, context) of a function that takes what Flask's request has."""
    class Application(flask.Flask):
        """Flask without routes: each request is the function's."""

        def create_url_adapter(self, request):
            return None

        def dispatch_request(self, *_):
            result = function()
            return asyncio.run(result) if inspect.iscoroutine(result) else result

    application = Application("function", root_path=server.function_dir, static_folder=None)
    # What the function raises is logged and answered as with all other functions.
    application.config["PROPAGATE_EXCEPTIONS"] = True

    def main(event, _):
        own = contextvars.copy_context()
        return own.run(answer, application, event, own)

    return main


def answer(application, event, own):
    """Has a WSGI application answer: sets status and header fields, and returns the body."""
    started = []

    def start_response(status, headers, exc_info=None):
        started[:] = status, headers

    pieces = application.wsgi_app({**environ_of(event.request), EVENT: event}, start_response)
    status, headers = started
    response, length = event.response, None
    response.status = status
    for name, value in headers:
        if name.lower() == "content-length":
            length = int(value)
        else:
            response.add_header(name, value)
    if event.request.method == "HEAD" or length is None or length > WHOLE_BYTES:
        return Steps(own, pieces)
    with contextlib.closing(pieces) if hasattr(pieces, "close") else contextlib.nullcontext():
        return b"".join(pieces)


class Steps:
    """An iterator whose steps run in one context, as those of Flask's stream_with_context must."""

    def __init__(self, context, pieces):
        self.context = context
        self.pieces = pieces
        self.iterator = iter(pieces)

    def __iter__(self):
        return self

    def __next__(self):
        return self.context.run(next, self.iterator)

    def close(self):
        if hasattr(self.pieces, "close"):
            self.context.run(self.pieces.close)


# ---- the module sdk, as Kyma has it


class ReceivedEvent(dict):
    """A CloudEvent with the methods of the package cloudevents."""

    def get_attributes(self):
        return {name: value for name, value in self.items() if name != "data"}

    def get_data(self):
        return self.get("data")

    def get_id(self):
        return self["id"]

    def get_source(self):
        return self["source"]

    def get_type(self):
        return self["type"]

    def get_specversion(self):
        return self["specversion"]

    def get_datacontenttype(self):
        return self.get("datacontenttype")

    def get_dataschema(self):
        return self.get("dataschema")

    def get_subject(self):
        return self.get("subject")

    def get_time(self):
        return datetime.fromisoformat(self["time"]) if "time" in self else None

    def get_extension(self, name):
        return self.get(name)


def current_event():
    flask = sys.modules.get("flask")
    return flask.request.environ.get(EVENT) if flask and flask.has_request_context() else None


def get_cloud_event():
    """The CloudEvent of the request that main() handles, or None."""
    event = current_event()
    if event is None:
        raise RuntimeError("get_cloud_event() works within a call of main() without arguments only")
    headers = dict(event.request.scope["headers"])
    structured = server.media_type(headers.get(b"content-type", b"").decode("latin-1")) == server.STRUCTURED_TYPE
    if not structured and not (b"ce-type" in headers and b"ce-source" in headers):
        return None
    read = server.Event(event.request)
    server.read_event(read, headers, event.request._body)
    return ReceivedEvent({name.removeprefix("ce-"): value for name, value in read.items() if name.startswith("ce-") or name == "data"})


def emit_cloud_event(type, source, data, optional_attributes=None):
    """Sends a new CloudEvent to the sink that the Function is bound to, and waits for it."""
    event = current_event() or server.Event(server.Request({"method": "", "headers": []}))
    return event.emitCloudEvent(type, source, data, optional_attributes)


SDK = {
    "emit_cloud_event": emit_cloud_event,
    "get_body_size_limit": lambda: server.settings.body_limit,
    "get_cloud_event": get_cloud_event,
    "get_function_name": lambda: os.environ.get("FUNC_NAME", ""),
    "get_namespace": lambda: os.environ.get("FUNC_NAMESPACE", ""),
    "get_runtime": lambda: os.environ.get("FUNC_RUNTIME", ""),
    "get_timeout": lambda: server.settings.timeout,
    "get_tracer": lambda: server.find_tracer(),
}
