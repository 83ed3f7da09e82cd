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


// Tests of the wrapper as a process, through its port.

'use strict';

const assert = require('node:assert/strict');
const { spawn } = require('node:child_process');
const { once } = require('node:events');
const fs = require('node:fs');
const http = require('node:http');
const net = require('node:net');
const os = require('node:os');
const path = require('node:path');
const { after, describe, test } = require('node:test');
const zlib = require('node:zlib');

const SERVER = path.join(__dirname, 'server.cjs');
const scratch = fs.mkdtempSync(path.join(os.tmpdir(), 'kiln-nodejs-'));
after(() => fs.rmSync(scratch, { recursive: true, force: true }));

// As in images, where it is above the function's own folder.
fs.mkdirSync(path.join(scratch, 'node_modules', 'sdk'), { recursive: true });
fs.copyFileSync(path.join(__dirname, 'sdk.cjs'), path.join(scratch, 'node_modules', 'sdk', 'index.js'));

/** Writes a function and runs it. `source` is the text of handler.js. */
function run(source, { env = {}, files = {}, nodeArgs = [] } = {}) {
  const dir = fs.mkdtempSync(path.join(scratch, 'fn-'));
  for (const [name, text] of Object.entries({ ...files, 'handler.js': source })) {
    if (text === null) continue;
    fs.mkdirSync(path.dirname(path.join(dir, name)), { recursive: true });
    fs.writeFileSync(path.join(dir, name), text);
  }
  const child = spawn(process.execPath, [...nodeArgs, SERVER, path.join(dir, 'handler.js')], {
    cwd: dir,
    env: { PATH: process.env.PATH, PORT: '0', OTEL_EXPORTER_PROMETHEUS_PORT: '0', ...env },
  });
  const output = { stdout: '', stderr: '' };
  for (const name of ['stdout', 'stderr']) {
    child[name].setEncoding('utf8').on('data', (text) => (output[name] += text));
  }
  const closed = once(child, 'close').then(([code]) => code);
  return { child, closed, dir, output };
}

/** Starts a function and waits until it is ready. The end of the test kills it. */
async function serve(t, source, options) {
  const process = run(source, options);
  t.after(() => process.child.kill('SIGKILL'));
  const ready = await entry(process, 'ready');
  return { ...process, port: ready.port };
}

/** Waits for a line of the wrapper's log. */
async function entry({ child, closed, output }, message) {
  const find = () =>
    output.stderr
      .split('\n')
      .slice(0, -1)
      .filter((line) => line.startsWith('{'))
      .map((line) => JSON.parse(line))
      .find((line) => line.message.startsWith(message));
  const ended = closed.then(() => true);
  for (;;) {
    const found = find();
    if (found) return found;
    const done = await Promise.race([ended, once(child.stderr, 'data').then(() => false)]);
    if (done && !find()) throw new Error(`the process ended without "${message}":\n${output.stderr}`);
  }
}

/** Runs a function that must fail to start. Returns its exit code and error message. */
async function fails(source, options) {
  const { closed, output } = run(source, options);
  const code = await closed;
  const lines = output.stderr.trimEnd().split('\n');
  return { code, words: lines.filter((line) => !line.startsWith('{"severity"')).join('\n'), stderr: output.stderr };
}

/** Sends one request. */
function send(port, { path: target = '/', method, headers, body, agent, onRequest } = {}) {
  return new Promise((resolve, reject) => {
    const options = { port, path: target, method: method ?? (body === undefined ? 'GET' : 'POST'), headers, agent };
    const request = http.request(options, (response) => {
      const chunks = [];
      response.on('data', (chunk) => chunks.push(chunk));
      response.on('error', reject);
      response.on('end', () => {
        const bytes = Buffer.concat(chunks);
        resolve({ status: response.statusCode, headers: response.headers, bytes, text: bytes.toString() });
      });
    });
    request.on('error', reject);
    onRequest?.(request);
    request.end(body);
  });
}

const json = (value) => ({ headers: { 'content-type': 'application/json' }, body: JSON.stringify(value) });

describe('values that main returns', () => {
  const results = [
    { name: 'string', main: "'hé'", status: 200, type: 'text/plain; charset=utf-8', text: 'hé' },
    { name: 'empty string', main: "''", status: 200, type: 'text/plain; charset=utf-8', text: '' },
    { name: 'Buffer', main: 'Buffer.from([1, 2])', status: 200, type: 'application/octet-stream', text: '\x01\x02' },
    { name: 'Uint8Array', main: 'new Uint8Array([65])', status: 200, type: 'application/octet-stream', text: 'A' },
    { name: 'object', main: '({ a: [1] })', status: 200, type: 'application/json', text: '{"a":[1]}' },
    { name: 'number', main: '0', status: 200, type: 'application/json', text: '0' },
    { name: 'boolean', main: 'false', status: 200, type: 'application/json', text: 'false' },
    { name: 'undefined', main: 'undefined', status: 204, type: undefined, text: '' },
    { name: 'null', main: 'null', status: 204, type: undefined, text: '' },
    { name: 'a promise', main: "Promise.resolve('later')", status: 200, type: 'text/plain; charset=utf-8', text: 'later' },
    { name: 'a thenable', main: "({ then: (ok) => ok('odd') })", status: 200, type: 'text/plain; charset=utf-8', text: 'odd' },
  ];
  for (const { name, main, status, type, text } of results) {
    test(name, async (t) => {
      const { port } = await serve(t, `exports.main = () => ${main};`);
      const got = await send(port);
      assert.deepEqual([got.status, got.headers['content-type'], got.text], [status, type, text]);
    });
  }

  test('HEAD has the headers without the body', async (t) => {
    const { port } = await serve(t, "exports.main = () => 'four';");
    const got = await send(port, { method: 'HEAD' });
    assert.deepEqual([got.status, got.headers['content-length'], got.text], [200, '4', '']);
  });

  for (const [name, main] of [
    ['a circular object', 'const o = {}; o.o = o; return o;'],
    ['a BigInt', 'return 1n;'],
    ['a function', 'return () => 1;'],
    ['a promise of a function', 'return Promise.resolve(() => 1);'],
  ]) {
    test(`${name} is an error of the function`, async (t) => {
      const { port } = await serve(t, `exports.main = () => { ${main} };`);
      assert.equal((await send(port)).status, 500);
    });
  }
});

describe('how main is exported', () => {
  const forms = {
    'module.exports': { source: 'module.exports = { main: () => 1 };' },
    'exports.main': { source: 'exports.main = () => 1;' },
    'with this': { source: 'module.exports = { one: 1, main() { return this.one; } };' },
    'ES module by syntax': { source: 'export const main = () => 1;' },
    'ES module by package.json': { source: 'export const main = () => 1;', files: { 'package.json': '{"type":"module"}' } },
    'ES module, default object': { source: 'export default { main: () => 1 };' },
    'ES module, default function': { source: 'export default () => 1;' },
    'ES module, top-level await': { source: 'const one = await Promise.resolve(1);\nexport const main = () => one;' },
    'byte order mark, CRLF': { source: '\ufeffexports.main = () =>\r\n  1;\r\n' },
    'byte order mark, ES module': { source: '\ufeffexport const main = () =>\r\n  1;\r\n' },
    '900 KiB, Unicode': { source: `// ${'größer, 大, 🚀. '.repeat(41_000)}\nexports.main = () => 1;` },
    'a function': { source: 'module.exports = () => 1;' },
    'a function that has main': { source: 'module.exports = () => 2; module.exports.main = () => 1;' },
    'transpiled ES module': { source: 'exports.__esModule = true; exports.default = { main: () => 1 };' },
  };
  for (const [name, { source, files }] of Object.entries(forms)) {
    test(name, async (t) => {
      const { port } = await serve(t, source, { files });
      assert.equal((await send(port)).text, '1');
    });
  }

  test('under another name', async (t) => {
    const { port } = await serve(t, 'exports.handle = () => 1;', { env: { FUNC_HANDLER: 'handle' } });
    assert.equal((await send(port)).text, '1');
  });

  test('with a dependency', async (t) => {
    const files = { 'node_modules/one/index.js': 'module.exports = 1;' };
    const { port } = await serve(t, "const one = require('one'); exports.main = () => one;", { files });
    assert.equal((await send(port)).text, '1');
  });
});

