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

"""Tests of the wrapper as a process, through its port.

test/conformance tests the behaviour that all runtimes share.
"""

import asyncio
import gc
import gzip
import http.client
import http.server
import json
import os
import pathlib
import queue
import re
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import unittest
import weakref
import zlib

import server

SERVER = pathlib.Path(__file__).with_name("server.py")


class Function:
    """A running function. `source` is the text of handler.py, and `files` are more files."""

    def __init__(self, test, source, files=None, **env):
        self.folder = tempfile.TemporaryDirectory()
        test.addCleanup(self.folder.cleanup)
        for name, text in {**(files or {}), "handler.py": textwrap.dedent(source)}.items():
            file = pathlib.Path(self.folder.name, name)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        environment = {
            "PATH": os.environ["PATH"], "PORT": "0", "OTEL_EXPORTER_PROMETHEUS_PORT": "0",
            "PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1",
        }
        self.process = subprocess.Popen(
            [sys.executable, "-P", str(SERVER), f"{self.folder.name}/handler.py"],
            env={**environment, **env}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        test.addCleanup(self.end)
        self.stdout, self.stderr, self.entries = [], [], queue.Queue()
        self.printed = threading.Condition()
        self.readers = [
            threading.Thread(target=self.read, args=(self.process.stdout, self.stdout), daemon=True),
            threading.Thread(target=self.read, args=(self.process.stderr, self.stderr), daemon=True),
        ]
        for reader in self.readers:
            reader.start()

    def read(self, pipe, lines):
        for line in pipe:
            with self.printed:
                lines.append(line)
                self.printed.notify_all()
            if line.startswith("{"):
                self.entries.put(json.loads(line))
        self.entries.put(None)

    def end(self):
        self.process.kill()
        self.finish()
        self.process.stdout.close()
        self.process.stderr.close()

    def finish(self):
        """Waits for the process and its output. Returns the exit code."""
        code = self.process.wait(30)
        for reader in self.readers:
            reader.join(30)
        return code

    def until_printed(self, *lines):
        """Waits until stdout has exactly these lines."""
        with self.printed:
            if not self.printed.wait_for(lambda: self.stdout == list(lines), 30):
                raise AssertionError(f"it printed {self.stdout}, want {list(lines)}")

    def entry(self, message):
        """Waits for a line of the wrapper's log."""
        while entry := self.entries.get(timeout=30):
            if entry["message"].startswith(message):
                return entry
        raise AssertionError(f'it ended without "{message}":\n{"".join(self.stderr)}')

    def ready(self):
        self.port = self.entry("ready")["port"]
        return self

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)

    def send(self, path="/", body=None, method=None, headers=None, connection=None):
        own = connection or self.connect()
        try:
            own.request(method or ("GET" if body is None else "POST"), path, body, headers or {})
            answer = own.getresponse()
            return answer.status, answer.headers, answer.read().decode()
        finally:
            if connection is None:
                own.close()


class Test(unittest.TestCase):
    maxDiff = None

    def serve(self, source, files=None, **env):
        return Function(self, source, files, **env).ready()

    def fails(self, source, files=None, **env):
        """Runs a function that must fail to start. Returns the error message."""
        function = Function(self, source, files, **env)
        self.assertEqual(function.finish(), 1)
        return "".join(line for line in function.stderr if not line.startswith('{"severity"')).rstrip("\n")


class TestMain(Test):
    def test_asynchronous(self):
        function = self.serve(
            """
            import asyncio
            async def main(event, context):
                if event["extensions"]["request"].path == "/waits":
                    await asyncio.sleep(0.01)
                return "later"
            """)
        self.assertEqual(function.send()[2], "later")
        self.assertEqual(function.send("/waits")[2], "later")

    def test_a_main_that_blocks_does_not_block_others(self):
        function = self.serve(
            """
            import threading
            wait = threading.Event()
            def main(event, context):
                if event["extensions"]["request"].path == "/go":
                    wait.set()
                    return "went"
                wait.wait()
                return "waited"
            """)
        first = function.connect()
        first.request("GET", "/")
        self.assertEqual(function.send("/healthz")[2], "ok")
        self.assertEqual(function.send("/go")[2], "went")
        self.assertEqual(first.getresponse().read(), b"waited")
        first.close()

    def test_another_name_of_main(self):
        function = self.serve("def handle(event, context): return 1", FUNC_HANDLER="handle")
        self.assertEqual(function.send()[2], "1")

    def test_other_modules_and_one_named_server(self):
        function = self.serve("import server\ndef main(event, context): return server.ONE", {"server.py": "ONE = 1"})
        self.assertEqual(function.send()[2], "1")

    def test_print_goes_to_stdout_unchanged(self):
        function = self.serve("def main(event, context): print('hello')")
        function.send()
        function.process.send_signal(signal.SIGTERM)
        self.assertEqual(function.finish(), 0)
        self.assertEqual(function.stdout, ["hello\n"])

    def test_responses_of_web_frameworks(self):
        function = self.serve(
            """
            class HTTPResponse(Exception):
                def __init__(self, body, status, **headers):
                    self.body, self.status_code, self.headerlist = body, status, list(headers.items())
                    self.headers = headers
            def main(event, context):
                path = event["extensions"]["request"].path
                if path == "/raised":
                    raise HTTPResponse("gone", 410)
                if path == "/pieces":
                    return HTTPResponse(["é", b"b"], 400)
                return HTTPResponse({"a": 1} if path == "/object" else "", 202, x="y")
            """)
        status, headers, body = function.send("/object")
        self.assertEqual((status, headers["x"], headers["content-type"], body), (202, "y", "application/json", '{"a":1}'))
        self.assertEqual(function.send()[::2], (202, ""))
        self.assertEqual(function.send("/raised")[::2], (410, "gone"))
        self.assertEqual(function.send("/pieces")[::2], (400, "éb"))

    def test_request_as_in_bottle(self):
        function = self.serve(
            """
            def main(event, context):
                r = event["extensions"]["request"]
                return [r.query.a, r.query.getall("a"), r.query.get("b"), r.query.none, r.forms.get("c"), r.params["a"], r.json,
                        r.body.read().decode(), r.get_header("X-Sent"), r.content_type, r.url, event.get("nothing"), "x-sent" in r.headers]
            """)
        headers = {"content-type": "application/x-www-form-urlencoded", "x-sent": "s", "host": "h"}
        got = json.loads(function.send("/p?a=1&a=2&b=3", "c=4", headers=headers)[2])
        self.assertEqual(got, ["2", ["1", "2"], "3", "", "4", "2", None, "c=4", "s", "application/x-www-form-urlencoded",
                               "http://h/p?a=1&a=2&b=3", None, True])

    def test_fields_as_in_bottle(self):
        function = self.serve(
            """
            import copy

            def main(event, context):
                r = event["extensions"]["request"]
                return [r.query.get(key="a"), r.query.get(key="none", default="d"), r.query.get("a", index=0), r.query.get("a", type=int),
                        r.query.get("b", "d", type=int), r.query.get("a", "d", index=5), r.query.getone("a"), r.query.getlist("a"),
                        r.query.getunicode("b"), r.query.allitems(), r.params.getall("a"), r.params.get("c"), r.params["a"],
                        copy.deepcopy(r.query)["a"], r.headers.get("x-none", default="d")]
            """)
        got = json.loads(function.send("/?a=1&a=2&b=x", "a=3&c=4", headers={"content-type": "application/x-www-form-urlencoded"})[2])
        self.assertEqual(got, ["2", "d", "1", 2, "d", "d", "2", ["1", "2"], "x", [["a", "1"], ["a", "2"], ["b", "x"]], ["1", "2", "3"], "4", "3",
                               "2", "d"])


