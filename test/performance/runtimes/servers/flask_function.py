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

"""The function that is measured, on Flask and Gunicorn: what functions-framework for Python consists of, with its settings."""

from flask import Flask, request

app = Flask(__name__)


@app.route("/", methods=["GET", "POST"])
def main():
    text = "hello" if request.method == "GET" else f"hello {request.get_json()['name']}"
    return text, {"content-type": "text/plain; charset=utf-8"}