describe('event.data', () => {
  const echo = `exports.main = ({ data, extensions }) => ({
    kind: Buffer.isBuffer(data) ? 'buffer' : typeof data, data: Buffer.isBuffer(data) ? [...data] : data,
    same: data === extensions.request.body });`;
  const bodies = [
    { type: 'application/json', body: '{"a":1}', kind: 'object', data: { a: 1 } },
    { type: 'application/json; charset=utf-8', body: '[1]', kind: 'object', data: [1] },
    { type: 'Application/JSON', body: '"é"', kind: 'string', data: 'é' },
    { type: 'application/problem+json', body: '{"a":1}', kind: 'object', data: { a: 1 } },
    { type: 'application/json', body: '', kind: 'object', data: {} },
    { type: 'text/plain', body: '{"a":1}', kind: 'string', data: '{"a":1}' },
    { type: 'application/x-www-form-urlencoded', body: 'a=1&b=2&b=3', kind: 'object', data: { a: '1', b: ['2', '3'] } },
    { type: 'image/svg+xml', body: '<svg/>', kind: 'string', data: '<svg/>' },
    { type: undefined, body: 'plain', kind: 'string', data: 'plain' },
    { type: 'application/octet-stream', body: 'é', kind: 'buffer', data: [0xc3, 0xa9] },
    { type: 'image/png', body: 'A', kind: 'buffer', data: [65] },
    { type: 'application/json', body: '\ufeff{"a":"\ufeff"}', kind: 'object', data: { a: '\ufeff' } },
    { type: 'text/plain; charset=iso-8859-1', body: Buffer.from('é', 'latin1'), kind: 'string', data: 'é' },
    { type: 'text/csv; header=absent; Charset="UTF-16LE"', body: Buffer.from('é', 'utf16le'), kind: 'string', data: 'é' },
  ];
  test('follows the content type', async (t) => {
    const { port } = await serve(t, echo);
    for (const { type, body, kind, data } of bodies) {
      const headers = type === undefined ? {} : { 'content-type': type };
      const got = JSON.parse((await send(port, { headers, body })).text);
      assert.deepEqual(got, { kind, data, same: true }, `${type}: ${body}`);
    }
  });

  test('is rejected in an unknown charset', async (t) => {
    const { port } = await serve(t, echo);
    const got = await send(port, { headers: { 'content-type': 'text/plain; charset=klingon' }, body: 'x' });
    assert.deepEqual([got.status, JSON.parse(got.text).message], [415, 'charset klingon is not supported']);
  });

  test('may be compressed, and its decompressed size counts', async (t) => {
    const { port } = await serve(t, echo);
    const headers = { 'content-type': 'application/json' };
    const post = (encoding, body) => send(port, { headers: { ...headers, 'content-encoding': encoding }, body });
    for (const [encoding, body] of [
      ['gzip', zlib.gzipSync('{"a":1}')], ['deflate', zlib.deflateSync('{"a":1}')], ['X-GZIP', zlib.gzipSync('{"a":1}')], ['identity', '{"a":1}'],
    ]) {
      assert.deepEqual(JSON.parse((await post(encoding, body)).text).data, { a: 1 }, encoding);
    }
    for (const [encoding, body, status, message] of [
      ['gzip', '{"a":1}', 400, /^request body is not gzip: incorrect header check$/],
      ['gzip', zlib.gzipSync('{"a":1}').subarray(0, -3), 400, /^request body is not gzip: unexpected end of file$/],
      ['gzip', zlib.gzipSync(Buffer.alloc(2 ** 20 + 1)), 413, /^request body is larger than 1048576 bytes$/],
      ['compress', 'x', 415, /^content-encoding compress is not supported, gzip and deflate are$/],
    ]) {
      const got = await post(encoding, body);
      assert.equal(got.status, status);
      assert.match(JSON.parse(got.text).message, message);
    }
  });

  test('is {} without a body', async (t) => {
    const { port } = await serve(t, echo);
    assert.deepEqual(JSON.parse((await send(port)).text).data, {});
  });

  test('is complete when the body arrives in pieces', async (t) => {
    const { port } = await serve(t, 'exports.main = ({ data }) => data.a.length;');
    const body = JSON.stringify({ a: 'é'.repeat(200_000) });
    const headers = { 'content-type': 'application/json', 'transfer-encoding': 'chunked' };
    assert.equal((await send(port, { headers, body })).text, '200000');
  });

  test('the error for bad JSON has its position', async (t) => {
    const { port } = await serve(t, 'exports.main = () => 1;');
    const places = [
      ['abc', 'line 1, column 1'], ['{"a": tru', 'line 1, column 10'], ['{"a": trie}', 'line 1, column 9'], ['{\n "a": 1,\n}', 'line 3, column 1'],
      ['[1, 2', 'line 1, column 6'], ['"\\q"', 'line 1, column 3'], ['1 2', 'line 1, column 3'], [`[${'1,'.repeat(500)}x]`, 'line 1, column 1002'],
    ];
    for (const [body, place] of places) {
      const got = await send(port, { headers: { 'content-type': 'application/json' }, body });
      assert.match(JSON.parse(got.text).message, new RegExp(`^request body is not valid JSON at ${place}: `), body);
    }
    // This body is too large to search.
    const got = await send(port, { headers: { 'content-type': 'application/json' }, body: `[${'1,'.repeat(90_000)}x]` });
    assert.match(JSON.parse(got.text).message, /^request body is not valid JSON/);
  });

  test('bad JSON is 400, and the function is not called', async (t) => {
    const { port, output } = await serve(t, "exports.main = () => { console.log('called'); };");
    for (const type of ['application/json', 'application/cloudevents+json']) {
      const got = await send(port, { headers: { 'content-type': type }, body: '{"a":' });
      assert.equal(got.status, 400);
      assert.match(JSON.parse(got.text).message, /^request body is not valid JSON at line 1, column 6: /);
    }
    assert.equal(output.stdout, '');
  });
});

describe('the body limit', () => {
  const main = "exports.main = ({ data }, context) => `${data.length} of ${context['body-size-limit']}`;";
  const text = { 'content-type': 'text/plain' };
  const chunked = { ...text, 'transfer-encoding': 'chunked' };

  test('is 1 MiB', async (t) => {
    const { port } = await serve(t, main);
    for (const headers of [text, chunked]) {
      assert.equal((await send(port, { headers, body: 'x'.repeat(2 ** 20) })).text, '1048576 of 1');
      const got = await send(port, { headers, body: 'x'.repeat(2 ** 20 + 1) });
      assert.equal(got.status, 413);
      assert.equal(JSON.parse(got.text).message, 'request body is larger than 1048576 bytes');
    }
  });

  test('can be set, and the connection survives a rejection', async (t) => {
    const { port } = await serve(t, main, { env: { REQ_MB_LIMIT: '0.5' } });
    const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });
    t.after(() => agent.destroy());
    const sockets = new Set();
    const onRequest = (request) => request.on('socket', (socket) => sockets.add(socket));
    for (const [size, status] of [[8 * 2 ** 20, 413], [2 ** 19, 200], [2 ** 19 + 1, 413], [1, 200]]) {
      const got = await send(port, { headers: text, body: 'x'.repeat(size), agent, onRequest });
      assert.equal(got.status, status, `${size} bytes`);
    }
    assert.equal(sockets.size, 1);
  });

  test('must be a number', async () => {
    const { code, words } = await fails(main, { env: { REQ_MB_LIMIT: 'much' } });
    assert.deepEqual([code, words], [1, 'environment variable REQ_MB_LIMIT: "much" is not valid']);
  });
});

describe('event and context', () => {
  test('request and response', async (t) => {
    const { port } = await serve(
      t,
      `exports.main = ({ extensions: { request, response } }) => {
        response.status(201).set('x-seen', request.headers['x-sent']).set('content-type', 'text/html');
        return [request.method, request.path, JSON.stringify(request.query)].join(' ');
      };`
    );
    const got = await send(port, { path: '/a/b?c=1&c=2&d=%20', headers: { 'x-sent': 'yes' } });
    assert.deepEqual([got.status, got.headers['x-seen'], got.headers['content-type']], [201, 'yes', 'text/html; charset=utf-8']);
    assert.equal(got.text, 'GET /a/b {"c":["1","2"],"d":" "}');
  });

  test('main may write the response itself', async (t) => {
    const { port } = await serve(
      t,
      `exports.main = async ({ extensions: { response } }) => {
        response.writeHead(202); response.write('by '); setImmediate(() => response.end('hand')); return 'ignored';
      };`
    );
    const got = await send(port);
    assert.deepEqual([got.status, got.text], [202, 'by hand']);
  });

  for (const [name, main, status, text] of [
    ['a status', '({ extensions: { response } }) => response.status(202)', 202, ''],
    ['nothing', 'async ({ extensions: { response } }) => response', 204, ''],
    ['an answer', "({ extensions: { response } }) => response.send('sent')", 200, 'sent'],
    ['a stream piped into it', "({ extensions: { response } }) => require('node:stream').Readable.from(['one ', 'two']).pipe(response)", 200, 'one two'],
  ]) {
    test(`main may return the response, with ${name}`, async (t) => {
      const { port } = await serve(t, `exports.main = ${main};`);
      const got = await send(port);
      assert.deepEqual([got.status, got.text], [status, text]);
    });
  }

  test('the methods of Express', async (t) => {
    const source = `const answers = {
        '/json': (res) => res.status(201).json({ a: 1 }),
        '/send': (res) => res.send('<b>'),
        '/object': (res) => res.set({ 'x-a': '1' }).append('x-a', '2').type('xml').send({ a: 1 }),
        '/status': (res) => { res.sendStatus(418); },
        '/redirect': (res) => { res.redirect('/there'); },
        '/moved': (res) => { res.redirect(301, '/there'); },
      };
      exports.main = ({ extensions: { request, response } }) => {
        answers[request.path]?.(response);
        if (request.path === '/request') return [request.get('X-Sent'), request.header('referrer'), request.hostname, request.protocol,
          request.originalUrl, request.query === request.query, request.params];
      };`;
    const { port } = await serve(t, source);
    const get = async (path) => {
      const { status, headers, text } = await send(port, { path, headers: { 'x-sent': 's', referer: 'r', host: 'h:1', 'x-forwarded-proto': 'https' } });
      return [status, headers['content-type'], text, headers['x-a'] ?? headers.location];
    };
    assert.deepEqual(await get('/json'), [201, 'application/json', '{"a":1}', undefined]);
    assert.deepEqual(await get('/send'), [200, 'text/html; charset=utf-8', '<b>', undefined]);
    assert.deepEqual(await get('/object'), [200, 'application/xml', '{"a":1}', '1, 2']);
    assert.deepEqual(await get('/status'), [418, 'text/plain; charset=utf-8', "I'm a Teapot", undefined]);
    assert.deepEqual(await get('/redirect'), [302, undefined, '', '/there']);
    assert.deepEqual(await get('/moved'), [301, undefined, '', '/there']);
    const request = JSON.parse((await get('/request'))[2]);
    assert.deepEqual(request, ['s', 'r', 'h', 'https', '/request', true, {}]);
  });

  test('the setters of the event', async (t) => {
    const { port } = await serve(
      t,
      `exports.main = (event) => {
        event.setResponseStatus(202); event.setResponseHeader('x-a', '1'); event.setResponseContentType('text/csv'); return 'a,b';
      };`
    );
    const { status, headers, text } = await send(port);
    assert.deepEqual([status, headers['x-a'], headers['content-type'], text], [202, '1', 'text/csv; charset=utf-8', 'a,b']);
  });

  test('the short names of types in Express', async (t) => {
    const { port } = await serve(t, "exports.main = (event) => { event.setResponseContentType(event.data.type); return 'é'; };");
    for (const [type, want] of [
      ['html', 'text/html; charset=utf-8'], ['.png', 'image/png'], ['jpg', 'image/jpeg'], ['svg', 'image/svg+xml'], ['pdf', 'application/pdf'],
      ['text/html', 'text/html; charset=utf-8'], ['text/csv; charset=latin1', 'text/csv; charset=latin1'], ['image/x-a', 'image/x-a'],
      ['application/json', 'application/json'], ['nothing-known', 'application/octet-stream'],
    ]) {
      assert.equal((await send(port, json({ type }))).headers['content-type'], want);
    }
  });

  test('the methods of the event work without the event', async (t) => {
    const { port } = await serve(t, `exports.main = ({ setResponseStatus, setResponseHeader, buildResponseCloudEvent, data }) => {
      setResponseStatus(201); setResponseHeader('x-a', '1'); return buildResponseCloudEvent('1', 't', data);
    };`);
    const got = await send(port, json('d'));
    assert.deepEqual([got.status, got.headers['x-a'], JSON.parse(got.text).data], [201, '1', 'd']);
  });

  test('a status without a body is kept', async (t) => {
    const { port } = await serve(t, 'exports.main = ({ extensions }) => { extensions.response.status(202); };');
    assert.equal((await send(port)).status, 202);
  });

  test('context', async (t) => {
    const env = {
      FUNC_NAME: 'greeter', FUNC_NAMESPACE: 'default', FUNC_RUNTIME: 'nodejs24', FUNC_TIMEOUT: '30', FUNC_MEMORY_LIMIT: '128Mi',
    };
    const { port } = await serve(t, 'exports.main = (event, context) => context;', { env });
    assert.deepEqual(JSON.parse((await send(port)).text), {
      'function-name': 'greeter', namespace: 'default', runtime: 'nodejs24', timeout: 30, 'memory-limit': '128Mi',
      'body-size-limit': 1,
    });
  });

  test('console.log goes to stdout unchanged', async (t) => {
    const { port, child, closed, output } = await serve(t, "exports.main = () => { console.log('hello'); };");
    await send(port);
    child.kill('SIGTERM');
    await closed;
    assert.equal(output.stdout, 'hello\n');
  });
});

