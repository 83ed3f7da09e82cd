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

// A bare node:http server whose function is asynchronous, and is awaited.
'use strict';

const main = async ({ method, data }) => (method === 'GET' ? 'hello' : `hello ${data.name}`);

async function answer(response, event) {
  const body = await main(event);
  response.setHeader('content-type', 'text/plain; charset=utf-8');
  response.end(body);
}

require('node:http')
  .createServer((request, response) => {
    const { method } = request;
    if (method === 'GET') {
      answer(response, { method });
      return;
    }
    const chunks = [];
    request.on('data', (chunk) => chunks.push(chunk));
    request.on('end', () => answer(response, { method, data: JSON.parse(chunks.length === 1 ? chunks[0] : Buffer.concat(chunks)) }));
  })
  .listen(Number(process.env.PORT));