class TestBottle(Test):
    """The documented API of Bottle's requests and responses."""

    def ask(self, expression, path="/", **request):
        function = self.serve(f"""
            def main(event, context):
                request = event["extensions"]["request"]
                return {{"it": {expression}}}
            """)
        return json.loads(function.send(path, **request)[2])["it"]

    def test_request(self):
        form = {"content-type": "application/x-www-form-urlencoded"}
        for expression, request, want in (
            ("dict(request.cookies)", {"headers": {"Cookie": 'a=1; b="x y"'}}, {"a": "1", "b": "x y"}),
            ("[request.get_cookie('a'), request.get_cookie('b'), request.get_cookie('b', default='d'), request.cookies.a]",
             {"headers": {"Cookie": "a=1"}}, ["1", None, "d", "1"]),
            ("request.auth", {"headers": {"Authorization": "Basic dTpwOnE="}}, ["u", "p:q"]),
            ("request.auth", {"headers": {"Authorization": "Basic é".encode()}}, None),
            ("[request.is_xhr, request.is_ajax]", {"headers": {"X-Requested-With": "XMLHttpRequest"}}, [True, True]),
            ("[request.remote_addr, request.remote_route]", {"headers": {"X-Forwarded-For": "10.0.0.1, 10.0.0.2"}},
             ["10.0.0.1", ["10.0.0.1", "10.0.0.2"]]),
            ("[request.urlparts.path, request.urlparts.query, request.urlparts.netloc, request.fullpath, request.script_name]",
             {"path": "/a?b=c", "headers": {"Host": "h"}}, ["/a", "b=c", "h", "/a", "/"]),
            ("[request.environ['PATH_INFO'], request['HTTP_X_A'], request.get('HTTP_X_B', 'none'), 'HTTP_X_C' in request.keys()]",
             {"path": "/a", "headers": {"X-A": "1", "X_C": "1"}}, ["/a", "1", "none", False]),
            ("[request.copy().path, request.chunked]", {"path": "/a"}, ["/a", False]),
            ("dict(request.POST)", {"headers": form, "body": "a=1&b=2"}, {"a": "1", "b": "2"}),
        ):
            with self.subTest(expression):
                self.assertEqual(self.ask(expression, **request), want)

    FORM = (b'--b\r\nContent-Disposition: form-data; name="a"\r\n\r\n\xc3\xa9\r\n'
            b'--b\r\nContent-Disposition: form-data; name="f"; filename="C:\\\\d\\\\n \\"1\\" \xc3\xa9.txt"\r\nContent-Type: text/plain\r\n\r\n'
            b"\r\n--c\x00\n\r\n--b\r\nContent-Disposition: form-data; name=f; filename=g\r\n\r\n\r\n--b--\r\n")
    FORM_TYPE = {"Content-Type": 'multipart/form-data; boundary="b"'}

    def test_files(self):
        function = self.serve(
            """
            def main(event, context):
                request = event["extensions"]["request"]
                upload, second = request.files.getall("f")
                upload.save(destination := f"/tmp/kiln-{id(upload)}")
                saved = open(destination, "rb").read()
                __import__("os").remove(destination)
                return [request.forms.a, upload.name, upload.filename, upload.raw_filename, upload.content_type, upload.content_length,
                        upload.file.read() == saved, saved.hex(), second.filename, second.content_length, sorted(request.POST), list(request.params)]
            """)
        answer = function.send(body=self.FORM, headers=self.FORM_TYPE)
        self.assertEqual(json.loads(answer[2]), [
            "é", "f", "n-1-e.txt", 'C:\\\\d\\\\n "1" é.txt', "text/plain", 7, True, b"\r\n--c\x00\n".hex(), "g", 0, ["a", "f"], ["a"]])

    def test_incomplete_files(self):
        function = self.serve("def main(event, context): return list(event['extensions']['request'].files)")
        for body in (self.FORM[:-8], b"", b"--b\r\n\r\nx\r\n--b--", b"--b\r\nContent-Disposition: form-data\r\n\r\nx\r\n--b--"):
            with self.subTest(body):
                status, _, text = function.send(body=body, headers=self.FORM_TYPE, method="POST")
                self.assertEqual(status, 400, text)
        self.assertEqual(function.send(body=b"x", headers={"Content-Type": "multipart/mixed; boundary=x"})[2], "[]")

    def test_response(self):
        function = self.serve(
            """
            from datetime import datetime, timedelta
            def main(event, context):
                response = event["extensions"]["response"]
                response.status = "201 Made"
                response.content_type = "text/csv; charset=latin1"
                response.headers["X-A"] = "1"
                response.add_header("X-A", "2")
                response.set_cookie("a", "x y", path="/", httponly=True, samesite="lax", max_age=timedelta(minutes=1))
                response.set_cookie("b", "1", expires=datetime(2030, 1, 1), secure=True)
                response.delete_cookie("c", path="/")
                return ",".join([str(response.status_code), response.status_line, response.charset, response.get_header("x-a"),
                                 str(len(list(response.iter_headers())))])
            """)
        status, headers, text = function.send()
        self.assertEqual((status, headers["content-type"], headers["x-a"], text),
                         (201, "text/csv; charset=latin1", "1, 2", "201,201 Created,latin1,1, 2,5"))
        self.assertEqual(headers.get_all("set-cookie"), [
            'a="x y"; HttpOnly; Max-Age=60; Path=/; SameSite=lax', "b=1; expires=Tue, 01 Jan 2030 00:00:00 GMT; Secure",
            'c=""; expires=Thu, 01 Jan 1970 00:00:00 GMT; Max-Age=-1; Path=/'])

    def test_cookies_cannot_hold_other_attributes(self):
        function = self.serve(
            "def main(event, context): event['extensions']['response'].set_cookie('a', '1', path='/; Secure')")
        self.assertEqual(function.send()[0], 500)

    def test_signed_cookies_are_refused(self):
        function = self.serve("def main(event, context): event['extensions']['request'].get_cookie('a', secret='s')")
        self.assertEqual(function.send()[0], 500)

    def test_all_that_is_announced_exists(self):
        more = server.load_more()
        for of, names in server.MORE.items():
            defined = {name for name in vars(getattr(more, of.__name__)) if not name.startswith("__")}
            self.assertEqual(set(names), defined)

    def test_responses_keep_all_cookies(self):
        function = self.serve(
            """
            class Response:
                status_code, body, headers = 200, "x", None
                headerlist = [("Set-Cookie", "a=1"), ("Set-Cookie", "b=2"), ("Vary", "A"), ("Vary", "B")]
            def main(event, context):
                event.setResponseHeader("Vary", "C")
                return Response()
            """)
        _, headers, _ = function.send()
        self.assertEqual((headers.get_all("set-cookie"), headers["vary"]), (["a=1", "b=2"], "A, B"))