describe('CloudEvents', () => {
  const echo = 'exports.main = ({ extensions, ...event }) => event;';
  const ce = { 'ce-specversion': '1.0', 'ce-id': '1', 'ce-source': '/s', 'ce-type': 't' };
  const structured = { 'content-type': 'application/cloudevents+json; charset=utf-8' };
  const envelope = { specversion: '1.0', id: '1', source: '/s', type: 't' };

  test('binary mode', async (t) => {
    const { port } = await serve(t, echo);
    const headers = { ...ce, 'ce-subject': 'caf%C3%A9', 'ce-odd': '100%', 'content-type': 'application/json' };
    const got = await send(port, { headers, body: '{"a":1}' });
    assert.deepEqual(JSON.parse(got.text), {
      ...ce, 'ce-subject': 'café', 'ce-odd': '100%', 'ce-datacontenttype': 'application/json', data: { a: 1 },
    });
  });

  test('structured mode', async (t) => {
    const { port } = await serve(t, echo);
    const got = await send(port, { headers: structured, body: JSON.stringify({ ...envelope, data: { a: 1 } }) });
    assert.deepEqual(JSON.parse(got.text), { ...ce, data: { a: 1 } });
    const binary = JSON.stringify({ ...envelope, data_base64: 'QQ==' });
    const bytes = await send(port, { headers: structured, body: binary });
    assert.deepEqual(JSON.parse(bytes.text).data, { type: 'Buffer', data: [65] });
  });

  test('binary mode without a version, as older senders do', async (t) => {
    const { port } = await serve(t, echo);
    const old = { 'ce-type': 't', 'ce-source': '/s', 'ce-eventtypeversion': 'v1' };
    assert.deepEqual(JSON.parse((await send(port, { headers: old })).text), { ...old, data: {} });
    const half = { 'ce-type': 't' };
    assert.deepEqual(JSON.parse((await send(port, { headers: half })).text), { data: {} });
  });

  test('structured mode in capital letters, and without data', async (t) => {
    const { port } = await serve(t, echo);
    const headers = { 'content-type': 'Application/CloudEvents+JSON' };
    assert.deepEqual(JSON.parse((await send(port, { headers, body: JSON.stringify(envelope) })).text), { ...ce, data: {} });
    const nothing = JSON.stringify({ ...envelope, data: null });
    assert.deepEqual(JSON.parse((await send(port, { headers, body: nothing })).text), { ...ce, data: null });
  });

  test('other versions and invalid events are rejected', async (t) => {
    const { port } = await serve(t, echo);
    const { 'ce-id': _, ...noID } = ce;
    const batch = { 'content-type': 'application/cloudevents-batch+json' };
    const cases = [
      [{ headers: noID, body: 'x' }, 400, 'the CloudEvent has no attribute "id"'],
      [{ headers: { ...ce, 'ce-type': '' }, body: 'x' }, 400, 'the CloudEvent has no attribute "type"'],
      [{ headers: { ...ce, 'ce-specversion': '9' } }, 400, 'CloudEvents version "9" is not supported, 1.0 is'],
      [{ headers: structured, body: '{}' }, 400, 'the CloudEvent has no attribute "id"'],
      [{ headers: structured, body: JSON.stringify({ ...envelope, data_base64: 'A' }) }, 400, 'data_base64 of the CloudEvent is not valid'],
      [{ headers: structured, body: '[]' }, 400, 'a CloudEvent must be a JSON object'],
      [{ headers: batch, body: '[]' }, 415, 'application/cloudevents-batch+json is not supported'],
    ];
    for (const [request, status, message] of cases) {
      const got = await send(port, request);
      assert.deepEqual([got.status, JSON.parse(got.text).message], [status, message]);
    }
    assert.equal((await send(port, { headers: structured, method: 'POST' })).status, 400);
  });
});

describe('CloudEvents of the function', () => {
  /** A sink that answers with `status` and keeps what it got. */
  async function listen(t, status) {
    const got = [];
    const sink = http.createServer((request, response) => {
      const chunks = [];
      request.on('data', (chunk) => chunks.push(chunk));
      request.on('end', () => {
        got.push({ headers: request.headers, event: JSON.parse(Buffer.concat(chunks)) });
        response.writeHead(status).end();
      });
    });
    t.after(() => sink.close());
    await once(sink.listen(0), 'listening');
    return { got, url: `http://127.0.0.1:${sink.address().port}/` };
  }

  test('a returned event is the answer', async (t) => {
    const { port } = await serve(t, "exports.main = (event) => event.buildResponseCloudEvent('2', 'answer', { a: 1 });");
    const headers = { 'ce-specversion': '1.0', 'ce-id': '1', 'ce-source': '/s', 'ce-type': 't', 'ce-eventtypeversion': 'v1' };
    const got = await send(port, { headers, body: '' });
    assert.equal(got.headers['content-type'], 'application/cloudevents+json');
    assert.deepEqual(JSON.parse(got.text), {
      specversion: '1.0', id: '2', type: 'answer', source: '/s', eventtypeversion: 'v1', datacontenttype: 'application/json', data: { a: 1 },
    });
  });

  test('are sent to the sink, with the trace', async (t) => {
    const { got, url } = await listen(t, 202);
    const source = `exports.main = async (event) => {
      await event.publishCloudEvent(event.buildResponseCloudEvent('2', 'built', 'text'));
      await event.publishCloudEvent({ specversion: '1.0', id: '3', type: 'own', source: '/own', data: Buffer.from('A') });
      await event.emitCloudEvent('emitted', '/e', 1, { subject: 'x' });
    };`;
    const env = { K_SINK: url, K_CE_OVERRIDES: '{"extensions":{"team":"a"}}', FUNC_NAME: 'f', FUNC_NAMESPACE: 'n' };
    const { port } = await serve(t, source, { env });
    const traceparent = '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01';
    assert.equal((await send(port, { headers: { traceparent } })).status, 204);
    assert.equal(got[0].headers['content-type'], 'application/cloudevents+json');
    assert.deepEqual(got.map(({ headers }) => headers.traceparent), [traceparent, traceparent, traceparent]);
    const { id, time, ...emitted } = got[2].event;
    assert.deepEqual([got[0].event, got[1].event, emitted], [
      { source: '/n/f', specversion: '1.0', datacontenttype: 'text/plain', id: '2', type: 'built', data: 'text', team: 'a' },
      { specversion: '1.0', id: '3', type: 'own', source: '/own', data_base64: 'QQ==', team: 'a' },
      { source: '/e', specversion: '1.0', datacontenttype: 'application/json', type: 'emitted', subject: 'x', data: 1, team: 'a' },
    ]);
    assert.match(id, /^[0-9a-f-]{36}$/);
    assert.ok(!Number.isNaN(Date.parse(time)));
  });

  for (const [name, status, words] of [['no sink', 0, /K_SINK is not set/], ['a sink that refuses', 503, /the sink refused the event: 503/]]) {
    test(`${name} is an error`, async (t) => {
      const env = status === 0 ? {} : { K_SINK: (await listen(t, status)).url };
      const fn = await serve(t, "exports.main = (event) => event.emitCloudEvent('t', '/s', 1);", { env });
      assert.equal((await send(fn.port)).status, 500);
      assert.match((await entry(fn, 'main failed')).message, words);
    });
  }

  test("the Kubeless names of an event's attributes", async (t) => {
    const { port } = await serve(t, "exports.main = (event) => ['id', 'type', 'time', 'namespace'].map((name) => event[`event-${name}`] ?? null);");
    const ce = { 'ce-specversion': '1.0', 'ce-id': '1', 'ce-source': '/s', 'ce-type': 't', 'ce-time': 'now' };
    assert.deepEqual(JSON.parse((await send(port, { headers: ce, body: '' })).text), ['1', 't', 'now', '/s']);
    const kubeless = { 'event-id': '1', 'event-type': 't', 'event-time': 'now', 'event-namespace': 'n' };
    assert.deepEqual(JSON.parse((await send(port, { headers: kubeless })).text), ['1', 't', 'now', 'n']);
    assert.deepEqual(JSON.parse((await send(port)).text), [null, null, null, null]);
  });
});

