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

"""Starts the wrapper so that it listens on the loopback interface only: nobody else can
call it there. python3 -c boot.py WRAPPER HANDLER"""

import runpy
import socket
import sys

create_server = socket.create_server


def on_loopback(address, **options):
    if address[0]:
        return create_server(address, **options)
    return create_server(("127.0.0.1", address[1]), backlog=options.get("backlog"))


socket.create_server = on_loopback
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
