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

"""The function of the suite in the style of Flask, with Kyma's module sdk."""

import time

import flask
import sdk


class NotFound(Exception):
    status = 404


def cookies():
    response = flask.make_response("set")
    response.set_cookie("a", flask.request.cookies["a"])
    response.set_cookie("b", "2", httponly=True)
    return response


def stream():
    def pieces():
        yield "one "
        yield flask.request.args["then"]

    return flask.Response(flask.stream_with_context(pieces()))


def event():
    found = sdk.get_cloud_event()
    if found is None:
        return {"none": None}
    return {"id": found.get_id(), "type": found.get_type(), "source": found.get_source(), "data": found.get_data()}


def file():
    upload = flask.request.files["f"]
    return {"a": flask.request.form["a"], "name": upload.filename, "text": upload.read().decode()}


def throws():
    raise ValueError("secret")


def not_found():
    raise NotFound("no such thing")


PATHS = {
    "/text": lambda: "Hello World!",
    "/query": lambda: f"Hello {flask.request.args.get('name', 'World')}!",
    "/dict": lambda: {"a": 1},
    "/tuple": lambda: ("made", 201, {"x-a": "1"}),
    "/response": lambda: flask.Response(response='{"a":1}', status=202, mimetype="application/json"),
    "/jsonify": lambda: flask.jsonify([1, 2]),
    "/body": lambda: {"json": flask.request.get_json(), "type": flask.request.content_type},
    "/method": lambda: flask.request.method,
    "/header": lambda: flask.request.headers["X-Sent"],
    "/file": file,
    "/cookies": cookies,
    "/stream": stream,
    "/abort": lambda: flask.abort(403),
    "/event": event,
    "/sdk": lambda: {"name": sdk.get_function_name(), "timeout": sdk.get_timeout()},
    "/throws": throws,
    "/not-found": not_found,
    "/nothing": lambda: None,
    "/slow": lambda: time.sleep(10),
}


def main():
    return PATHS.get(flask.request.path, lambda: "not a path of the function")()