describe('streams', () => {
  const forms = {
    'a generator': "function* () { yield 'one '; yield Buffer.from('two'); }",
    'an asynchronous generator': "async function* () { yield 'one '; yield Buffer.from('two'); }",
    "node's stream": "() => require('node:stream').Readable.from(['one ', 'two'])",
    "a web stream": "() => new Response('one two').body",
    'an old stream': `() => { const old = new (require('node:stream'))(); old.pause = old.resume = () => {};
      setImmediate(() => { old.emit('data', 'one '); old.emit('data', 'two'); old.emit('end'); }); return old; }`,
  };
  for (const [name, main] of Object.entries(forms)) {
    test(`${name} is sent in pieces`, async (t) => {
      const { port } = await serve(t, `exports.main = ${main};`);
      const got = await send(port);
      assert.deepEqual([got.status, got.headers['content-type'], got.headers['transfer-encoding'], got.text],
        [200, 'application/octet-stream', 'chunked', 'one two']);
      assert.deepEqual([(await send(port, { method: 'HEAD' })).text], ['']);
    });
  }

  test('a stream that fails is cut off, and the error is in the log', async (t) => {
    const fn = await serve(t, "exports.main = async function* () { yield 'one'; throw new Error('broken'); };");
    await assert.rejects(send(fn.port));
    assert.match((await entry(fn, 'main failed')).message, /broken/);
  });

  for (const [name, main, status, words] of [
    ['fails at once', "() => require('node:fs').createReadStream('/nope')", 500, /ENOENT/],
    ['throws a status', "async function* () { throw Object.assign(new Error('no such thing'), { status: 404 }); }", 404, /no such thing/],
    ['has objects', "() => require('node:stream').Readable.from([{ a: 1 }])", 500, /main yielded an object, which is neither text nor bytes/],
    ['has numbers', 'async function* () { yield 3; }', 500, /main yielded a number, which is neither text nor bytes/],
    ['is destroyed', "() => require('node:stream').Readable.from(['a']).destroy()", 500, /Premature close/],
    ['never begins', 'async () => (async function* () { await new Promise(() => {}); yield 1; })()', 504, /did not finish within 0\.5 s/],
  ]) {
    test(`a stream that ${name} is logged`, async (t) => {
      const fn = await serve(t, `exports.main = ${main};`, { env: { FUNC_TIMEOUT: '0.5' } });
      assert.equal((await send(fn.port, { method: 'HEAD' })).status, 200, 'HEAD does not read the stream');
      const got = await send(fn.port);
      assert.deepEqual([got.status, got.headers['content-type']], [status, 'application/json']);
      assert.match((await entry(fn, 'main failed')).message, words);
      const { port } = await entry(fn, 'metrics');
      assert.match((await send(port, { path: '/metrics' })).text, /calls_total\{method="GET"\} 1\n[^]*failures_total\{method="GET"\} 1\n/);
    });
  }

  test('an empty stream is an empty answer', async (t) => {
    const { port } = await serve(t, 'exports.main = async function* () {};');
    const got = await send(port);
    assert.deepEqual([got.status, got.text], [200, '']);
  });

  test('a stream that ends with an object is cut off, and other requests are not', async (t) => {
    const fn = await serve(t, `let release; const released = new Promise((resolve) => (release = resolve));
      exports.main = async ({ extensions: { request } }) => {
        if (request.path === '/slow') { console.log('waiting'); await released; return 'slow'; }
        return require('node:stream').Readable.from((async function* () { yield 'one'; await new Promise(setImmediate); release(); yield { a: 1 }; })());
      };`);
    const slow = send(fn.port, { path: '/slow' });
    await once(fn.child.stdout, 'data');
    await assert.rejects(send(fn.port), { code: 'ECONNRESET' });
    assert.equal((await slow).text, 'slow');
    const { port } = await entry(fn, 'metrics');
    assert.match((await send(port, { path: '/metrics' })).text, /failures_total\{method="GET"\} 1\n/);
  });

  test('a large stream is complete', async (t) => {
    const { port } = await serve(t, "exports.main = () => require('node:fs').createReadStream(process.execPath, { end: 9_999_999 });");
    const { bytes } = await send(port);
    const want = Buffer.alloc(10_000_000);
    const file = fs.openSync(process.execPath);
    fs.readSync(file, want);
    fs.closeSync(file);
    assert.ok(bytes.equals(want));
  });

  test('a stream is ended at its timeout', async (t) => {
    const fn = await serve(t, `exports.main = async function* () {
      try { await new Promise((done) => setTimeout(done, 600)); yield 'late'; yield 'later'; } finally { console.log('ended'); }
    };`, { env: { FUNC_TIMEOUT: '0.3' } });
    const ended = once(fn.child.stdout, 'data');
    assert.equal((await send(fn.port)).status, 504);
    assert.deepEqual(await ended, ['ended\n']);
  });

  test('a stream that main returns after the timeout is ended', async (t) => {
    const fn = await serve(t, `const late = new (require('node:stream').Readable)({ read() {} });
      let release; const released = new Promise((resolve) => (release = resolve));
      exports.main = async ({ extensions: { request } }) => {
        if (request.path === '/') { await released; return late; }
        release();
        await new Promise(setImmediate);
        return String(late.destroyed);
      };`, { env: { FUNC_TIMEOUT: '0.3' } });
    assert.equal((await send(fn.port)).status, 504);
    assert.equal((await send(fn.port, { path: '/late' })).text, 'true');
  });

  test('a stream without a reader is ended', async (t) => {
    const fn = await serve(t, `exports.main = async function* () {
      try { for (;;) { yield 'x'.repeat(1000); await new Promise(setImmediate); } } finally { console.log('ended'); }
    };`);
    const socket = net.connect(fn.port);
    socket.write('GET / HTTP/1.1\r\nHost: x\r\n\r\n');
    await once(socket, 'data');
    socket.destroy();
    const [output] = await once(fn.child.stdout, 'data');
    assert.equal(output, 'ended\n');
    assert.equal(fn.output.stderr.includes('main failed'), false);
  });
});

describe('the time limit', () => {
  test('is answered with 504, and later results are dropped', async (t) => {
    const fn = await serve(t, `let late; const done = new Promise((resolve) => (late = resolve));
      exports.main = async ({ extensions: { request } }, { timeout }) => {
        if (request.path === '/late') { late(); return timeout; }
        await done; if (request.path === '/throws') throw new Error('late'); return 'late';
      };`, { env: { FUNC_TIMEOUT: '0.3' } });
    const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });
    t.after(() => agent.destroy());
    for (const path of ['/returns', '/throws']) {
      const got = await send(fn.port, { path, agent });
      const { id, message } = JSON.parse(got.text);
      assert.deepEqual([got.status, message], [504, 'main did not finish within 0.3 s']);
      assert.ok(id);
    }
    assert.equal((await send(fn.port, { path: '/late', agent })).text, '0.3');
    assert.equal((await send(fn.port, { path: '/late', agent })).status, 200, 'the connection goes on');
    const { port } = await entry(fn, 'metrics');
    assert.match((await send(port, { path: '/metrics' })).text, /calls_total\{method="GET"\} 4\n[^]*failures_total\{method="GET"\} 2\n/);
    assert.ok((await entry(fn, 'main failed: Error: late')).requestId);
  });

  test('counts from the start, even if main blocks the event loop', async (t) => {
    const source = `exports.main = () => {
      for (const began = Date.now(); Date.now() < began + 1500; );
      return new Promise(() => {});
    };`;
    const fn = await serve(t, source, { env: { FUNC_TIMEOUT: '2' } });
    assert.equal((await send(fn.port)).status, 504);
    const { port } = await entry(fn, 'metrics');
    const [, seconds] = /duration_seconds_sum\{method="GET"\} (.*)/.exec((await send(port, { path: '/metrics' })).text);
    assert.ok(seconds < 3, `${seconds} s`);
  });

  test('of a stream that has not started is that of its call, despite later calls', async (t) => {
    const fn = await serve(t, `let release; const released = new Promise((resolve) => (release = resolve));
      exports.main = async ({ extensions: { request } }) => {
        if (request.path === '/first') { console.log('waiting'); await released; return (async function* () { await new Promise(() => {}); })(); }
        release();
        await new Promise(() => {});
      };`, { env: { FUNC_TIMEOUT: '0.5' } });
    const first = send(fn.port, { path: '/first', headers: { 'x-request-id': 'first' } });
    await once(fn.child.stdout, 'data');
    await Promise.all([first, send(fn.port, { path: '/second', headers: { 'x-request-id': 'second' } })]);
    const given = () => fn.output.stderr.match(/(?<="requestId":")\w+/g) ?? [];
    while (given().length < 2) await once(fn.child.stderr, 'data');
    assert.deepEqual(given(), ['first', 'second']);
  });

  test('cuts off an incomplete answer', async (t) => {
    const source = "exports.main = async ({ extensions: { response } }) => { response.write('half'); await new Promise(() => {}); };";
    const { port } = await serve(t, source, { env: { FUNC_TIMEOUT: '0.3' } });
    await assert.rejects(send(port), { code: 'ECONNRESET' });
  });
});

describe('other origins', () => {
  test('may read answers and send preflights', async (t) => {
    const { port } = await serve(t, "exports.main = ({ extensions: { request } }) => { if (request.path === '/x') throw 1; return request.method; };");
    const origin = 'https://example.com';
    const asked = await send(port, {
      method: 'OPTIONS', headers: { origin, 'access-control-request-method': 'PUT', 'access-control-request-headers': 'x-a' },
    });
    const { 'access-control-allow-methods': methods, 'access-control-allow-headers': headers } = asked.headers;
    assert.deepEqual([asked.status, methods, headers], [204, 'PUT', 'x-a']);
    for (const path of ['/', '/x']) {
      assert.equal((await send(port, { path, headers: { origin } })).headers['access-control-allow-origin'], '*');
    }
    assert.equal((await send(port)).headers['access-control-allow-origin'], undefined);
    assert.equal((await send(port, { method: 'OPTIONS' })).text, 'OPTIONS');
  });
});

describe('metrics', () => {
  test('have their own port', async (t) => {
    const fn = await serve(t, "exports.main = ({ data }) => { if (data.fail) throw new Error('x'); };");
    const { port } = await entry(fn, 'metrics');
    await send(fn.port);
    await send(fn.port, json({ fail: true }));
    await send(fn.port, { headers: { 'content-type': 'application/json' }, body: '{' });
    const { text, headers } = await send(port, { path: '/metrics' });
    assert.match(headers['content-type'], /^text\/plain; version=0\.0\.4/);
    for (const line of [
      'function_calls_total{method="GET"} 1', 'function_calls_total{method="POST"} 1',
      'function_failures_total{method="GET"} 0', 'function_failures_total{method="POST"} 1',
      'function_duration_seconds_bucket{method="GET",le="60"} 1', 'function_duration_seconds_count{method="POST"} 1',
    ]) {
      assert.ok(text.split('\n').includes(line), `${line}\n${text}`);
    }
    assert.equal((await send(port)).status, 404);
  });

  test('a port in use is logged, and the function runs', async (t) => {
    const other = net.createServer().listen(0);
    await once(other, 'listening');
    t.after(() => other.close());
    const fn = await serve(t, 'exports.main = () => 1;', { env: { OTEL_EXPORTER_PROMETHEUS_PORT: String(other.address().port) } });
    assert.match((await entry(fn, 'there are no metrics')).message, /EADDRINUSE/);
    assert.equal((await send(fn.port)).text, '1');
  });
});

