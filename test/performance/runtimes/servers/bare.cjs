/*
Copyright 2026 The Kiln Authors

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

// A bare node:http server: what Node costs without any wrapper.
'use strict';

require('node:http')
  .createServer((request, response) => {
    if (request.method === 'GET') {
      response.setHeader('content-type', 'text/plain; charset=utf-8');
      response.end('hello');
      return;
    }
    const chunks = [];
    request.on('data', (chunk) => chunks.push(chunk));
    request.on('end', () => {
      const { data } = { data: JSON.parse(chunks.length === 1 ? chunks[0] : Buffer.concat(chunks)) };
      response.setHeader('content-type', 'text/plain; charset=utf-8');
      response.end(`hello ${data.name}`);
    });
  })
  .listen(Number(process.env.PORT));