class TestFlask(Test):
    """main() without arguments."""

    def test_request_and_answers(self):
        function = self.serve(
            """
            import flask
            def main():
                request = flask.request
                if request.path == "/text":
                    return f"hello {request.args.get('name', 'World')}"
                if request.path == "/dict":
                    return {"json": request.get_json(), "type": request.content_type}
                if request.path == "/tuple":
                    return "made", 201, {"X-A": "1"}
                if request.path == "/response":
                    return flask.Response(response="{}", status=202, mimetype="application/json")
                if request.path == "/form":
                    return [request.form["a"], request.files["f"].read().hex(), request.headers["X-A"], request.host, request.method]
                if request.path == "/cookies":
                    response = flask.make_response(request.cookies["a"])
                    response.set_cookie("b", "1")
                    response.set_cookie("c", "2")
                    return response
                if request.path == "/abort":
                    flask.abort(404)
                if request.path == "/redirect":
                    return flask.redirect("/there")
                if request.path == "/none":
                    return None
                return request.path
            """)
        json_type = {"Content-Type": "application/json"}
        form = {**TestBottle.FORM_TYPE, "X-A": "a", "Host": "h"}
        for path, request, status, content_type, text in (
            ("/text", {}, 200, "text/html; charset=utf-8", "hello World"),
            ("/text?name=%C3%A9", {}, 200, "text/html; charset=utf-8", "hello é"),
            ("/dict", {"body": '{"a":1}', "headers": json_type}, 200, "application/json", None),
            ("/dict", {"body": "{", "headers": json_type}, 400, "text/html; charset=utf-8", None),
            ("/tuple", {}, 201, "text/html; charset=utf-8", "made"),
            ("/response", {}, 202, "application/json", "{}"),
            ("/form", {"body": TestBottle.FORM, "headers": form}, 200, "application/json", None),
            ("/abort", {}, 404, "text/html; charset=utf-8", None),
            ("/redirect", {}, 302, "text/html; charset=utf-8", None),
            ("/none", {}, 500, "application/json", None),
            ("/%C3%A9/deep", {}, 200, "text/html; charset=utf-8", "/é/deep"),
            ("/text", {"method": "OPTIONS"}, 200, "text/html; charset=utf-8", "hello World"),
            ("/text", {"method": "HEAD"}, 200, "text/html; charset=utf-8", ""),
        ):
            with self.subTest(path, **request):
                answer = function.send(path, **request)
                self.assertEqual((answer[0], answer[1]["content-type"]), (status, content_type), answer[2])
                if text is not None:
                    self.assertEqual(answer[2], text)
        self.assertEqual(json.loads(function.send("/form", TestBottle.FORM, headers=form)[2]),
                         ["é", b"\r\n--c\x00\n".hex(), "a", "h", "POST"])
        self.assertEqual(function.send("/cookies", headers={"Cookie": "a=1"})[1].get_all("set-cookie"), ["b=1; Path=/", "c=2; Path=/"])
        self.assertEqual(function.send("/redirect")[1]["location"], "/there")

    def test_errors_are_those_of_all_functions(self):
        function = self.serve(
            """
            class Gone(Exception):
                status = 410
            def main():
                import flask
                raise Gone("gone") if flask.request.path == "/gone" else ValueError("secret")
            """)
        self.assertEqual(function.send("/gone")[::2], (410, '{"message":"gone"}'))
        status, _, text = function.send()
        self.assertEqual((status, json.loads(text)["message"]), (500, "Internal Server Error"))
        self.assertIn("ValueError: secret", function.entry("main failed: ValueError")["stack"])

    def test_streams_keep_the_request(self):
        function = self.serve(
            """
            import flask
            def main():
                def pieces():
                    for name in flask.request.args.getlist("a"):
                        yield name
                return flask.Response(flask.stream_with_context(pieces()), mimetype="text/plain")
            """)
        status, headers, text = function.send("/?a=1&a=2&a=3")
        self.assertEqual((status, headers["content-length"], text), (200, None, "123"))

    def test_files(self):
        function = self.serve(
            "import flask\ndef main(): return flask.send_file(flask.request.args['name'])",
            {"small.txt": "small", "large.bin": "x" * (2 << 20)})
        for name, length in (("small.txt", 5), ("large.bin", 2 << 20)):
            status, _, text = function.send(f"/?name={name}")
            self.assertEqual((status, len(text)), (200, length))

    def test_asynchronous(self):
        function = self.serve(
            """
            import asyncio, flask
            async def main():
                await asyncio.sleep(0)
                return flask.request.path
            """)
        self.assertEqual(function.send("/a")[2], "/a")

    def test_requests_do_not_mix(self):
        function = self.serve(
            """
            import flask, threading
            both = threading.Barrier(2)
            def main():
                both.wait(10)
                return flask.request.path
            """)
        connections = [function.connect() for _ in range(2)]
        for number, connection in enumerate(connections):
            connection.request("GET", f"/{number}")
        for number, connection in enumerate(connections):
            self.assertEqual(connection.getresponse().read().decode(), f"/{number}")
            connection.close()

    def test_pages_of_other_origins(self):
        function = self.serve("import flask\ndef main(): return 'x'")
        self.assertEqual(function.send(headers={"Origin": "http://a"})[1]["access-control-allow-origin"], "*")

    def test_large_bodies(self):
        function = self.serve("import flask\ndef main(): return str(len(flask.request.get_data()))")
        self.assertEqual(function.send(body="x" * (1 << 20))[2], str(1 << 20))
        self.assertEqual(function.send(body="x" * ((1 << 20) + 1))[0], 413)

    def test_is_told_by_the_arguments(self):
        wrapper = "import functools\ndef decorate(f):\n    @functools.wraps(f)\n    def wrapper({0}): return f({1})\n    return wrapper\n"
        for source, want, api in (
            ("def main(): return 'flask'", "flask", ""),
            ("def main(a=1): return 'flask'", "flask", ""),
            ("def main(event=None, context=None): return 'event'", "event", ""),
            ("def main(*arguments): return 'event' if len(arguments) == 2 else 'flask'", "event", ""),
            ("def main(*arguments): return 'event' if len(arguments) == 2 else 'flask'", "flask", "request"),
            ("class Main:\n    def __call__(self): return 'flask'\nmain = Main()", "flask", ""),
            (wrapper.format("*a, **k", "*a, **k") + "@decorate\ndef main(): return 'flask'", "flask", ""),
            (wrapper.format("*a, **k", "*a, **k") + "@decorate\ndef main(event, context): return 'event'", "event", ""),
            (wrapper.format("event, context", "") + "@decorate\ndef main(): return 'event'", "event", ""),
        ):
            with self.subTest(source, api=api):
                self.assertEqual(self.serve(source, FUNC_API=api).send()[2], want)

    def test_flask_is_missing(self):
        words = self.fails(
            """
            import sys
            class Nothing:
                @staticmethod
                def find_spec(name, path=None, target=None):
                    if name == "flask":
                        raise ModuleNotFoundError("No module named 'flask'", name=name)
            sys.meta_path.insert(0, Nothing)
            def main(): return "x"
            """)
        self.assertIn("handler.py: main takes no arguments, as in Flask: add flask to the function's dependencies", words)

    def test_an_api_that_is_none(self):
        self.assertEqual(self.fails("def main(): return 1", FUNC_API="flask"),
                         'environment variable FUNC_API: "flask" is not valid: it is event or request')

    def test_the_module_sdk(self):
        sink, got = serve_sink(self)
        function = self.serve(
            """
            import flask, sdk
            def main():
                if flask.request.path == "/emit":
                    return str(sdk.emit_cloud_event("t", "/s", {"a": 1}, {"subject": "x"}))
                event = sdk.get_cloud_event()
                with sdk.get_tracer().start_as_current_span("a"):
                    pass
                return [event and [event.get_id(), event.get_type(), event.get_source(), event.get_specversion(), event.get_subject(),
                                   event.get_data(), event.get_time() and event.get_time().year],
                        sdk.get_function_name(), sdk.get_namespace(), sdk.get_runtime(), sdk.get_timeout(), sdk.get_body_size_limit()]
            """, K_SINK=sink, FUNC_NAME="f", FUNC_NAMESPACE="n", FUNC_RUNTIME="python313", FUNC_TIMEOUT="10", REQ_MB_LIMIT="2")
        binary = {"ce-specversion": "1.0", "ce-id": "1", "ce-source": "/s", "ce-type": "t", "ce-subject": "caf%C3%A9",
                  "ce-time": "2026-01-01T00:00:00Z", "content-type": "application/json"}
        structured = {"content-type": "application/cloudevents+json"}
        for request, want in (
            ({"headers": binary, "body": '{"a":1}'}, ["1", "t", "/s", "1.0", "café", {"a": 1}, 2026]),
            ({"headers": structured, "body": '{"specversion":"1.0","id":"2","source":"/s","type":"t","data":[1]}'},
             ["2", "t", "/s", "1.0", None, [1], None]),
            ({}, None),
        ):
            self.assertEqual(json.loads(function.send(**request)[2]), [want, "f", "n", "python313", 10, 2 << 20])
        self.assertEqual(function.send(headers=structured, body="{}")[0], 400)
        self.assertEqual(function.send("/emit")[2], "202")
        self.assertEqual(got[0][1] | {"id": 0, "time": 0}, {
            "id": 0, "time": 0, "type": "t", "source": "/s", "specversion": "1.0", "datacontenttype": "application/json",
            "subject": "x", "data": {"a": 1}})

    def test_a_module_sdk_of_its_own_wins(self):
        function = self.serve("import sdk\ndef main(event, context): return sdk.OWN", {"sdk.py": "OWN = 'own'"})
        self.assertEqual(function.send()[2], "own")


class TestThreads(Test):
    def test_one_call_for_each_thread(self):
        function = self.serve(
            """
            import threading
            everybody = threading.Barrier(64)
            def main(event, context):
                everybody.wait()
                return threading.active_count()
            """)
        connections = [function.connect() for _ in range(128)]
        for connection in connections:
            connection.request("GET", "/")
        counts = [int(connection.getresponse().read()) for connection in connections]
        self.assertLessEqual(max(counts), 65)
        for connection in connections:
            connection.close()

    def test_a_call_continues_after_its_timeout(self):
        function = self.serve(
            """
            import sys
            import threading
            go = threading.Event()
            def main(event, context):
                if event["extensions"]["request"].path == "/go":
                    go.set()
                go.wait()
                sys.stdout.write("went on\\n")
            """, FUNC_TIMEOUT="0.4")
        self.assertEqual(function.send()[0], 504)
        self.assertEqual(function.send("/go")[0], 204)
        function.until_printed("went on\n", "went on\n")
        function.port = function.entry("metrics")["port"]
        lines = function.send("/metrics")[2].splitlines()
        self.assertIn('function_calls_total{method="GET"} 2', lines)
        self.assertIn('function_failures_total{method="GET"} 1', lines)

    def test_main_is_not_called_after_the_timeout(self):
        begun, go, called = threading.Event(), threading.Event(), []

        def block():
            begun.set()
            go.wait()

        async def calls():
            threads = server.Threads(asyncio.get_running_loop(), 1)
            blocked = asyncio.create_task(threads.run(block))
            while not begun.is_set():
                await asyncio.sleep(0)
            late = asyncio.create_task(threads.run(called.append, "late"))
            await asyncio.sleep(0)
            late.cancel()
            await asyncio.wait([late])
            go.set()
            await asyncio.gather(blocked, threads.run(called.append, "next"))

        asyncio.run(calls())
        self.assertEqual(called, ["next"])

    def test_calls_that_hang_do_not_block_others(self):
        hang, called = threading.Event(), []

        async def calls():
            threads = server.Threads(asyncio.get_running_loop(), 2)
            hung = [asyncio.create_task(threads.run(hang.wait)) for _ in range(2)]
            while len(threads.begun) < 2:
                await asyncio.sleep(0)
            waiting = asyncio.create_task(threads.run(called.append, "waiting"))
            await asyncio.sleep(0)
            hung[0].cancel()
            await asyncio.wait([waiting], timeout=30)
            self.assertEqual((called, threads.count, threads.lost), (["waiting"], 2, 1))
            hung[1].cancel()
            hang.set()  # Both threads end, and take no call any more.
            while threads.lost or threads.begun:
                await asyncio.sleep(0)
            await threads.run(called.append, "last")
            self.assertLessEqual(threads.count, 2)

        asyncio.run(calls())
        self.assertEqual(called, ["waiting", "last"])

    def test_too_many_calls_that_hang_end_the_process(self):
        function = self.serve(
            """
            import __main__
            import threading
            __main__.THREADS = 2
            def main(event, context):
                if event["extensions"]["request"].path == "/hangs":
                    threading.Event().wait()
                return "on"
            """, FUNC_TIMEOUT="0.3")
        for number in range(3):
            self.assertEqual(function.send("/")[2], "on", number)
            self.assertEqual(function.send("/hangs")[0], 504)
        self.assertEqual(function.finish(), 1)
        self.assertIn("3 calls of main hang though their time is up", function.stderr[-1])

    def test_exceptions_are_not_kept_in_memory(self):
        class Large:
            pass

        made = []

        def fail():
            large = Large()
            made.append(weakref.ref(large))
            raise ValueError("secret")

        async def call():
            threads = server.Threads(asyncio.get_running_loop(), 1)
            try:
                await threads.run(fail)
            except ValueError:  # assertRaises would clear the frames.
                pass

        self.addCleanup(gc.enable)
        gc.disable()
        asyncio.run(call())
        self.assertIsNone(made[0]())

    def test_any_exception_is_an_error_of_its_call(self):
        function = self.serve(
            """
            import sys
            def main(event, context):
                path = event["extensions"]["request"].path
                if path == "/exit":
                    sys.exit(1)
                if path == "/stop":
                    next(iter([]))
                return "on"
            """)
        for path in ("/exit", "/stop"):
            self.assertEqual(function.send(path)[1]["content-type"], "application/json", path)
            self.assertEqual(function.send(path)[0], 500, path)
        self.assertEqual(function.send()[2], "on")