describe('OpenTelemetry', () => {
  const files = {
    'node_modules/@opentelemetry/auto-instrumentations-node/register.js': "console.log(`registered ${process.env.OTEL_SERVICE_NAME}`);",
    'node_modules/@opentelemetry/api/index.js': 'exports.trace = { getTracer: (name) => ({ name }) };',
  };
  const main = "exports.main = ({ tracer }) => tracer.name ?? tracer.startActiveSpan('a', {}, (span) => { span.setAttribute('a', 1).end(); return 'none'; });";
  const on = { OTEL_EXPORTER_OTLP_ENDPOINT: 'http://collector:4318', FUNC_NAME: 'greeter' };

  test("the function's SDK is loaded when the environment asks for it", async (t) => {
    const fn = await serve(t, main, { files, env: on });
    assert.equal((await send(fn.port)).text, 'greeter');
    assert.equal(fn.output.stdout, 'registered greeter\n');
  });

  test('the SDK flushes after the last answer', async (t) => {
    const register = `process.on('SIGTERM', async () => {
      await new Promise((sent) => setTimeout(sent, 50));
      console.log('sent');
    });`;
    const slow = `exports.main = async () => {
      console.log('called');
      await new Promise((done) => setTimeout(done, 200));
      console.log('answered');
    };`;
    const fn = await serve(t, slow, { files: { 'node_modules/@opentelemetry/auto-instrumentations-node/register.js': register }, env: on });
    const answer = send(fn.port);
    while (!fn.output.stdout.includes('called')) await once(fn.child.stdout, 'data');
    fn.child.kill('SIGTERM');
    assert.equal((await answer).status, 204);
    assert.equal(await fn.closed, 0);
    assert.equal(fn.output.stdout, 'called\nanswered\nsent\n');
  });

  test('publishing leaves the trace to the SDK, to avoid a second one', async (t) => {
    const sink = http.createServer((request, response) => response.end());
    t.after(() => sink.close());
    await once(sink.listen(0), 'listening');
    // The instrumentation of fetch does the same.
    const register = `require('node:diagnostics_channel').subscribe('undici:request:create', ({ request }) => request.addHeader('traceparent', 'own'));`;
    const source = "exports.main = async (event) => (await event.emitCloudEvent('t', '/s', 1)).status;";
    const fn = await serve(t, source, {
      files: { 'node_modules/@opentelemetry/auto-instrumentations-node/register.js': register }, env: { ...on, K_SINK: `http://127.0.0.1:${sink.address().port}/` },
    });
    const seen = once(sink, 'request');
    await send(fn.port, { headers: { traceparent: '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01' } });
    const [{ rawHeaders }] = await seen;
    assert.deepEqual(rawHeaders.filter((_, i) => rawHeaders[i - 1] === 'traceparent'), ['own']);
  });

  for (const name of ['OTEL_TRACES_EXPORTER', 'OTEL_METRICS_EXPORTER', 'OTEL_EXPORTER_OTLP_LOGS_ENDPOINT']) {
    test(`${name} enables it`, async (t) => {
      const fn = await serve(t, main, { files, env: { OTEL_TRACES_EXPORTER: 'none', [name]: 'otlp', FUNC_NAME: 'greeter' } });
      await send(fn.port);
      assert.equal(fn.output.stdout, 'registered greeter\n');
    });
  }

  for (const [name, env] of [
    ['without settings', {}],
    ['with OTEL_SDK_DISABLED', { ...on, OTEL_SDK_DISABLED: 'True' }],
    ['without exporters', { OTEL_TRACES_EXPORTER: 'none', OTEL_METRICS_EXPORTER: 'None', OTEL_LOGS_EXPORTER: '' }],
  ]) {
    test(`${name}: it is disabled`, async (t) => {
      const fn = await serve(t, main, { files, env });
      await send(fn.port);
      assert.equal(fn.output.stdout, '');
    });
  }

  test('enabled and not installed: a warning, and a tracer that does nothing', async (t) => {
    const fn = await serve(t, main, { env: on });
    assert.match((await entry(fn, 'there are no traces')).message, /Cannot find module '@opentelemetry\/auto-instrumentations-node/);
    assert.equal((await send(fn.port)).text, 'none');
  });
});

describe('errors', () => {
  for (const [name, source] of [
    ['thrown', "exports.main = () => { throw new Error('secret'); };"],
    ['rejected', "exports.main = async () => { throw new Error('secret'); };"],
    ['not an Error', "exports.main = () => { throw 'secret'; };"],
    ['nothing', 'exports.main = () => Promise.reject();'],
    ['a status that is none', "exports.main = () => { throw Object.assign(new Error('secret'), { status: 200 }); };"],
  ]) {
    test(`${name}: 500, the details only in the log`, async (t) => {
      const fn = await serve(t, source);
      const got = await send(fn.port);
      const { id, ...rest } = JSON.parse(got.text);
      assert.deepEqual([got.status, got.headers['content-type'], rest],
        [500, 'application/json', { message: 'Internal Server Error' }]);
      const logged = await entry(fn, 'main failed');
      assert.equal(logged.requestId, id);
      if (name === 'thrown') assert.match(logged.stack, /^Error: secret\n\s+at .*handler\.js:1:/);
      assert.equal((await send(fn.port, { path: '/healthz' })).status, 200, 'it goes on');
    });
  }

  test('an error with a status', async (t) => {
    const { port, ...fn } = await serve(
      t,
      `exports.main = ({ data: { status }, extensions: { response } }) => {
        response.status(201).set('content-type', 'text/html').set('content-length', '3');
        throw Object.assign(new Error('no such thing'), { status });
      };`
    );
    const notFound = await send(port, { ...json({ status: 404 }), headers: { 'content-type': 'application/json', 'x-request-id': 'abc-1' } });
    assert.deepEqual([notFound.status, notFound.text], [404, '{"message":"no such thing"}']);
    assert.equal(notFound.headers['content-type'], 'application/json');
    const { requestId, status, message, stack } = await entry(fn, 'main failed');
    assert.deepEqual([requestId, status, message, stack], ['abc-1', 404, 'main failed: Error: no such thing', undefined]);
    const unavailable = await send(port, json({ status: 503 }));
    assert.equal(unavailable.status, 503);
    assert.ok(JSON.parse(unavailable.text).id);
  });

  test('the id is the one from the caller, if it is valid', async (t) => {
    const { port } = await serve(t, "exports.main = () => { throw new Error('x'); };");
    const trace = '4bf92f3577b34da6a3ce929d0e0e4736';
    const id = async (headers) => JSON.parse((await send(port, { headers })).text).id;
    assert.equal(await id({ 'x-request-id': 'abc-1' }), 'abc-1');
    assert.match(await id({ 'x-request-id': '{"a b"}' }), /^[0-9a-f-]{36}$/);
    assert.equal(await id({ traceparent: `00-${trace}-00f067aa0ba902b7-01` }), trace);
  });

  test('an incomplete answer is cut off', async (t) => {
    const { port } = await serve(
      t,
      "exports.main = ({ extensions: { response } }) => { response.write('half'); throw new Error('x'); };"
    );
    await assert.rejects(send(port), { code: 'ECONNRESET' });
  });

  test('a client that disconnects does not affect others', async (t) => {
    const { port } = await serve(t, "exports.main = () => 'fine';");
    const socket = net.connect(port);
    await once(socket, 'connect');
    socket.write('POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nhalf');
    assert.equal((await send(port)).text, 'fine');
    socket.destroy();
    assert.equal((await send(port)).text, 'fine');
  });

  for (const [name, work, words] of [
    ['exception', "throw new Error('late')", 'handler.js:1: uncaught exception: Error: late'],
    ['rejection', "Promise.reject(new Error('late'))", 'handler.js:1: unhandled rejection: Error: late'],
    ['rejection of nothing', 'Promise.reject()', 'handler.js: unhandled rejection: UnhandledPromiseRejection: '],
  ]) {
    test(`an ${name} in the background ends the process`, async (t) => {
      const fn = await serve(t, `exports.main = () => { setTimeout(() => { ${work} }, 1); };`);
      await send(fn.port);
      assert.equal(await fn.closed, 1);
      assert.ok(fn.output.stderr.split('\n').some((line) => line.startsWith(words)), fn.output.stderr);
    });
  }
});

describe('an uncaught error', () => {
  const source = `let release; const released = new Promise((resolve) => (release = resolve));
    exports.main = async ({ extensions: { request }, emitCloudEvent }) => {
      if (request.path === '/emit') { emitCloudEvent('t', '/s', 1); return 'emitted'; }
      if (request.path === '/release') release();
      if (request.path === '/never') { console.log('never'); await new Promise(() => {}); }
      console.log('waiting'); await released; return 'answered';
    };`;

  test('does not cut off requests in flight', async (t) => {
    const fn = await serve(t, source);
    const inFlight = send(fn.port);
    await once(fn.child.stdout, 'data');
    const release = net.connect(fn.port).resume();
    await once(release, 'connect');
    release.write('GET /release HTTP/1.1\r\n');
    await send(fn.port, { path: '/healthz' }); // The server has seen it once a later connection is answered.
    assert.equal((await send(fn.port, { path: '/emit' })).text, 'emitted');
    assert.match((await entry(fn, 'handler.js:3: unhandled rejection')).message, /K_SINK is not set/);
    // A connection that was opened just before the port closed is reset.
    await assert.rejects(send(fn.port, { agent: false }), ({ code }) => code === 'ECONNREFUSED' || code === 'ECONNRESET');
    release.write('Host: x\r\n\r\n');
    assert.equal((await inFlight).text, 'answered');
    assert.equal(await fn.closed, 1);
    assert.match(fn.output.stderr, /\nhandler\.js:3: unhandled rejection: .*K_SINK is not set[^\n]*\n[^\n]*\n *\^\n$/);
  });

  test('does not wait forever', async (t) => {
    const fn = await serve(t, source);
    const never = assert.rejects(send(fn.port, { path: '/never' }), { code: 'ECONNRESET' });
    await once(fn.child.stdout, 'data');
    await send(fn.port, { path: '/emit' });
    await never;
    assert.equal(await fn.closed, 1);
  });
});

describe('health', () => {
  test('does not call the function', async (t) => {
    const { port } = await serve(t, "exports.main = ({ extensions: { request } }) => `main ${request.method} ${request.url}`;");
    assert.deepEqual([(await send(port, { path: '/healthz' })).text], ['ok']);
    assert.equal((await send(port, { path: '/healthz', method: 'HEAD' })).status, 200);
    assert.equal((await send(port, { path: '/healthz?x' })).text, 'main GET /healthz?x');
    assert.equal((await send(port, { path: '/healthz', headers: { 'content-length': '0' } })).text, 'ok');
    assert.equal((await send(port, { path: '/healthz', method: 'GET', headers: { 'content-type': 'application/json', 'content-length': '1' }, body: '{' })).text, 'ok');
    assert.equal((await send(port, { path: '/healthz', body: '' })).text, 'main POST /healthz');
    assert.equal((await send(port, { path: '/healthz/deep' })).text, 'main GET /healthz/deep');
  });

  test('answers only once the function is loaded', async (t) => {
    const probe = net.createServer().listen(0);
    await once(probe, 'listening');
    const { port } = probe.address();
    await new Promise((resolve) => probe.close(resolve));
    const source = `console.log('loading');
      await new Promise((resolve) => process.stdin.once('data', resolve));
      export const main = () => 1;`;
    const fn = run(source, { env: { PORT: String(port) } });
    t.after(() => fn.child.kill('SIGKILL'));
    await once(fn.child.stdout, 'data');
    await assert.rejects(send(port, { path: '/healthz' }), { code: 'ECONNREFUSED' });
    fn.child.stdin.end('go');
    await entry(fn, 'ready');
    assert.equal((await send(port, { path: '/healthz' })).status, 200);
  });
});

describe('a function that cannot start says why and exits with 1', () => {
  const cases = {
    'a syntax error': {
      source: 'const a = 1;\nmodule.exports = { main: (event => } ;\n',
      words: "handler.js:2: SyntaxError: Unexpected token '}'\nmodule.exports = { main: (event => } ;\n" +
        '                                   ^',
    },
    'a syntax error in an ES module': {
      source: "import fs from 'node:fs';\nexport const main = () => ];\n",
      words: "handler.js:2: SyntaxError: Unexpected token ']'\nexport const main = () => ];\n                          ^",
    },
    'an import that is not exported': {
      source: "import { nothing } from 'node:fs';\nexport const main = nothing;\n",
      words: /^handler\.js:1: SyntaxError: The requested module 'node:fs' does not provide an export named 'nothing'\n/,
    },
    'a missing dependency': {
      source: "'use strict';\nconst ms = require('ms');\n",
      words: "handler.js:2: Cannot find module 'ms': is it among the function's dependencies?\n" +
        "const ms = require('ms');\n           ^",
    },
    'a missing dependency of an ES module': {
      source: "import ms from 'ms';\nexport const main = () => ms;",
      words: "handler.js: Cannot find module 'ms': is it among the function's dependencies?",
    },
    'a missing file': {
      source: "require('./other');",
      words: "handler.js:1: Cannot find module './other'\nrequire('./other');\n^",
    },
    'a module that throws': {
      source: "function connect() {\n\tthrow new TypeError('no DATABASE_URL');\n}\nconnect();",
      words: "handler.js:2: TypeError: no DATABASE_URL\n\tthrow new TypeError('no DATABASE_URL');\n\t      ^",
    },
    'a dependency that throws': {
      source: "\nrequire('broken');",
      files: { 'node_modules/broken/index.js': "throw new Error('broken');" },
      words: "handler.js:2: Error: broken\nrequire('broken');\n^",
    },
    'a module that throws no Error': { source: "throw 'up';", words: "handler.js: thrown: 'up'" },
    'no main': {
      source: 'exports.handle = () => 1; exports.version = 2;',
      words: 'handler.js: exports no function named "main" (it exports: handle, version); ' +
        'expected: module.exports = { main: (event, context) => … }',
    },
    'no exports': { source: '', words: /^handler\.js: exports no function named "main" \(it exports: nothing\)/ },
    'a main that is no function': { source: "exports.main = 'x';", words: /\(it exports: main\)/ },
    'a load that never ends': {
      source: 'await new Promise(() => {});\nexport const main = () => 1;',
      words: 'handler.js: a top-level await never finishes',
    },
    'no handler': { source: null, words: /^handler\.js: Cannot find module '.*handler\.js'$/ },
    'a syntax error in TypeScript': {
      source: 'type A = { a: string };\nexports.main = (a: A) => {\n  return 1 +;\n};\n',
      words: /^handler\.js:3: SyntaxError: Expression expected\n {2}return 1 \+;\n *\^$/,
    },
    'TypeScript that is more than types': {
      source: 'enum A { B }\nexports.main = () => A.B;\n',
      words: 'handler.js:1: SyntaxError: TypeScript enum is not supported in strip-only mode\nenum A { B }\n^^^^^^^^^^^^',
    },
    'a syntax error in a file of TypeScript': {
      source: null, files: { 'handler.ts': 'exports.main = (a: string) => {\n  return 1 +;\n};\n' },
      words: /^handler\.ts:2: SyntaxError: Expression expected\n {2}return 1 \+;\n *\^$/,
    },
    'an API that is none': {
      source: 'exports.main = () => 1;', env: { FUNC_API: 'express' },
      words: 'environment variable FUNC_API: "express" is not valid: it is event or request',
    },
    'a port that is none': {
      source: 'exports.main = () => 1;', env: { PORT: 'http' }, words: 'environment variable PORT: "http" is not valid',
    },
  };
  for (const [name, { source, words, ...options }] of Object.entries(cases)) {
    test(name, async () => {
      const got = await fails(source, options);
      assert.equal(got.code, 1);
      if (words instanceof RegExp) assert.match(got.words, words);
      else assert.equal(got.words, words);
      assert.ok(got.stderr.endsWith(`${got.words}\n`), 'the last words come last');
    });
  }

  test('a port in use', async (t) => {
    const { port } = await serve(t, 'exports.main = () => 1;');
    const got = await fails('exports.main = () => 1;', { env: { PORT: String(port) } });
    assert.equal(got.code, 1);
    assert.match(got.words, new RegExp(`^cannot listen on port ${port}: listen EADDRINUSE`));
  });

  test('the error is the termination message', async () => {
    // Kubernetes creates this file. The test uses another one.
    const file = path.join(scratch, 'termination-log');
    const preload = path.join(scratch, 'preload.cjs');
    fs.writeFileSync(preload, `const fs = require('node:fs'); const write = fs.writeFileSync;
      fs.writeFileSync = (name, ...rest) => write(name === '/dev/termination-log' ? ${JSON.stringify(file)} : name, ...rest);`);
    const options = { nodeArgs: ['--require', preload] };
    await fails("throw new Error('x');", options);
    assert.equal(fs.existsSync(file), false, 'it is never created');
    fs.writeFileSync(file, 'older and much longer words than the new ones, of an earlier start of this container');
    await fails("throw new Error('x');", options);
    assert.equal(fs.readFileSync(file, 'utf8'), "handler.js:1: Error: x\nthrow new Error('x');\n      ^");
    await fails("throw new Error('x'.repeat(9999));", options);
    assert.ok(fs.statSync(file).size < 2048);
  });
});

describe('SIGTERM', () => {
  const slow = `let release; const wait = new Promise((resolve) => (release = resolve));
    exports.main = async ({ extensions: { request } }) => {
      if (request.url === '/release') release(); else { console.log('waiting'); await wait; }
      return request.url;
    };`;

  test('idle: closes idle and never-used connections, answers a request that has begun to arrive, exits with 0', async (t) => {
    const { port, child, closed, output } = await serve(t, 'exports.main = () => 1; setInterval(() => {}, 1000);');
    const agent = new http.Agent({ keepAlive: true });
    t.after(() => agent.destroy());
    await send(port, { agent });
    const half = net.connect(port).setEncoding('utf8');
    await once(half, 'connect');
    half.write('GET / HTTP/1.1\r\n');
    const unused = net.connect(port).resume();
    await once(unused, 'connect');
    // The server has seen both once a later connection is answered.
    await send(port);
    child.kill('SIGTERM');
    await once(unused, 'close');
    half.write('Host: a\r\n\r\n');
    assert.match((await half.toArray()).join(''), /^HTTP\/1\.1 200 OK/);
    assert.equal(await closed, 0);
    assert.match(output.stderr, /"draining"/);
  });

  test('lingers: answers on kept and new connections, and closes each', async (t) => {
    const fn = await serve(t, 'exports.main = () => 1;');
    const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });
    t.after(() => agent.destroy());
    await send(fn.port, { agent });
    const idle = net.connect(fn.port).setEncoding('utf8');
    await once(idle, 'connect');
    idle.write('GET / HTTP/1.1\r\nHost: a\r\n\r\n');
    await once(idle, 'data');
    fn.child.kill('SIGTERM');
    await entry(fn, 'draining');
    for (const options of [{ agent }, {}]) {
      const got = await send(fn.port, options);
      assert.deepEqual([got.status, got.headers.connection], [200, 'close']);
    }
    assert.equal(fn.child.exitCode, null);
    await once(idle, 'close');
    assert.equal(await fn.closed, 0);
  });

  test('SIGINT: does not linger', async (t) => {
    const fn = await serve(t, 'exports.main = () => 1;');
    const agent = new http.Agent({ keepAlive: true });
    t.after(() => agent.destroy());
    await send(fn.port, { agent });
    const began = Date.now();
    fn.child.kill('SIGINT');
    assert.equal(await fn.closed, 0);
    assert.ok(Date.now() - began < 1500);
  });

  test('busy: finishes requests in flight, accepts no others in the end, exits with 0', async (t) => {
    const fn = await serve(t, slow);
    const agent = new http.Agent({ keepAlive: true });
    t.after(() => agent.destroy());
    const releaser = net.connect(fn.port);
    await once(releaser, 'connect');
    releaser.write('GET /release HTTP/1.1\r\nHost: x\r\n'); // its headers not yet complete
    const inFlight = send(fn.port, { path: '/slow', agent });
    await once(fn.child.stdout, 'data');
    fn.child.kill('SIGTERM');
    await entry(fn, 'draining');
    let refused;
    while (refused !== 'ECONNREFUSED') refused = await send(fn.port, { path: '/healthz' }).then(() => undefined, (error) => error.code);
    releaser.write('\r\n');
    const [answer] = await once(releaser, 'data');
    assert.match(String(answer), /^HTTP\/1\.1 200 OK\r\n[^]*connection: close\r\n/i);
    const got = await inFlight;
    assert.deepEqual([got.status, got.text, got.headers.connection], [200, '/slow', 'close']);
    assert.equal(await fn.closed, 0);
  });

  test('while the function loads: exits with 0', async () => {
    const source = "console.log('loading'); await new Promise((resolve) => setTimeout(resolve, 60_000)); export default () => 1;";
    const { child, closed } = run(source);
    await once(child.stdout, 'data');
    child.kill('SIGTERM');
    assert.equal(await closed, 0);
  });

  test('a response that streams is finished', async (t) => {
    const fn = await serve(
      t,
      `exports.main = ({ extensions: { response } }) => {
        response.write('one '); process.once('SIGTERM', () => setTimeout(() => response.end('two'), 50));
      };`
    );
    const agent = new http.Agent({ keepAlive: true });
    t.after(() => agent.destroy());
    const got = send(fn.port, { agent, onRequest: (r) => r.on('response', () => fn.child.kill('SIGTERM')) });
    assert.equal((await got).text, 'one two');
    assert.equal(await fn.closed, 0);
  });

  test('a request with incomplete headers is dropped', async (t) => {
    const { port, child, closed } = await serve(t, 'exports.main = () => 1;');
    const socket = net.connect(port);
    socket.on('error', () => {});
    await once(socket, 'connect');
    socket.write('GET / HTTP/1.1\r\n');
    await send(port);
    child.kill('SIGTERM');
    assert.equal(await closed, 0);
  });
});

