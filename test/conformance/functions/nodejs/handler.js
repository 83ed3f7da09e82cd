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

// The function of the conformance suite, for Node.js.

function kindOf(data) {
  if (Buffer.isBuffer(data)) return 'bytes';
  if (Array.isArray(data)) return 'list';
  return typeof data === 'string' ? 'text' : typeof data;
}

const paths = {
  '/text': () => 'hé',
  '/empty': () => '',
  '/bytes': () => Buffer.from('AB'),
  '/object': () => ({ a: [1, 'é', null, true] }),
  '/number': () => 0,
  '/list': () => [1, 2],
  '/nothing': () => undefined,
  '/later': async () => {
    await new Promise((resolve) => setTimeout(resolve, 10));
    return 'later';
  },
  '/long': () => new Promise((resolve) => setTimeout(resolve, 2000, 'after a long time')),
  '/stream': async function* () {
    yield 'one ';
    yield Buffer.from('two');
  },
  '/stream-throws': async function* () {
    throw Object.assign(new Error('no such thing'), { status: 404 });
  },
  '/stream-number': async function* () {
    yield 1;
  },
  '/circular': () => {
    const circle = {};
    circle.circle = circle;
    return circle;
  },
  '/status': (event) => event.setResponseStatus(202),
  '/created': (event) => {
    event.setResponseStatus(201);
    event.setResponseHeader('x-a', '1');
    event.setResponseContentType('text/csv; charset=utf-8');
    return 'a,b';
  },
  '/no-content': (event) => {
    event.setResponseStatus(204);
    return 'text';
  },
  '/method': (event) => event.extensions.request.method,
  '/data': ({ data }) => ({ kind: kindOf(data), data: Buffer.isBuffer(data) ? [...data] : data }),
  '/length': ({ data }) => String(data.length),
  '/request': ({ extensions: { request } }) => ({
    method: request.method, path: request.path, a: request.query.a, b: request.query.b, sent: request.get('X-Sent'),
  }),
  '/parameters': ({ extensions: { request: { query } } }) => ({ all: query.a, one: query.b, none: query.c ?? 'none' }),
  '/cookies': ({ extensions: { request: { cookies } } }) => ({ a: cookies.a, none: cookies.c ?? 'none' }),
  '/set-cookies': ({ extensions: { response } }) => response.cookie('a', '1').cookie('b', '2').type('text').send('set'),
  '/append': ({ extensions: { response } }) => response.append('x-a', '1').append('x-a', '2').type('text').send('appended'),
  '/is-json': ({ extensions: { request } }) => request.is('json') === 'json',
  '/is-xhr': ({ extensions: { request } }) => request.xhr,
  '/file': async ({ data, extensions: { request } }) => {
    const form = await new Response(data, { headers: { 'content-type': request.get('content-type') } }).formData();
    const file = form.get('f');
    return { a: form.get('a'), name: file.name, text: await file.text() };
  },
  '/context': (event, { runtime, ...context }) => context,
  '/throws': () => {
    throw new Error('secret');
  },
  '/not-found': () => {
    throw Object.assign(new Error('no such thing'), { status: 404 });
  },
  '/throws-after': (event) => {
    event.setResponseHeader('x-a', '1');
    event.setResponseContentType('text/csv');
    throw Object.assign(new Error('no such thing'), { status: 404 });
  },
  '/slow': () => new Promise(() => {}),
  '/event': ({ extensions, ...event }) => event,
  '/answer': (event) => event.buildResponseCloudEvent('2', 'answer', { a: 1 }),
  '/kubeless': (event) => ['event-type', 'event-id', 'event-time', 'event-namespace'].map((name) => event[name]),
};

module.exports = {
  main: (event, context) => (paths[event.extensions.request.path] ?? (() => 'not a path of the function'))(event, context),
};