class TestShortcut(Test):
    """A complete request takes a shortcut past ASGI. Its answer must not differ."""

    MAIN = """
        import os
        import uvicorn
        uvicorn.__version__ = os.environ.get("UVICORN_VERSION", uvicorn.__version__)
        async def later():
            yield "one "
            yield b"two"
        async def main(event, context):
            request = event["extensions"]["request"]
            if request.path == "/way":
                return "shortcut" if "kiln.whole" in request.scope else "ASGI"
            if request.path == "/stream":
                return later()
            if request.path == "/nothing":
                return None
            if request.path == "/large":
                return "x" * 2**21
            if request.path == "/created":
                event.setResponseStatus(201)
                event.setResponseHeader("x-a", "1")
            if request.path == "/throws":
                raise ValueError("secret")
            if request.path == "/nan":
                return float("nan")
            return [request.method, request.path, request.query_string, request.headers, request.url, event["data"], request.content_length]
        """

    LAST = b"GET /last HTTP/1.1\r\nConnection: close\r\n\r\n"

    # Requests by name. A piece is sent after the last one was read.
    REQUESTS = {
        "plain": b"GET / HTTP/1.1\r\nHost: h\r\n\r\n",
        "with a query": b"GET /a%20b/%C3%A9?c=%20d?e&f HTTP/1.1\r\nHost: h\r\n\r\n",
        "with a fragment": b"GET /a#b HTTP/1.1\r\n\r\n",
        "of a host": b"GET http://h/a?b HTTP/1.1\r\n\r\n",
        "two slashes": b"GET //a/b HTTP/1.1\r\n\r\n",
        "not ASCII": b"GET /\xc3\xa9 HTTP/1.1\r\n\r\n",
        "of no path": b"OPTIONS * HTTP/1.1\r\n\r\n",
        "a tunnel": b"CONNECT h:1 HTTP/1.1\r\n\r\n",
        "no HTTP": b"hello\r\n\r\n",
        "HTTP/1.0": b"GET / HTTP/1.0\r\n\r\n",
        "HEAD": b"HEAD / HTTP/1.1\r\n\r\n",
        "from a page": b"GET / HTTP/1.1\r\nOrigin: h\r\n\r\n",
        "health": b"GET /healthz HTTP/1.1\r\n\r\n",
        "health with a body": b"GET /healthz HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello",
        "health with a body in chunks": b"GET /healthz HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n0\r\n\r\n",
        "health with a body in pieces": [b"GET /healthz HTTP/1.1\r\nContent-Length: 5\r\n\r\nhe", b"llo"],
        "header fields twice": b"GET / HTTP/1.1\r\nA: 1\r\nA: 2\r\n\r\n",
        "a body": b"POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello",
        "an empty body": b"POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n",
        "a body in chunks": b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n",
        "no chunk": b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nno\r\n",
        "a body in pieces": [b"POST / HT", b"TP/1.1\r\nContent-", b"Length: 5\r\n\r\n", b"he", b"llo"],
        "a body begun with its headers": [b"POST /a?b HTTP/1.1\r\nContent-Length: 5\r\n\r\nhe", b"llo"],
        "a body asked for": [b"POST / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n", b"hello"],
        "a body asked for and there": b"POST / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\nhello",
        "not JSON": b"POST / HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 1\r\n\r\n{",
        "too large": b"POST / HTTP/1.1\r\nContent-Length: 102\r\n\r\n" + b"x" * 102,
        "a stream": b"GET /stream HTTP/1.1\r\n\r\n",
        "nothing": b"GET /nothing HTTP/1.1\r\n\r\n",
        "a status and a header": b"GET /created HTTP/1.1\r\n\r\n",
        "an error": b"GET /throws HTTP/1.1\r\nX-Request-Id: 1\r\n\r\n",
        "no JSON to answer with": b"GET /nan HTTP/1.1\r\nX-Request-Id: 1\r\n\r\n",
        "many": b"GET /1 HTTP/1.1\r\n\r\nPOST /2 HTTP/1.1\r\nContent-Length: 2\r\n\r\nabGET /stream HTTP/1.1\r\n\r\nGET /3 HTTP/1.1\r\n\r\n",
        "many that nobody reads yet": b"GET /large HTTP/1.1\r\n\r\n" * 4,
    }

    def exchange(self, function, pieces):
        """Sends pieces and a final request. Returns the answers without dates."""
        with socket.create_connection(("127.0.0.1", function.port), timeout=30) as connection:
            for piece in pieces[:-1]:
                connection.sendall(piece)
                function.send("/healthz")  # Once this is answered, the piece was read.
            connection.sendall(pieces[-1] + self.LAST)
            answer = b"".join(iter(lambda: connection.recv(65536), b""))
        return re.sub(rb"\r\ndate: [^\r]*", b"", answer)

    def test_answers_are_those_of_uvicorn(self):
        limit = {"REQ_MB_LIMIT": str(100 / 2**20)}
        for keyword in ("async def", "def"):
            main = self.MAIN.replace("async def main", f"{keyword} main")
            shortcut = self.serve(main, **limit)
            own = self.serve(main, UVICORN_VERSION="0.999.0", **limit)
            self.assertEqual((shortcut.send("/way")[2], own.send("/way")[2]), ("shortcut", "ASGI"))
            for name, request in self.REQUESTS.items():
                with self.subTest(name, keyword=keyword):
                    pieces = request if isinstance(request, list) else [request]
                    got, want = self.exchange(shortcut, pieces), self.exchange(own, pieces)
                    self.assertTrue(want.startswith(b"HTTP/1.1 "), want)
                    self.assertEqual(got, want)
            upgrade = {"Host": "h", "Connection": "Upgrade", "Upgrade": "h2c"}
            self.assertEqual(shortcut.send(headers=upgrade)[::2], own.send(headers=upgrade)[::2])

    def test_trailers_are_not_headers(self):
        body = b"2\r\nhe\r\n0\r\nX-User: somebody-else\r\n\r\n"
        request = b"POST / HTTP/1.1\r\nX-User: me\r\nTransfer-Encoding: chunked\r\n\r\n" + body
        answer = self.exchange(self.serve(self.MAIN), [request])
        self.assertIn(b'"x-user":"me"', answer)
        self.assertNotIn(b"somebody-else", answer)

    def test_nothing_is_called_after_the_last_answer(self):
        function = self.serve(
            """
            async def main(event, context):
                print(event["extensions"]["request"].path, flush=True)
                event.setResponseHeader("connection", "close")
                return "on"
            """)
        with socket.create_connection(("127.0.0.1", function.port), timeout=30) as connection:
            connection.sendall(b"GET /1 HTTP/1.1\r\n\r\nGET /2 HTTP/1.1\r\n\r\nHEAD /2 HTTP/1.1\r\n\r\n")
            answer = b"".join(iter(lambda: connection.recv(65536), b""))
        self.assertEqual(answer.count(b"HTTP/1.1 200"), 1)
        function.send("/3")
        function.until_printed("/1\n", "/3\n")

    # A thread calls this main. There is a task only if the answer may have to wait.
    BLOCKING = """
        import __main__
        import asyncio
        import contextvars
        import gc
        import os
        import time
        import uvicorn
        import weakref
        uvicorn.__version__ = os.environ.get("UVICORN_VERSION", uvicorn.__version__)
        gc.disable()
        __main__.THREADS = int(os.environ.get("THREADS", "64"))
        kept, connections = [], []
        setting = contextvars.ContextVar("setting", default="none")
        setting.set("the module's")
        async def later():
            return setting.get()
        def waits(seconds):
            time.sleep(seconds)
            yield "late"
        def blocks():
            yield "a"
            while not os.path.exists(__file__ + ".go"):
                time.sleep(0.01)
            yield "b"
        def main(event, context):
            request = event["extensions"]["request"]
            print(request.path)
            if request.path == "/runs":
                return type(next(iter(__main__.running))).__name__
            if request.path == "/later":
                return later()
            if request.path == "/setting":
                before = setting.get()
                setting.set("the call's")
                return before
            if request.path == "/late-stream":
                time.sleep(0.6)
                return waits(60)
            if request.path == "/blocks":
                return blocks()
            if request.path == "/running":
                return len(__main__.running)
            if request.path == "/lost":
                while not os.path.exists(__file__ + ".go"):
                    time.sleep(0.01)
                return "nobody gets this"
            if request.path == "/cancels":
                raise asyncio.CancelledError
            if request.path == "/too-late":
                exchange = next(iter(__main__.running))
                def go_on(outcome):
                    type(exchange).go_on(exchange, outcome)
                    if __main__.running.pop(exchange, None) is not None:
                        exchange.cancel()
                exchange.go_on = go_on
                return waits(1)
            if request.path == "/large":
                connections.append(request.scope["kiln.connection"].transport)
                return bytes(2**23)
            if request.path == "/waiting":
                return connections[0].get_write_buffer_size()
            if request.path == "/kept":
                return [path for path, event in kept if event() is not None]
            kept.append((request.path, weakref.ref(event)))
            if request.path == "/throws":
                raise ValueError("secret")
            if request.path == "/stream":
                return waits(0)
            if request.path == "/created":
                event.setResponseStatus(201)
            return "on"
        """

    def test_a_main_that_blocks_needs_no_task(self):
        self.assertEqual(self.serve(self.BLOCKING).send("/runs")[2], "Exchange")
        self.assertEqual(self.serve(self.BLOCKING, UVICORN_VERSION="0.999.0").send("/runs")[2], "Task")

    def test_context_variables_belong_to_the_call(self):
        function = self.serve(self.BLOCKING)
        for path in ("/setting", "/setting", "/later"):
            self.assertEqual(function.send(path)[2], "the module's", path)

    def test_a_connection_keeps_nothing_of_a_call(self):
        function = self.serve(self.BLOCKING)
        for path, status in (("/", 200), ("/throws", 500), ("/stream", 200), ("/created", 201)):
            connection = function.connect()
            self.addCleanup(connection.close)
            self.assertEqual(function.send(path, connection=connection)[0], status)
            function.send("/healthz")  # Once this is answered, the event loop has no work left.
            self.assertEqual(function.send("/kept")[2], "[]", path)

    def test_a_connection_that_is_lost_with_requests_that_wait(self):
        function = self.serve(self.BLOCKING)
        with socket.create_connection(("127.0.0.1", function.port), timeout=30) as connection:
            connection.sendall(b"GET /lost HTTP/1.1\r\n\r\nGET /next HTTP/1.1\r\n\r\n\0\0\r\n\r\n")
            while connection.recv(65536):
                pass
        pathlib.Path(function.folder.name, "handler.py.go").touch()
        deadline = time.monotonic() + 10
        while (running := function.send("/running")[2]) != "1" and time.monotonic() < deadline:
            pass
        self.assertEqual(running, "1")

    def test_timeout_while_a_task_takes_over(self):
        self.assertEqual(self.serve(self.BLOCKING).send("/too-late")[0], 504)

    def test_main_raises_exceptions_of_the_event_loop(self):
        status, _, body = self.serve(self.BLOCKING).send("/cancels")
        self.assertEqual((status, json.loads(body)["message"]), (500, "Internal Server Error"))

    def test_timeout_after_a_task_takes_over(self):
        function = self.serve(self.BLOCKING, FUNC_TIMEOUT="1")
        self.assertEqual(function.send("/late-stream")[0], 504)
        function.port = function.entry("metrics")["port"]
        seconds = re.search(r'seconds_sum{method="GET"} (.*)', function.send("/metrics")[2])[1]
        self.assertLess(float(seconds), 1.4)

    def test_main_is_not_called_if_the_timeout_comes_first(self):
        function = self.serve(self.BLOCKING, FUNC_TIMEOUT="0.5", THREADS="1")
        with socket.create_connection(("127.0.0.1", function.port), timeout=30) as stream:
            stream.sendall(b"GET /blocks HTTP/1.1\r\nConnection: close\r\n\r\n")
            self.assertIn(b"HTTP/1.1 200", stream.recv(65536))
            self.assertEqual(function.send("/late")[0], 504)
            pathlib.Path(function.folder.name, "handler.py.go").touch()
            while stream.recv(65536):
                pass
        self.assertEqual(function.send("/next")[2], "on")
        function.until_printed("/blocks\n", "/next\n")

    def test_an_answer_waits_until_the_one_before_is_read(self):
        function = self.serve(self.BLOCKING)
        with socket.create_connection(("127.0.0.1", function.port), timeout=30) as connection:
            for number in range(1, 3):
                connection.sendall(b"GET /large HTTP/1.1\r\n\r\n")
                function.until_printed(*["/large\n"] * number)
                function.send("/healthz")
            self.assertLess(int(function.send("/waiting")[2]), 2**23)
            connection.sendall(self.LAST)
            answer = b"".join(iter(lambda: connection.recv(2**20), b""))
        self.assertEqual((answer.count(b"HTTP/1.1 200"), answer.count(b"\0"), answer[-2:]), (3, 2**24, b"on"))

    def test_shortcut_supports_the_version_in_images(self):
        version = re.search(r"'uvicorn>=([0-9]+\.[0-9]+),", SERVER.with_name("Dockerfile").read_text())[1]
        function = self.serve(self.MAIN, UVICORN_VERSION=f"{version}.9")
        self.assertEqual(function.send("/way")[2], "shortcut")

    def test_telemetry_gets_all_of_asgi(self):
        middleware = """
            def OpenTelemetryMiddleware(app):
                async def traced(scope, receive, send):
                    await app(scope, receive, send)
                return traced
            """
        files = {**TestTelemetry.FILES, "opentelemetry/instrumentation/asgi.py": textwrap.dedent(middleware)}
        function = self.serve(self.MAIN, files, OTEL_EXPORTER_OTLP_ENDPOINT="http://collector:4318")
        self.assertEqual(function.send("/way")[2], "ASGI")

    def test_idle_connections_are_closed(self):
        function = self.serve(
            """
            import __main__
            __main__.KEEP_ALIVE_S = 0.5
            async def main(event, context):
                return "on"
            """)
        with socket.create_connection(("127.0.0.1", function.port), timeout=30) as connection:
            for _ in range(3):
                connection.sendall(b"GET / HTTP/1.1\r\n\r\n")
                self.assertTrue(connection.recv(65536).endswith(b"on"))
                last = time.monotonic()
            self.assertEqual(connection.recv(1), b"")
            self.assertGreater(time.monotonic() - last, 0.4)