describe('main(req, res)', () => {
  const styles = [
    ['a function', 'exports.main = function (req, res) { res.send("r"); };', 'r'],
    ['an arrow function', 'exports.main = (request, response) => { response.send("r"); };', 'r'],
    ['a method', 'module.exports = { async main({ query: { a = ")" } }, res) { res.send(a); } };', ')'],
    ['an ES module', 'export async function main(_req, _res) { _res.send("r"); }', 'r'],
    ['comments and defaults', 'exports.main = (req /* (a, b) */ = {}, // one\n res = {}) => { res.send("r"); };', 'r'],
    ['main that is exported itself', 'module.exports = (req, res) => res.end("r");', 'r'],
    ['other names, with FUNC_API', 'exports.main = (a, b) => { b.send("r"); };', 'r', 'request'],
    ['an event', 'exports.main = (event, context) => String("data" in event);', 'true'],
    ['an event alone', 'exports.main = event => ((a, res) => String("data" in event))();', 'true'],
    ['an event of another name', 'exports.main = (req) => String("data" in req);', 'true'],
    ['res in the context', 'exports.main = (event, { res }) => String("data" in event);', 'true'],
    ['these names, with FUNC_API', 'exports.main = (req, res) => String("data" in req);', 'true', 'event'],
    ['a bound function', 'exports.main = function (req, res) { return String("data" in req); }.bind(null);', 'true'],
  ];
  for (const [name, source, want, api = ''] of styles) {
    test(`is told by its parameters: ${name}`, async (t) => {
      const { port } = await serve(t, source, { env: { FUNC_API: api } });
      assert.equal((await send(port)).text, want);
    });
  }

  test('its return value is ignored, and it may answer later', async (t) => {
    const { port } = await serve(t, 'exports.main = (req, res) => { setTimeout(() => res.send("late"), 20); return "early"; };');
    assert.equal((await send(port)).text, 'late');
  });

  test('errors, also of a promise, are those of all functions', async (t) => {
    const { port, output } = await serve(t, `exports.main = (req, res) => {
      if (req.path === '/now') throw Object.assign(new Error('gone'), { status: 410 });
      return Promise.reject(new Error('secret'));
    };`);
    assert.deepEqual((({ status, text }) => [status, text])(await send(port, { path: '/now' })), [410, '{"message":"gone"}']);
    const got = await send(port);
    assert.equal(got.status, 500);
    assert.doesNotMatch(got.text, /secret/);
    assert.match(output.stderr, /secret/);
  });

  test('without an answer is 504', async (t) => {
    const { port } = await serve(t, 'exports.main = async (req, res) => {};', { env: { FUNC_TIMEOUT: '0.5' } });
    assert.equal((await send(port)).status, 504);
  });

  test('a caller that goes ends the call', async (t) => {
    const fn = await serve(t, 'exports.main = (req, res) => { if (req.path === "/") res.send("ok"); else console.log("called"); };');
    const socket = net.connect(fn.port, () => socket.write('GET /hang HTTP/1.1\r\nhost: a\r\n\r\n'));
    await once(fn.child.stdout, 'data');
    socket.destroy();
    assert.equal((await send(fn.port)).text, 'ok');
    fn.child.kill('SIGTERM');
    assert.equal(await fn.closed, 0);
  });

  test('main may be an app that replaces the prototypes, as one of Express does', async (t) => {
    const { port } = await serve(t, `const proto = Object.create(require('node:http').ServerResponse.prototype);
      proto.send = function (text) { this.end(text); };
      module.exports = { main: function (req, res, next) {
        Object.setPrototypeOf(req, Object.create(require('node:http').IncomingMessage.prototype));
        Object.setPrototypeOf(res, proto);
        req.res = res;
        req.res.send(String(next));
      } };`);
    assert.equal((await send(port)).text, 'undefined');
  });

  test('the body', async (t) => {
    const source = `exports.main = (req, res) => {
      const { body } = req;
      res.json(Buffer.isBuffer(body) ? ['bytes', ...body] : [typeof body, body, req.res === res]);
    };`;
    const { port } = await serve(t, source);
    const cloudEvent = { specversion: '1.0', id: '1', source: '/s', type: 't' };
    for (const [type, body, want] of [
      ['application/json', '{"a":1}', ['object', { a: 1 }, true]],
      ['application/x-www-form-urlencoded', 'a=1&b=2&b=3', ['object', { a: '1', b: ['2', '3'] }, true]],
      ['text/plain', 'x', ['string', 'x', true]],
      ['image/png', 'A', ['bytes', 65]],
      ['application/cloudevents+json', JSON.stringify(cloudEvent), ['object', cloudEvent, true]],
    ]) {
      assert.deepEqual(JSON.parse((await send(port, { headers: { 'content-type': type }, body })).text), want);
    }
    assert.deepEqual(JSON.parse((await send(port)).text), ['object', {}, true]);
    const bad = await send(port, { headers: { 'content-type': 'application/json' }, body: '{' });
    assert.equal(bad.status, 400);
  });

  test('the module sdk', async (t) => {
    const source = `import { getCloudEvent, getFunctionName, getNamespace, getRuntime, getTimeout, getBodySizeLimit, getTracer, emitCloudEvent } from 'sdk';
      export async function main(req, res) {
        if (req.path === '/emit') { await emitCloudEvent('t', '/s', { a: 1 }, { subject: 'x' }); res.sendStatus(200); return; }
        const event = getCloudEvent(req);
        getTracer().startActiveSpan('a', (span) => span.end());
        res.json([event && [event.id, event.type, event.subject, event.data],
          getFunctionName(), getNamespace(), getRuntime(), getTimeout(), getBodySizeLimit()]);
      }`;
    let published;
    const sink = http.createServer((request, response) => {
      request.setEncoding('utf8').on('data', (text) => (published = JSON.parse(text))).on('end', () => response.end());
    });
    await once(sink.listen(0), 'listening');
    t.after(() => sink.close());
    const env = {
      FUNC_NAME: 'f', FUNC_NAMESPACE: 'n', FUNC_RUNTIME: 'nodejs24', FUNC_TIMEOUT: '10', REQ_MB_LIMIT: '2',
      K_SINK: `http://127.0.0.1:${sink.address().port}`,
    };
    const { port } = await serve(t, source, { env });
    const rest = ['f', 'n', 'nodejs24', 10, 2];
    const binary = { 'ce-specversion': '1.0', 'ce-id': '1', 'ce-source': '/s', 'ce-type': 't', 'ce-subject': 'caf%C3%A9', 'content-type': 'application/json' };
    const structured = { specversion: '1.0', id: '2', source: '/s', type: 't', data_base64: 'QQ==' };
    for (const [request, want] of [
      [{ headers: binary, body: '{"a":1}' }, ['1', 't', 'café', { a: 1 }]],
      [{ headers: { 'content-type': 'application/cloudevents+json' }, body: JSON.stringify(structured) },
        ['2', 't', null, { type: 'Buffer', data: [65] }]],
      [{ headers: { 'content-type': 'application/cloudevents+json' }, body: '{"id":"1"}' }, null],
      [{ headers: { 'ce-type': 't', 'ce-source': '/s' } }, null],
      [{}, null],
    ]) {
      assert.deepEqual(JSON.parse((await send(port, request)).text), [want, ...rest]);
    }
    assert.equal((await send(port, { path: '/emit' })).status, 200);
    assert.deepEqual([published.type, published.source, published.subject, published.data], ['t', '/s', 'x', { a: 1 }]);
  });

  test("the module sdk beside the wrapper, as on an author's machine", async (t) => {
    const dir = fs.mkdtempSync(path.join(os.tmpdir(), 'kiln-nodejs-'));
    t.after(() => fs.rmSync(dir, { recursive: true, force: true }));
    fs.mkdirSync(path.join(dir, 'kiln', 'node_modules', 'sdk'), { recursive: true });
    fs.copyFileSync(SERVER, path.join(dir, 'kiln', 'server.cjs'));
    fs.copyFileSync(path.join(__dirname, 'sdk.cjs'), path.join(dir, 'kiln', 'node_modules', 'sdk', 'index.js'));
    for (const [file, source] of [
      ['a.mjs', "import { getFunctionName } from 'sdk'; export const main = () => getFunctionName();"],
      ['b.cjs', "exports.main = () => require('sdk').getFunctionName();"],
    ]) {
      fs.writeFileSync(path.join(dir, file), source);
      const child = spawn(process.execPath, [path.join(dir, 'kiln', 'server.cjs'), path.join(dir, file)], {
        env: { PATH: process.env.PATH, PORT: '0', OTEL_EXPORTER_PROMETHEUS_PORT: '0', FUNC_NAME: 'f' },
      });
      t.after(() => child.kill('SIGKILL'));
      const output = { stderr: '' };
      child.stderr.setEncoding('utf8').on('data', (text) => (output.stderr += text));
      const { port } = await entry({ child, output, closed: once(child, 'close') }, 'ready');
      assert.equal((await send(port)).text, 'f');
    }
  });

  test("a package sdk of the function's own wins", async (t) => {
    const files = { 'node_modules/sdk/index.js': 'exports.own = true;' };
    const { port } = await serve(t, "exports.main = () => require('sdk').own;", { files });
    assert.equal((await send(port)).text, 'true');
  });
});

