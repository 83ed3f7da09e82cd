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

"""Runs the wrapper of a function and replaces it when kubectl fn dev asks for it:
python3 -c launcher.py SETTINGS. launcher.cjs does the same for Node, and launcher.go
describes the requests."""

import contextlib
import hashlib
import hmac
import http.client
import http.server
import json
import os
import secrets
import shutil
import signal
import socket
import socketserver
import subprocess
import sys
import threading
import time
import urllib.parse

LOOPBACK = "127.0.0.1"
POLL_S = 0.005
DRAIN_S = 5

settings = json.loads(sys.argv[1])
partial_suffix = secrets.token_hex(8)

lock = threading.Lock()
starting = None  # a wrapper that does not answer yet
serving = None  # the wrapper that gets the requests
draining = set()


class Wrapper:
    def __init__(self):
        self.port = free_port()
        # Two wrappers run at the same time, and the port of metrics must not be taken.
        env = {**os.environ, "PORT": str(self.port), "OTEL_EXPORTER_PROMETHEUS_PORT": "0"}
        self.process = subprocess.Popen(settings["command"], cwd=settings["source"], env=env, stdin=subprocess.DEVNULL)

    def is_alive(self):
        return self.process.poll() is None

    def is_healthy(self):
        connection = http.client.HTTPConnection(LOOPBACK, self.port)
        try:
            connection.request("GET", settings["health"])
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def watch(self):
        global serving
        self.process.wait()
        with lock:
            if serving is not self:
                return
            serving = None
        print("The function has exited. It starts again when a file changes.", file=sys.stderr, flush=True)

    def drain(self):
        draining.add(self)
        self.process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(DRAIN_S)
        self.process.kill()
        draining.discard(self)


def free_port():
    with socket.create_server((LOOPBACK, 0)) as server:
        return server.getsockname()[1]


def in_background(function, *words):
    threading.Thread(target=function, args=words, daemon=True).start()


def start():
    """Starts a wrapper, and gives it the requests once it is healthy. Reports whether it is."""
    global serving, starting
    with lock:
        for old in [starting, *draining]:
            if old:
                old.process.kill()
        wrapper = starting = Wrapper()
    in_background(wrapper.watch)
    while wrapper.is_alive() and not wrapper.is_healthy():
        time.sleep(POLL_S)
    with lock:
        if starting is not wrapper:
            return False
        starting = None
        if not wrapper.is_alive():
            return False
        before, serving = serving, wrapper
    if before:
        in_background(before.drain)
    return True


def write(handler, file):
    if os.path.isdir(file) and not os.path.islink(file):
        shutil.rmtree(file)
    os.makedirs(os.path.dirname(file), exist_ok=True)
    # A running function must not read half a file.
    partial = f"{file}.{partial_suffix}"
    left = int(handler.headers["Content-Length"])
    with open(partial, "wb") as out:
        while left > 0:
            data = handler.rfile.read(min(left, 1 << 16))
            if not data:
                raise OSError("the file ended early")
            out.write(data)
            left -= len(data)
    os.chmod(partial, 0o755 if handler.headers["Executable"] else 0o644)
    os.replace(partial, file)


def delete(file):
    if os.path.isdir(file) and not os.path.islink(file):
        shutil.rmtree(file)
    else:
        with contextlib.suppress(FileNotFoundError):
            os.remove(file)


class Control(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, status, body=b""):
        self.send_response_only(status)
        if self.close_connection:
            self.send_header("Connection", "close")
        if status != 204:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def handle_any(self):
        try:
            self.answer(*self.run())
        except Exception as error:
            self.close_connection = True
            self.answer(500, str(error).encode())

    do_GET = do_PUT = do_POST = do_DELETE = handle_any

    def is_authorized(self):
        _, _, token = (self.headers["Authorization"] or "").partition("Bearer ")
        return hmac.compare_digest(hashlib.sha256(token.encode()).hexdigest(), settings["tokenHash"])

    def run(self):
        if not self.is_authorized():
            self.close_connection = True
            return (403,)
        path = urllib.parse.unquote(urllib.parse.urlsplit(self.path).path)
        _, kind, *rest = path.split("/")
        file = os.path.join(settings.get(kind, ""), os.path.normpath("/" + "/".join(rest)).lstrip("/"))
        asked = f"{self.command} {kind}"
        if asked == "PUT source":
            write(self, file)
            return (204,)
        if asked == "DELETE source":
            delete(file)
            return (204,)
        if asked == "GET image":
            if not os.path.exists(file):
                return (404,)
            with open(file, "rb") as found:
                return (200, found.read())
        if asked == "POST start":
            return (200, json.dumps({"started": start(), "serving": serving is not None}).encode())
        return (204 if asked == "GET " else 404,)


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, *_):
        pass  # A client has gone.


class Pass(socketserver.BaseRequestHandler):
    """Passes a connection on to the wrapper that gets the requests."""

    def handle(self):
        inside, to = self.request, serving
        if not to:
            # A connection that is reset would end the whole port forwarding.
            inside.sendall(b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
            inside.shutdown(socket.SHUT_WR)
            while inside.recv(1 << 16):
                pass
            return
        with socket.create_connection((LOOPBACK, to.port)) as outside:
            in_background(copy, inside, outside)
            copy(outside, inside)


def copy(source, to):
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            to.sendall(data)
    with contextlib.suppress(OSError):
        to.shutdown(socket.SHUT_WR)


signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
os.makedirs(settings["source"], exist_ok=True)
passing = Server((LOOPBACK, settings["functionPort"]), Pass)
in_background(passing.serve_forever)
Server((LOOPBACK, settings["controlPort"]), Control).serve_forever()