class TestBodies(Test):
    MAIN = "def main(event, context): return {'data': event['data'] if type(event['data']) is not bytes else None}"

    def test_compressed(self):
        function = self.serve(self.MAIN, REQ_MB_LIMIT=str(100 / 2**20))
        good = gzip.compress(b'{"a":1}')
        for encoding, body, want in (
            ("gzip", good, 200), ("GZIP", good, 200), ("deflate", zlib.compress(b'{"a":1}'), 200), ("identity", b'{"a":1}', 200),
            ("gzip", good[:-9], 400), ("gzip", b"no", 400), ("br", good, 415), ("gzip", gzip.compress(b" " * 10000), 413),
        ):
            status, _, text = function.send(body=body, headers={"content-type": "application/json", "content-encoding": encoding})
            self.assertEqual(status, want, (encoding, body, text))
            if want == 200:
                self.assertEqual(text, '{"data":{"a":1}}')

    def test_charsets(self):
        function = self.serve(self.MAIN)
        for content_type, body, want in (
            ("text/plain; charset=iso-8859-1", "é".encode("latin-1"), (200, '{"data":"é"}')),
            ('text/plain; Charset="UTF-16"', "é".encode("utf-16"), (200, '{"data":"é"}')),
            ("text/plain; charset=hex", b"00", (415, '{"message":"charset hex is not supported"}')),
            ("application/json", b'\xef\xbb\xbf{"a":1}', (200, '{"data":{"a":1}}')),
        ):
            self.assertEqual(function.send(body=body, headers={"content-type": content_type})[::2], want, content_type)

    def test_missing_body(self):
        function = self.serve("import __main__\n__main__.BODY_S = 0.3\ndef main(event, context): return 1", FUNC_TIMEOUT="0.2")
        with socket.create_connection(("127.0.0.1", function.port), timeout=30) as connection:
            connection.sendall(b"POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\nab")
            self.assertTrue(connection.recv(65536).startswith(b"HTTP/1.1 408"))

    def test_health(self):
        function = self.serve("def main(event, context): return 'main'")
        self.assertEqual(function.send("/healthz", headers={"content-length": "0"})[2], "ok")
        connection = function.connect()
        self.assertEqual(function.send("/healthz", "{", "GET", {"content-type": "application/json"}, connection)[2], "ok")
        self.assertEqual(function.send("/healthz", "x" * (2**20 + 1), "GET", connection=connection)[2], "ok")
        self.assertEqual(function.send("/", connection=connection)[2], "main")
        connection.close()
        preflight = {"origin": "https://a", "access-control-request-method": "PUT"}
        self.assertEqual(function.send("/", "x", "OPTIONS", preflight)[0], 204)
        self.assertEqual(function.send("/healthz?x")[2], "main")
        self.assertEqual(function.send("/healthz", body="")[2], "main")