describe("Express' API", () => {
  const asked = async (t, expression, { headers, path = '/', body } = {}) => {
    const { port } = await serve(t, `exports.main = (req, res) => { res.json({ it: ${expression} }); };`);
    return JSON.parse((await send(port, { headers, path, body })).text).it;
  };
  const type = (value) => ({ headers: { 'content-type': value, 'content-length': '1' }, body: '1' });
  const accept = (value) => ({ headers: { accept: value } });
  const cases = {
    'req.is(): a short type': ["req.is('json')", type('application/json; charset=utf-8'), 'json'],
    'req.is(): a full type of a list': ["req.is(['text/html', 'text/plain'])", type('text/plain'), 'text/plain'],
    'req.is(): a wildcard': ["req.is('text/*')", type('text/plain'), 'text/plain'],
    'req.is(): a suffix': ["req.is('+json')", type('application/vnd.a+json'), 'application/vnd.a+json'],
    'req.is(): a form': ["[req.is('urlencoded'), req.is('multipart')]", type('multipart/form-data; boundary=a'), [false, 'multipart']],
    'req.is(): another type': ["req.is('html')", type('text/plain'), false],
    'req.is(): no body': ["req.is('html')", {}, null],
    'req.accepts()': ["[req.accepts('json', 'html'), req.accepts(['png']), req.accepts('text/plain')]", accept('text/*;q=0.5, application/json'), ['json', false, 'text/plain']],
    'req.accepts(): the more exact range wins': ["req.accepts('text/plain', 'html')", accept('text/*, text/plain;q=0.1'), 'html'],
    'req.accepts(): q=0': ["req.accepts('html')", accept('text/html;q=0, */*'), false],
    'req.accepts(): all': ['req.accepts()', accept('text/html;q=0.5, application/json'), ['application/json', 'text/html']],
    'req.accepts(): no header': ["[req.accepts('html', 'json'), req.accepts()]", {}, ['html', ['*/*']]],
    'req.acceptsLanguages()': ["[req.acceptsLanguages('de', 'en'), req.acceptsLanguages('fr'), req.acceptsLanguages()]", { headers: { 'accept-language': 'en-GB, de;q=0.8' } }, ['en', false, ['en-GB', 'de']]],
    'req.acceptsCharsets()': ["req.acceptsCharsets('utf-8')", { headers: { 'accept-charset': 'UTF-8' } }, 'utf-8'],
    'req.acceptsEncodings()': ["[req.acceptsEncodings('br', 'gzip'), req.acceptsEncodings('identity')]", { headers: { 'accept-encoding': 'gzip' } }, ['gzip', 'identity']],
    'req.cookies': ['req.cookies', { headers: { cookie: 'a=1; b="x%20y"; a=2; c=j%3A%7B%22d%22%3A1%7D; e=%; __proto__=f' } }, JSON.parse('{"a":"1","b":"x y","c":{"d":1},"e":"%","__proto__":"f"}')],
    'req.cookies of a header without any': ['req.cookies', { headers: { cookie: `a${' '.repeat(15_000)}b; =1` } }, {}],
    'req.ip and req.ips': ['[req.ip, req.ips]', { headers: { 'x-forwarded-for': '10.0.0.1, 10.0.0.2' } }, ['10.0.0.1', ['10.0.0.1', '10.0.0.2']]],
    'req.ip of the connection': ['[req.ip.endsWith("127.0.0.1") || req.ip === "::1", req.ips]', {}, [true, []]],
    'req.host, req.hostname, req.subdomains': ['[req.host, req.hostname, req.subdomains]', { headers: { host: 'a.b.example.com:1' } }, ['a.b.example.com:1', 'a.b.example.com', ['b', 'a']]],
    'req.secure, req.xhr, req.baseUrl': ['[req.secure, req.xhr, req.baseUrl]', { headers: { 'x-forwarded-proto': 'https', 'x-requested-with': 'XMLHttpRequest' } }, [true, true, '']],
    'res.locals': ['(res.locals.a = 1, res.locals)', {}, { a: 1 }],
  };
  for (const [name, [expression, request, want]] of Object.entries(cases)) {
    test(name, async (t) => assert.deepEqual(await asked(t, expression, request), want));
  }

  const answers = {
    'res.cookie()': ["res.cookie('a', 'x y', { httpOnly: true, secure: true, sameSite: 'lax', domain: 'd', path: '/p' }).cookie('b', { c: 1 }).end()", 200, '', {
      'set-cookie': ['a=x%20y; Domain=d; Path=/p; HttpOnly; Secure; SameSite=Lax', 'b=j%3A%7B%22c%22%3A1%7D; Path=/'] }],
    'res.cookie() with an age': ["res.cookie('a', 1, { maxAge: 1500 }).send(String(res.get('set-cookie')).replace(/Expires=.* GMT/, 'Expires'))", 200, 'a=1; Max-Age=1; Path=/; Expires', {}],
    'res.cookie() with a second attribute': ["res.cookie('a', '1', { path: '/; Secure' })", 500, undefined, { 'set-cookie': undefined }],
    'res.clearCookie()': ["res.clearCookie('a').end()", 200, '', { 'set-cookie': ['a=; Path=/; Expires=Thu, 01 Jan 1970 00:00:00 GMT'] }],
    'res.attachment()': ["res.attachment('/a/é \"1\".csv').send('x')", 200, 'x', {
      'content-type': 'text/csv; charset=utf-8', 'content-disposition': 'attachment; filename="? \\"1\\".csv"; filename*=UTF-8\'\'%C3%A9%20%221%22.csv' }],
    'res.format()': ["res.format({ text() { res.send('t'); }, json() { res.send({ a: 1 }); } })", 200, '{"a":1}', { vary: 'Accept', 'content-type': 'application/json' }],
    'res.format() without a match': ["res.format({ png() {} })", 406, undefined, {}],
    'res.jsonp()': ["res.jsonp({ a: '\\u2028' })", 200, "/**/ typeof call === 'function' && call({\"a\":\"\\u2028\"});", { 'x-content-type-options': 'nosniff' }],
    'res.links()': ["res.links({ next: '/2', last: '/9' }).end()", 200, '', { link: '</2>; rel="next", </9>; rel="last"' }],
    'res.location()': ["res.location('/é a?b=%20').end()", 200, '', { location: '/%C3%A9%20a?b=%20' }],
    'res.redirect()': ["res.redirect('/é\\r\\nx: y')", 302, '', { location: '/%C3%A9%0D%0Ax:%20y' }],
    'res.vary()': ["res.vary('A').vary(['a', 'B']).end()", 200, '', { vary: 'A, B' }],
    'res.send(null)': ['res.send(null)', 200, '', {}],
    'res.contentType()': ["res.contentType('html').end()", 200, '', { 'content-type': 'text/html; charset=utf-8' }],
    'res.sendFile()': ["res.sendFile('page.html', { root: __dirname })", 200, '<p>', { 'content-type': 'text/html; charset=utf-8', 'content-length': '3' }],
    'res.sendFile() by its path': ["res.sendFile(require('node:path').join(__dirname, 'page.html'))", 200, '<p>', {}],
    'res.sendFile() of nothing': ["res.sendFile('none', { root: __dirname })", 404, '{"message":"Not Found"}', {}],
    'res.sendFile() of a folder': ["res.sendFile('.', { root: __dirname })", 404, '{"message":"Not Found"}', {}],
    'res.sendFile() of a hidden file': ["res.sendFile('.env', { root: __dirname })", 404, '{"message":"Not Found"}', {}],
    'res.sendFile() outside of its root': ["res.sendFile('../page.html', { root: __dirname })", 403, '{"message":"Forbidden"}', {}],
    'res.sendFile() without a root': ["res.sendFile('page.html')", 500, undefined, {}],
    'res.download()': ["res.download(__dirname + '/page.html', 'p.html')", 200, '<p>', { 'content-disposition': 'attachment; filename="p.html"' }],
  };
  for (const [name, [expression, status, text, headers]] of Object.entries(answers)) {
    for (const [style, source] of Object.entries({
      'main(req, res)': `exports.main = (req, res) => { ${expression}; };`,
      'main(event)': `exports.main = ({ extensions: { request: req, response: res } }) => { ${expression}; };`,
    })) {
      // There, main without an answer of its own gives 204.
      if (style === 'main(event)' && text === undefined) continue;
      test(`${name} in ${style}`, async (t) => {
        const { port } = await serve(t, source, { files: { 'page.html': '<p>', '.env': 'SECRET' } });
        const got = await send(port, { path: '/?callback=call', headers: { accept: 'application/json' } });
        assert.equal(got.status, status);
        if (text !== undefined) assert.equal(got.text, text);
        for (const [header, want] of Object.entries(headers)) assert.deepEqual(got.headers[header], want);
      });
    }
  }

  test('res.sendFile() answers HEAD', async (t) => {
    const { port } = await serve(t, "exports.main = (req, res) => res.sendFile('a.txt', { root: __dirname });", { files: { 'a.txt': 'four' } });
    const got = await send(port, { method: 'HEAD' });
    assert.deepEqual([got.status, got.headers['content-length'], got.text], [200, '4', '']);
  });
});

describe('TypeScript', () => {
  const typed = 'type Name = { name: string };\n';
  const sources = {
    'a CommonJS module': `${typed}exports.main = (event: { data: Name }): string => event.data.name;`,
    'an ES module': `${typed}export const main = async (event: { data: Name }): Promise<string> => event.data.name;`,
    'an ES module with a top-level await': `${typed}await null;\nexport const main = (event: { data: Name }) => event.data.name;`,
    'main(req, res)': `${typed}export function main(req: { body: Name }, res: any): void { res.send(req.body.name); }`,
  };
  for (const [name, source] of Object.entries(sources)) {
    for (const [where, text, files] of [['in handler.js', source, {}], ['in handler.ts', null, { 'handler.ts': source }]]) {
      test(`${name}, ${where}`, async (t) => {
        const { port, output } = await serve(t, text, { files });
        assert.equal((await send(port, json({ name: 'n' }))).text, 'n');
        assert.doesNotMatch(output.stderr, /Warning/);
      });
    }
  }

  test('in other files', async (t) => {
    const files = { 'handler.ts': "import { one } from './one.ts';\nexport const main = (): number => one;", 'one.ts': 'export const one: number = 1;' };
    const { port } = await serve(t, null, { files });
    assert.equal((await send(port)).text, '1');
  });

  test('handler.js wins', async (t) => {
    const { port } = await serve(t, 'exports.main = () => 1;', { files: { 'handler.ts': 'exports.main = () => 2;' } });
    assert.equal((await send(port)).text, '1');
  });

  test('the lines of errors are those of the source', async (t) => {
    const { port, output } = await serve(t, `${typed}\nexports.main = (event: any) => {\n  throw new Error('x' as string);\n};`);
    await send(port);
    assert.match(output.stderr, /handler\.js:4:9/);
  });
});

test('keep-alive outlives the idle timeouts of proxies', async (t) => {
  const { port } = await serve(t, 'exports.main = () => 1;');
  const agent = new http.Agent({ keepAlive: true });
  t.after(() => agent.destroy());
  const got = await send(port, { agent });
  assert.match(got.headers['keep-alive'], /^timeout=620$/);
});