class TestErrors(Test):
    def test_errors_are_logged(self):
        function = self.serve("def main(event, context):\n    raise ValueError('secret')")
        status, _, body = function.send()
        self.assertEqual(status, 500)
        self.assertNotIn("secret", body)
        entry = function.entry("main failed")
        self.assertEqual(entry["requestId"], json.loads(body)["id"])
        self.assertIn('handler.py", line 2, in main', entry["stack"])

    def test_invalid_header(self):
        function = self.serve("def main(event, context): event.setResponseHeader(*event['data'])")
        for name, value in (("x-a", "a\r\nb"), ("x a", "b"), ("", "b"), ("x-a", "\u20ac")):
            self.assertEqual(function.send(body=json.dumps([name, value]), headers={"content-type": "application/json"})[0], 500)
            self.assertIn("Error", function.entry("main failed")["message"])

    def test_invalid_status(self):
        function = self.serve("def main(event, context):\n    event.setResponseStatus(event['data'])\n    return 'on'")
        for status, want in (('"201"', 201), ("600", 500), ("101", 500), ('"no"', 500), ("null", 500)):
            self.assertEqual(function.send(body=status, headers={"content-type": "application/json"})[0], want, status)
            if want == 500:
                self.assertIn("Error", function.entry("main failed")["message"])

    def test_status_without_body(self):
        function = self.serve(
            """
            def main(event, context):
                event.setResponseStatus(event["data"])
                return iter(["body"]) if event["extensions"]["request"].path == "/stream" else {"a": 1}
            """)
        connection = function.connect()
        for status in (204, 304):
            for path in ("/", "/stream"):
                got = function.send(path, str(status), headers={"content-type": "application/json"}, connection=connection)
                self.assertEqual((got[0], got[1]["content-length"], got[2]), (status, None, ""), path)
        self.assertEqual(function.send(body="200", headers={"content-type": "application/json"}, connection=connection)[2], '{"a":1}')
        connection.close()

    def test_errors_with_a_status_are_logged(self):
        function = self.serve(
            """
            class Refused(Exception):
                status = 401
            def main(event, context):
                raise Refused("HTTP Error 401")
            """)
        self.assertEqual(function.send(headers={"x-request-id": "1"})[0], 401)
        entry = function.entry("main failed: Refused: HTTP Error 401")
        self.assertEqual((entry["requestId"], entry["status"], entry["severity"]), ("1", 401, "WARNING"))

    def test_all_of_the_log_is_json(self):
        source = """
            import logging
            logging.basicConfig(level=logging.DEBUG)
            def main(event, context):
                yield "half"
                raise ValueError("broken")
            """
        function = self.serve(source)
        with self.assertRaises(http.client.IncompleteRead):
            function.send()
        with socket.create_connection(("127.0.0.1", function.port), timeout=30) as connection:
            connection.sendall(b"hello\r\n\r\n")
            self.assertTrue(connection.recv(65536).startswith(b"HTTP/1.1 400"))
        self.assertEqual(function.entry("Invalid HTTP request")["severity"], "WARNING")
        function.process.send_signal(signal.SIGTERM)
        self.assertEqual(function.finish(), 0)
        self.assertEqual([line for line in function.stderr if not line.startswith("{") and "DEBUG:" not in line], [])
        self.assertEqual(sum("broken" in line for line in function.stderr), 1)

    def test_incomplete_answer_is_cut_off(self):
        function = self.serve("def main(event, context):\n    yield 'half'\n    raise ValueError('broken')")
        with self.assertRaises(http.client.IncompleteRead):
            function.send()
        self.assertIn("broken", function.entry("main failed")["message"])
        self.assertEqual(function.send("/healthz")[2], "ok")

    def test_too_slow_and_asynchronous(self):
        function = self.serve(
            """
            import asyncio
            async def main(event, context):
                try:
                    await asyncio.sleep(60)
                finally:
                    print("cancelled")
            """, FUNC_TIMEOUT="0.4")
        connection = function.connect()
        for _ in range(2):
            status, _, body = function.send(connection=connection)
            self.assertEqual((status, json.loads(body)["message"]), (504, "main did not finish within 0.4 s"))
        connection.close()
        self.assertIn("main did not finish", function.entry("main failed")["message"])
        function.until_printed("cancelled\n", "cancelled\n")


class TestStreams(Test):
    def test_each_kind(self):
        function = self.serve(
            """
            import io
            async def pieces():
                yield "one "
                yield b"two"
            def main(event, context):
                return {"/async": pieces, "/file": lambda: io.BytesIO(b"one two"), "/iterator": lambda: iter(["one ", b"two"])}[
                    event["extensions"]["request"].path]()
            """)
        for path in ("/async", "/file", "/iterator"):
            status, headers, body = function.send(path)
            self.assertEqual((status, headers["transfer-encoding"], body), (200, "chunked", "one two"), path)

    MAIN = """
        import sys, time
        class NotFound(Exception):
            status = 404
        class File:
            def read(self, size):
                raise OSError("no such file")
        def main(event, context):
            path = event["extensions"]["request"].path
            if path == "/file":
                return File()
            return pieces(event, path)
        def pieces(event, path):
            if path == "/throws":
                raise ValueError("secret")
            if path == "/not-found":
                raise NotFound("no such thing")
            if path == "/exits":
                sys.exit(1)
            if path == "/hangs":
                time.sleep(60)
            if path == "/created":
                event.setResponseStatus(201)
            yield 3 if path == "/number" else "a"
        """

    def test_a_stream_that_fails_at_once_has_an_answer(self):
        function = self.serve(self.MAIN, FUNC_TIMEOUT="1")
        port = function.entry("metrics")["port"]
        for path, want in (("/throws", 500), ("/file", 500), ("/exits", 500), ("/number", 500), ("/not-found", 404), ("/hangs", 504),
                           ("/created", 201)):
            status, headers, body = function.send(path)
            self.assertEqual(status, want, path)
            if want >= 500:
                self.assertTrue(json.loads(body)["id"], path)
        function.port = port
        self.assertIn('function_failures_total{method="GET"} 6', function.send("/metrics")[2].splitlines())

    def test_an_asynchronous_stream_that_fails_at_once(self):
        function = self.serve(
            """
            import asyncio
            async def main(event, context):
                if event["extensions"]["request"].path == "/hangs":
                    try:
                        await asyncio.sleep(60)
                    finally:
                        print("cancelled")
                raise SystemExit(1)
                yield "a"
            """, FUNC_TIMEOUT="0.4")
        self.assertEqual(function.send()[0], 500)
        self.assertEqual(function.send("/hangs")[0], 504)
        function.until_printed("cancelled\n")

    # Endless streams, which print a line when they are closed.
    ENDLESS = """
        import asyncio
        import io
        import __main__
        import threading
        __main__.THREADS = 1
        go = threading.Event()
        async def asynchronous():
            try:
                while True:
                    yield "a"
            finally:
                print("closed")
        async def waits(before):
            try:
                for _ in range(before):
                    yield "a"
                await asyncio.Event().wait()
            finally:
                print("closed")
        def plain():
            try:
                while True:
                    yield "a"
            finally:
                print("closed")
        def blocks():
            try:
                yield "a"
                print("blocks")
                go.wait()
                yield "b"
                print("was asked for more")
            finally:
                print("closed")
        async def empty():
            while not go.is_set():
                yield ""
            yield "went"
        class File:
            def read(self, size):
                return b"a"
            def close(self):
                print("closed")
        class Iterable:
            async def __aiter__(self):
                try:
                    while True:
                        yield "a"
                finally:
                    print("closed")
            async def close(self):
                print("closed, too")
        class Iterator:
            def __aiter__(self):
                return self
            async def __anext__(self):
                return "a"
            async def aclose(self):
                print("closed")
        async def main(event, context):
            path = event["extensions"]["request"].path
            if path == "/go":
                go.set()
            elif path == "/plain-main":
                return await __main__.threads.run(str, "on")
            elif path != "/":
                return {"/asynchronous": asynchronous, "/waits": lambda: waits(1), "/waits-at-once": lambda: waits(0), "/plain": plain,
                        "/blocks": blocks, "/empty": empty, "/file": File, "/iterable": Iterable, "/iterator": Iterator}[path]()
            return "on"
        """

    def begin(self, function, path, first=b"1\r\na\r\n"):
        """Opens a stream and waits for its first piece. Returns the connection."""
        connection = socket.create_connection(("127.0.0.1", function.port), timeout=30)
        self.addCleanup(connection.close)
        connection.sendall(f"GET {path} HTTP/1.1\r\n\r\n".encode())
        self.receive(connection, first)
        return connection

    def receive(self, connection, wanted):
        """Waits until the text has arrived."""
        got = b""
        while wanted not in got:
            piece = connection.recv(100)
            self.assertTrue(piece, got)
            got += piece

    def test_a_stream_ends_when_its_caller_disconnects(self):
        for version in ("", "0.999.0"):  # with and without the shortcut
            function = self.serve(self.ENDLESS, **{"UVICORN_VERSION": version} if version else {})
            port, printed = function.entry("metrics")["port"], []
            for path in ("/asynchronous", "/waits", "/plain", "/file", "/iterator", "/iterable"):
                self.begin(function, path).close()
                printed += ["closed\n", "closed, too\n"] if path == "/iterable" else ["closed\n"]
                function.until_printed(*printed)
                self.assertEqual(function.send()[2], "on", path)
            connection = socket.create_connection(("127.0.0.1", function.port), timeout=30)
            connection.sendall(b"GET /waits-at-once HTTP/1.1\r\n\r\n")
            function.send()  # Once this is answered, the request was read.
            connection.close()
            function.until_printed(*printed, "closed\n")
            function.process.send_signal(signal.SIGTERM)
            self.assertEqual(function.finish(), 0)
            self.assertEqual([line for line in function.stderr if '"INFO"' not in line], [])

    def test_a_stream_that_blocks_frees_its_thread_when_its_caller_disconnects(self):
        function = self.serve(self.ENDLESS)
        connection = self.begin(function, "/blocks")
        function.until_printed("blocks\n")
        connection.close()
        self.assertEqual(function.send("/plain-main")[2], "on")  # There is one thread.
        function.send("/go")
        function.until_printed("blocks\n", "closed\n")

    def test_a_stream_that_never_waits_does_not_block_others(self):
        function = self.serve(self.ENDLESS)
        connection = self.begin(function, "/empty", b"\r\n\r\n")
        self.assertEqual(function.send("/go")[2], "on")
        self.receive(connection, b"went\r\n0\r\n\r\n")


def serve_sink(test):
    """A sink for events. Returns its URL and a list with headers and event of each request."""
    got = []

    class Sink(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            got.append((dict(self.headers), json.loads(self.rfile.read(int(self.headers["content-length"])))))
            self.send_response(503 if got[-1][1]["type"] == "refused" else 202)
            self.end_headers()

        def log_message(self, *_):
            pass

    sink = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Sink)
    threading.Thread(target=sink.serve_forever, daemon=True).start()
    test.addCleanup(sink.server_close)
    test.addCleanup(sink.shutdown)
    return f"http://127.0.0.1:{sink.server_port}", got


class TestCloudEvents(Test):
    def test_are_sent_to_the_sink_with_the_trace(self):
        sink, got = serve_sink(self)
        function = self.serve(
            """
            def main(event, context):
                if event["extensions"]["request"].path == "/refused":
                    event.emitCloudEvent("refused", "/s", 1)
                event.publishCloudEvent(event.buildResponseCloudEvent("2", "built", "text"))
                event.publishCloudEvent({"specversion": "1.0", "id": "3", "type": "own", "source": "/own", "data": b"A"})
                event.emitCloudEvent("emitted", "/e", {"a": 1}, {"subject": "x"})
            """,
            K_SINK=sink, K_CE_OVERRIDES='{"extensions":{"team":"a"}}',
            FUNC_NAME="f", FUNC_NAMESPACE="n")
        trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
        self.assertEqual(function.send(headers={"traceparent": trace})[0], 204)
        self.assertEqual({headers["Traceparent"] for headers, _ in got}, {trace})
        self.assertEqual({headers["Content-Type"] for headers, _ in got}, {"application/cloudevents+json"})
        for name in ("id", "time"):
            self.assertTrue(got[2][1].pop(name))
        self.assertEqual([event for _, event in got], [
            {"source": "/n/f", "specversion": "1.0", "datacontenttype": "text/plain", "id": "2", "type": "built", "data": "text", "team": "a"},
            {"specversion": "1.0", "id": "3", "type": "own", "source": "/own", "data_base64": "QQ==", "team": "a"},
            {"source": "/e", "specversion": "1.0", "datacontenttype": "application/json", "type": "emitted", "subject": "x",
             "data": {"a": 1}, "team": "a"},
        ])
        self.assertEqual(function.send("/refused")[0], 500)
        self.assertIn("the sink refused the event: 503", function.entry("main failed")["message"])

    def test_answers_of_the_sink_and_all_types_of_data(self):
        sink, got = serve_sink(self)
        function = self.serve(
            """
            import datetime
            def main(event, context):
                answer = event.emitCloudEvent("t", "/s", {"at": datetime.date(2026, 1, 2)})
                return [answer, answer.status_code, answer == 202]
            """, K_SINK=sink)
        self.assertEqual(json.loads(function.send()[2]), [202, 202, True])
        self.assertEqual(got[0][1]["data"], {"at": "2026-01-02"})

    def test_missing_attributes(self):
        function = self.serve(
            """
            def main(event, context):
                event.setResponseHeader("x-context", type(context).__name__)
                return [event["ce-time"], event.get("ce-type", "none"), "extensions" in event, "event-type" in event, "ce-type" in event,
                        event.ceHeaders["ce-type"], event.ceHeaders["data"], event["event-id"]]
            """)
        self.assertEqual(json.loads(function.send()[2]), [None, "none", True, True, False, None, {}, None])

    def test_invalid_base64(self):
        function = self.serve("def main(event, context): return 1")
        event = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t", "data_base64": "A"}
        status, _, body = function.send(body=json.dumps(event), headers={"content-type": "application/cloudevents+json"})
        self.assertEqual(status, 400)
        self.assertIn("data_base64", json.loads(body)["message"])

    def test_no_sink_is_an_error(self):
        function = self.serve("def main(event, context): event.emitCloudEvent('t', '/s', 1)")
        self.assertEqual(function.send()[0], 500)
        self.assertIn("K_SINK is not set", function.entry("main failed")["message"])


class TestTelemetry(Test):
    def test_metrics(self):
        function = self.serve("def main(event, context):\n    if event['data']: raise ValueError()")
        port = function.entry("metrics")["port"]
        function.send()
        function.send(body='{"a":1}', headers={"content-type": "application/json"})
        function.port = port
        _, headers, text = function.send("/metrics")
        self.assertTrue(headers["content-type"].startswith("text/plain; version=0.0.4"))
        for line in ('function_calls_total{method="GET"} 1', 'function_failures_total{method="POST"} 1',
                     'function_failures_total{method="GET"} 0', 'function_duration_seconds_count{method="POST"} 1'):
            self.assertIn(line, text.splitlines())
        self.assertEqual(function.send()[0], 404)

    MAIN = """
        def main(event, context):
            with event["tracer"].start_as_current_span("a") as span:
                return event.tracer.name if hasattr(event.tracer, "name") else str(span.set_attribute("a", 1) is not None)
        """
    FILES = {
        "opentelemetry/__init__.py": "",
        "opentelemetry/instrumentation/__init__.py": "",
        "opentelemetry/instrumentation/auto_instrumentation.py": "import os\ndef initialize(): print('on', os.environ['OTEL_SERVICE_NAME'])",
        "opentelemetry/instrumentation/asgi.py": "OpenTelemetryMiddleware = lambda app: app",
    }

    def test_the_sdk_is_loaded_when_enabled(self):
        function = self.serve(self.MAIN, self.FILES, OTEL_EXPORTER_OTLP_ENDPOINT="http://collector:4318", FUNC_NAME="f")
        function.send()
        function.until_printed("on f\n")

    def test_the_sdk_flushes_at_the_end(self):
        initialize = "import atexit\ndef initialize(): atexit.register(print, 'sent')"
        files = {**self.FILES, "opentelemetry/instrumentation/auto_instrumentation.py": initialize}
        function = self.serve(self.MAIN, files, OTEL_EXPORTER_OTLP_ENDPOINT="http://collector:4318")
        function.send()
        function.process.send_signal(signal.SIGTERM)
        self.assertEqual(function.finish(), 0)
        self.assertEqual(function.stdout, ["sent\n"])

    def test_spans_of_main_belong_to_the_request(self):
        middleware = """
            import contextvars
            span = contextvars.ContextVar("span", default="none")
            def OpenTelemetryMiddleware(app):
                async def traced(scope, receive, send):
                    span.set(scope["path"])
                    await app(scope, receive, send)
                return traced
            """
        files = {**self.FILES, "opentelemetry/instrumentation/asgi.py": textwrap.dedent(middleware)}
        for keyword in ("def", "async def"):
            main = f"from opentelemetry.instrumentation.asgi import span\n{keyword} main(event, context): return span.get()"
            function = self.serve(main, files, OTEL_EXPORTER_OTLP_ENDPOINT="http://collector:4318")
            for path in ("/1", "/2"):
                self.assertEqual(function.send(path)[2], path, keyword)

    def test_events_belong_to_the_current_span(self):
        files = {
            **self.FILES,
            "opentelemetry/trace.py": "import contextvars\nspan = contextvars.ContextVar('span', default=None)",
            "opentelemetry/propagate.py":
                "from opentelemetry import trace\ndef inject(fields):\n    if trace.span.get(): fields['traceparent'] = trace.span.get()",
        }
        main = """
            from opentelemetry import trace
            def main(event, context):
                if event["extensions"]["request"].path == "/span":
                    trace.span.set("own")
                event.emitCloudEvent("t", "/s", 1)
            """
        sink, got = serve_sink(self)
        function = self.serve(main, files, OTEL_EXPORTER_OTLP_ENDPOINT="http://collector:4318", K_SINK=sink)
        for path in ("/span", "/none"):
            self.assertEqual(function.send(path, headers={"traceparent": "caller's", "tracestate": "a=b"})[0], 204)
        self.assertEqual([(headers["Traceparent"], headers.get("Tracestate")) for headers, _ in got], [("own", None), ("caller's", "a=b")])

    def test_each_variable_enables_it(self):
        for name in ("OTEL_TRACES_EXPORTER", "OTEL_METRICS_EXPORTER", "OTEL_EXPORTER_OTLP_LOGS_ENDPOINT"):
            function = self.serve(self.MAIN, self.FILES, **{"OTEL_TRACES_EXPORTER": "none", name: "otlp", "FUNC_NAME": name})
            function.until_printed(f"on {name}\n")

    def test_it_is_disabled_by_default(self):
        for env in (
            {},
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318", "OTEL_SDK_DISABLED": "True"},
            {"OTEL_TRACES_EXPORTER": "none", "OTEL_METRICS_EXPORTER": "None", "OTEL_LOGS_EXPORTER": ""},
        ):
            function = self.serve(self.MAIN, self.FILES, **env)
            function.send()
            function.process.send_signal(signal.SIGTERM)
            self.assertEqual(function.finish(), 0)
            self.assertEqual(function.stdout, [], env)

    def test_enabled_and_not_installed(self):
        function = self.serve(self.MAIN, OTEL_EXPORTER_OTLP_ENDPOINT="http://collector:4318")
        self.assertEqual(function.send()[2], "True")
        function.process.send_signal(signal.SIGTERM)
        self.assertEqual(function.finish(), 0)
        self.assertIn("there are no traces: ModuleNotFoundError", "".join(function.stderr))


class TestStart(Test):
    def test_failures_have_a_reason(self):
        for source, words in (
            ("a = 1\ndef main(event:\n    pass\n", "handler.py:2: SyntaxError: '(' was never closed\ndef main(event:\n        ^"),
            ("import nothing_of_that_name\n", "handler.py:1: No module named 'nothing_of_that_name': "
             "is it among the function's dependencies?\nimport nothing_of_that_name"),
            ("def connect():\n    raise ValueError('no DATABASE_URL')\nconnect()\n",
             "handler.py:2: ValueError: no DATABASE_URL\n    raise ValueError('no DATABASE_URL')"),
            ("def handle(event, context): pass\nVERSION = 2\n",
             'handler.py: has no function named "main" (it has: handle); expected: def main(event, context)'),
            ("main = 1\n", 'handler.py: has no function named "main" (it has: none); expected: def main(event, context)'),
            ("import sys\nsys.exit(3)\n", "handler.py: it ends itself while it is loaded, with 3"),
        ):
            with self.subTest(source):
                self.assertEqual(self.fails(source), words)

    def test_invalid_settings(self):
        for name, value in (("PORT", "http"), ("REQ_MB_LIMIT", "much"), ("FUNC_TIMEOUT", "0")):
            words = self.fails("def main(event, context): pass", **{name: value})
            self.assertEqual(words, f'environment variable {name}: "{value}" is not valid')

    def test_port_in_use(self):
        with socket.create_server(("", 0)) as other:
            port = other.getsockname()[1]
            words = self.fails("def main(event, context): pass", PORT=str(port))
            self.assertTrue(words.startswith(f"cannot listen on port {port}: "), words)
            function = self.serve("def main(event, context): return 1", OTEL_EXPORTER_PROMETHEUS_PORT=str(port))
            self.assertEqual(function.send()[2], "1")


class TestStop(Test):
    SLOW = """
        import __main__, time
        def main(event, context):
            print("waiting")
            while not __main__.draining:
                time.sleep(0.01)
            time.sleep(0.5)
            print("done")
            return "done"
        """

    def test_idle(self):
        function = self.serve("def main(event, context): return 1")
        kept = function.connect()
        function.send(connection=kept)
        unused = socket.create_connection(("127.0.0.1", function.port))
        function.send()
        function.process.send_signal(signal.SIGTERM)
        self.assertEqual(function.finish(), 0)
        kept.close()
        unused.close()

    def test_lingers(self):
        function = self.serve("def main(event, context): return 1")
        kept, idle = function.connect(), function.connect()
        for connection in (kept, idle):
            function.send(connection=connection)
        function.process.send_signal(signal.SIGTERM)
        function.entry("draining")
        for connection in (kept, function.connect()):
            connection.request("GET", "/")
            answer = connection.getresponse()
            self.assertEqual((answer.status, answer.headers["connection"], answer.read()), (200, "close", b"1"))
            connection.close()
        self.assertIsNone(function.process.poll())
        self.assertEqual(function.finish(), 0)
        idle.close()

    def test_interrupted(self):
        function = self.serve("def main(event, context): return 1")
        kept = function.connect()
        function.send(connection=kept)
        began = time.monotonic()
        function.process.send_signal(signal.SIGINT)
        self.assertEqual(function.finish(), 0)
        self.assertLess(time.monotonic() - began, 1.5)
        kept.close()

    def test_busy(self):
        function = self.serve(self.SLOW)
        busy = function.connect()
        busy.request("GET", "/")
        function.until_printed("waiting\n")
        function.process.send_signal(signal.SIGTERM)
        function.entry("draining")
        answer = busy.getresponse()
        self.assertEqual((answer.status, answer.headers["connection"], answer.read()), (200, "close", b"done"))
        busy.close()
        self.assertEqual(function.finish(), 0)

    def test_busy_for_a_caller_that_has_disconnected(self):
        function = self.serve(self.SLOW)
        busy = function.connect()
        busy.request("GET", "/")
        function.until_printed("waiting\n")
        busy.close()
        function.send("/healthz")  # Once this is answered, the server knows of the disconnect.
        function.process.send_signal(signal.SIGTERM)
        self.assertEqual(function.finish(), 0)
        self.assertEqual(function.stdout, ["waiting\n", "done\n"])

    def test_incomplete_request(self):
        for version in ("", "0.999.0"):
            function = self.serve(TestShortcut.MAIN, **{"UVICORN_VERSION": version} if version else {})
            with socket.create_connection(("127.0.0.1", function.port), timeout=30) as connection:
                connection.sendall(b"GET /way HTTP/1.1\r\n")
                function.send("/")  # Once this is answered, the request was read.
                function.process.send_signal(signal.SIGTERM)
                function.entry("draining")
                with self.assertRaises(OSError):
                    while True:  # until the server has checked all connections
                        function.send("/", method="GET")
                connection.sendall(b"\r\n")
                answer = b"".join(iter(lambda: connection.recv(65536), b""))
            self.assertTrue(answer.startswith(b"HTTP/1.1 200"), answer)
            self.assertIn(b"connection: close", answer)
            self.assertEqual(function.finish(), 0)

    def test_while_loading(self):
        function = Function(self, "print('loading')\nimport time\ntime.sleep(60)\ndef main(event, context): pass")
        function.until_printed("loading\n")
        function.process.send_signal(signal.SIGTERM)
        self.assertEqual(function.finish(), 0)


if __name__ == "__main__":
    unittest.main()
