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

// Serves one function over HTTP: node server.cjs /function/handler.js
// The contract is docs/runtimes.md.
//
// It has no dependencies, so that a function starts as fast as a bare
// node:http server and its own dependencies can never clash with ours.

'use strict';

const fs = require('node:fs');
const http = require('node:http');
const { createRequire } = require('node:module');
const path = require('node:path');
const { pathToFileURL } = require('node:url');

const HEALTH_PATH = '/healthz';

// Longer than the idle timeout of any usual proxy (the longest, of cloud load
// balancers, is 600 s): the side that reuses a connection must be the one to
// close it, or a request now and then meets a closing socket.
const KEEP_ALIVE_MS = 620_000;

// How long a server that drains keeps its idle connections. Each answer tells the caller to
// open another connection, and a caller cannot repeat a request that meets a closing one.
const LINGER_MS = 2000;

// How long a draining server waits for the rest of a request's headers.
const HEADERS_GRACE_MS = 1000;

// What is left of a function's time for its 504 to be there before the
// platform, whose clock started earlier, sends one that says less: a tenth of
// it, and no more than this.
const TIMEOUT_MARGIN_MS = 1000;

// The place of an error is searched for in JSON that is not larger than this.
const SEARCHED_JSON_LENGTH = 64 * 1024;

// How long a request may take to arrive: node's own limit, or the function's.
const REQUEST_TIMEOUT_MS = 300_000;

// How long the telemetry of the last requests may take to be sent.
const FLUSH_MS = 5000;

// How long requests may still take to be answered after an error that nobody caught.
const LAST_ANSWERS_MS = 3000;

// What a timer of node's can wait at most.
const LONGEST_TIMEOUT_S = 2_147_483;

const STRUCTURED_TYPE = 'application/cloudevents+json';

const TERMINATION_LOG = '/dev/termination-log';

// Kubernetes keeps the last 2048 bytes of a log as the termination message.
const TERMINATION_MESSAGE_LENGTH = 1500;

let handlerFile = path.resolve(process.argv[2] ?? 'handler.js');
const functionDir = path.dirname(handlerFile);

/** The connections that have not carried a request yet. */
const unused = new Set();
let draining = false;

let stop = () => process.exit(0);

/** Ends the process for an error that nobody caught; once it serves, it answers first what is in flight. */
let crash = (reason, error) => exit(reason, error);
let failure; // the reason to end, if that is one

/** What OpenTelemetry's SDK wants done at the end. */
let flushes = [];
let instrumented = false; // by it

let handler; // what handlerFile exports main on: the handler's `this`
let main;
let takesRequest = false; // whether it is main(req, res), and not main(event, context)
let context;
let bodyLimit; // bytes
let timeout; // seconds
let tracer;

/**
 * The calls that have not ended, in the order in which they began: a ring that
 * begins after this. Linking them makes no garbage, unlike a Set.
 */
const running = { began: 0, before: undefined, after: undefined };
running.before = running.after = running;
let clock; // wakes when the time of the first of them is up

// ---------------------------------------------------------------- requests

const QUERY = Symbol('query');
const ID = Symbol('id');
const BEGUN = Symbol('begun');

/** What event.extensions.request is: node's own, and what Express adds to it. */
class FunctionRequest extends http.IncomingMessage {
  get path() {
    const mark = this.url.indexOf('?');
    return mark < 0 ? this.url : this.url.slice(0, mark);
  }

  get query() {
    const mark = this.url.indexOf('?');
    return (this[QUERY] ??= parseQuery(mark < 0 ? '' : this.url.slice(mark + 1)));
  }

  get originalUrl() {
    return this.url;
  }

  get protocol() {
    return this.headers['x-forwarded-proto']?.split(',', 1)[0].trim() ?? 'http';
  }

  get hostname() {
    return (this.headers['x-forwarded-host']?.split(',', 1)[0].trim() ?? this.headers.host)?.replace(/:\d+$/, '');
  }

  get params() {
    return {};
  }

  get(name) {
    const key = name.toLowerCase();
    return this.headers[key === 'referrer' ? 'referer' : key];
  }

  header(name) {
    return this.get(name);
  }

  /** The id in the log: the caller's, or one made up when first asked for. */
  get id() {
    return (this[ID] ??= requestID(this.headers));
  }
}

function randomUUID() {
  return require('node:crypto').randomUUID();
}

function requestID(headers) {
  const given = headers['x-request-id'];
  // What is written into logs must not look like anything else.
  if (given !== undefined && /^[\w.:=+/-]{1,128}$/.test(given)) return given;
  const [, trace] = /^[0-9a-f]{2}-([0-9a-f]{32})-/.exec(headers.traceparent ?? '') ?? [];
  return trace ?? randomUUID();
}

/** What event.extensions.response is: node's own, and what Express adds to it. */
class FunctionResponse extends http.ServerResponse {
  status(code) {
    this.statusCode = code;
    return this;
  }

  set(name, value) {
    if (typeof name === 'object') {
      for (const [key, each] of Object.entries(name)) this.set(key, each);
    } else {
      this.setHeader(name, name.toLowerCase() === 'content-type' ? withCharset(String(value)) : value);
    }
    return this;
  }

  header(name, value) {
    return this.set(name, value);
  }

  get(name) {
    return this.getHeader(name);
  }

  append(name, value) {
    this.appendHeader(name, value);
    return this;
  }

  type(type) {
    const full = type.includes('/') ? type : (SHORT_TYPES[type.replace(/^\./, '')] ?? 'application/octet-stream');
    return this.set('content-type', full);
  }

  json(value) {
    send(this, 'application/json', JSON.stringify(value) ?? '');
    return this;
  }

  send(body) {
    if (typeof body === 'string') send(this, 'text/html; charset=utf-8', body);
    else if (body instanceof Uint8Array) send(this, 'application/octet-stream', body);
    else if (body === undefined || body === null) this.end();
    else this.json(body);
    return this;
  }

  sendStatus(code) {
    this.statusCode = code;
    send(this, 'text/plain; charset=utf-8', http.STATUS_CODES[code] ?? String(code));
    return this;
  }

  redirect(status, url) {
    if (typeof status === 'string') return this.redirect(302, status);
    this.status(status).location(url).end();
    return this;
  }
}

const withCharset = (type) => (type.startsWith('text/') && !type.includes('charset') ? `${type}; charset=utf-8` : type);

// What else Express has is loaded with the first use of any of it.
const MORE = {
  request: [
    'accepts', 'acceptsCharsets', 'acceptsEncodings', 'acceptsLanguages', 'baseUrl', 'cookies', 'host', 'ip', 'ips', 'is', 'secure',
    'subdomains', 'xhr',
  ],
  response: [
    'attachment', 'clearCookie', 'contentType', 'cookie', 'download', 'format', 'jsonp', 'links', 'locals', 'location', 'sendFile', 'vary',
  ],
};

const prototypes = { request: FunctionRequest.prototype, response: FunctionResponse.prototype };
for (const [kind, names] of Object.entries(MORE)) {
  for (const name of names) {
    Object.defineProperty(prototypes[kind], name, {
      configurable: true,
      get() {
        loadMore();
        return this[name];
      },
      set(value) {
        loadMore();
        this[name] = value;
      },
    });
  }
}

function loadMore() {
  const more = require('./compat.cjs');
  for (const [kind, names] of Object.entries(MORE)) {
    for (const name of names) {
      const own = more[kind][name];
      // As with Express, a function may replace a method.
      Object.defineProperty(prototypes[kind], name, { configurable: true, ...own, ...('value' in own && { writable: true }) });
    }
  }
}

const SHORT_TYPES = {
  css: 'text/css', csv: 'text/csv', gif: 'image/gif', htm: 'text/html', html: 'text/html', ico: 'image/x-icon', jpeg: 'image/jpeg',
  jpg: 'image/jpeg', js: 'text/javascript', json: 'application/json', md: 'text/markdown', mjs: 'text/javascript', mp3: 'audio/mpeg',
  mp4: 'video/mp4', pdf: 'application/pdf', png: 'image/png', svg: 'image/svg+xml', text: 'text/plain', txt: 'text/plain',
  wasm: 'application/wasm', webp: 'image/webp', xml: 'application/xml', zip: 'application/zip',
};

/** An error whose status and message are meant for the caller. */
class StatusError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

function handle(request, response) {
  // Nothing else is kept of a request when it is answered: what lives as long as
  // a connection makes the garbage collector's work half as much again.
  if (unused.size > 0) unused.delete(request.socket);
  if (draining) response.shouldKeepAlive = false;

  const { headers, method, url } = request;
  if (url === HEALTH_PATH && (method === 'GET' || method === 'HEAD')) {
    send(response, 'text/plain', 'ok');
    return;
  }
  if (headers.origin !== undefined && isPreflight(request, response)) return;
  if (headers['content-length'] === undefined && headers['transfer-encoding'] === undefined) {
    call(request, response, null);
  } else {
    receive(request, response);
  }
}

/**
 * Lets pages of any origin see answers, as all of this function's predecessors
 * do, and answers a browser's question whether it may send a request.
 */
function isPreflight({ method, headers }, response) {
  response.setHeader('access-control-allow-origin', '*');
  const asked = headers['access-control-request-method'];
  if (method !== 'OPTIONS' || asked === undefined) return false;
  response.setHeader('access-control-allow-methods', asked);
  const names = headers['access-control-request-headers'];
  if (names !== undefined) response.setHeader('access-control-allow-headers', names);
  response.statusCode = 204;
  response.end();
  return true;
}

/** Reads the body, as far as the limit allows, then calls the function. */
function receive(request, response) {
  const tooLarge = () =>
    sendError(request, response, new StatusError(413, `request body is larger than ${bodyLimit} bytes`));
  if (Number(request.headers['content-length']) > bodyLimit) {
    // The rest is discarded by node; closing instead would reset the
    // connection of a client that is still sending, before it reads this.
    tooLarge();
    return;
  }
  const chunks = [];
  let size = 0;
  request.on('data', (chunk) => {
    const before = size;
    size += chunk.length;
    if (size <= bodyLimit) {
      chunks.push(chunk);
    } else if (before <= bodyLimit) {
      chunks.length = 0;
      tooLarge();
    }
  });
  request.on('end', () => {
    if (size <= bodyLimit) call(request, response, chunks.length === 1 ? chunks[0] : Buffer.concat(chunks));
  });
}

function call(request, response, body) {
  if (takesRequest) {
    callWithRequest(request, response, body);
    return;
  }
  let event;
  try {
    event = newEvent(request, response, body);
  } catch (error) {
    sendError(request, response, error); // The caller's mistake: the function is not called.
    return;
  }
  const began = performance.now();
  let result;
  try {
    result = main.call(handler, event, context);
  } catch (error) {
    fail(request, response, error, began);
    return;
  }
  if (typeof result?.then === 'function') {
    wait(request, response, result, began);
  } else {
    succeed(request, response, result, began);
  }
}

/** Calls main(req, res), which answers by res, and may do so after it has returned. */
function callWithRequest(request, response, body) {
  const began = performance.now();
  try {
    const { headers } = request;
    if (body !== null && headers['content-encoding'] !== undefined) body = decompress(body, headers['content-encoding'].toLowerCase());
    request.body = parse(body, headers['content-type']);
  } catch (error) {
    sendError(request, response, error);
    return;
  }
  request.res = response;
  const answered = new Promise((resolve, reject) => {
    response.once('close', resolve);
    try {
      const result = main.call(handler, request, response);
      if (typeof result?.then === 'function') result.then(undefined, reject);
    } catch (error) {
      reject(error);
    }
  });
  wait(request, response, answered, began);
}

/** Answers when the promise is kept, or when the time is up. */
function wait(request, response, promise, began) {
  let last = running.before;
  while (last.began > began) last = last.before; // A stream's first piece is awaited after others began.
  const one = { request, response, began, before: last, after: last.after };
  last.after = last.after.before = one;
  clock ??= setTimeout(giveUp, timeLeft(one));
  (promise instanceof Promise ? promise : Promise.resolve(promise)).then(
    (result) => {
      if (leave(one)) succeed(request, response, result, began);
      else if (result && isStream(result)) end(result);
    },
    (error) => {
      if (leave(one)) fail(request, response, error, began);
      else sendError(request, response, error); // To the log alone.
    }
  );
}

/** Takes a call from the ring, and says whether it was there still: its time may have been up. */
function leave(one) {
  if (one.after === one) return false;
  one.before.after = one.after;
  one.after.before = one.before;
  one.before = one.after = one;
  return true;
}

/** How long main may still take, in milliseconds. */
function timeLeft({ began }) {
  return began + timeout * 1000 - Math.min(timeout * 100, TIMEOUT_MARGIN_MS) - performance.now();
}

/** Answers the calls whose time is up. One timer for all costs less than one for each. */
function giveUp() {
  clock = undefined;
  for (let one = running.after; one !== running; one = running.after) {
    const left = timeLeft(one);
    if (left > 0) {
      clock = setTimeout(giveUp, left);
      return;
    }
    leave(one);
    fail(one.request, one.response, new StatusError(504, `main did not finish within ${timeout} s`), one.began);
  }
}

function succeed(request, response, result, began) {
  try {
    if (reply(request, response, result, began)) return;
  } catch (error) {
    fail(request, response, error, began);
    return;
  }
  measure(request.method, began, false);
}

function fail(request, response, error, began) {
  measure(request.method, began, true);
  const status = statedStatus(error);
  // It may be that of another server's answer, which main did not mean to pass on.
  if (status < 500) log('WARNING', `main failed: ${summary(error)}`, { requestId: request.id, status });
  sendError(request, response, error);
}

/** Answers with what main returned, unless main has answered by itself. Says whether it still waits for a part of that. */
function reply(request, response, result, began) {
  if (response.headersSent || takesRequest) {
    // By main itself, or never, if the caller has gone.
    if (result?.[BEGUN]) result.destroy();
    whenSent(response);
    return false;
  }
  if (draining) response.shouldKeepAlive = false;
  if (result === undefined || result === null) {
    // Success without content, which event sources take as "no reply event".
    if (response.statusCode === 200) response.statusCode = 204;
    response.end();
  } else if (typeof result === 'string') {
    send(response, 'text/plain; charset=utf-8', result);
  } else if (result instanceof Uint8Array) {
    send(response, 'application/octet-stream', result);
  } else if (isStream(result)) {
    return stream(request, response, result, began);
  } else {
    const json = JSON.stringify(result);
    if (json === undefined) throw new TypeError(`main returned a ${typeof result}, which has no JSON form`);
    send(response, result instanceof CloudEvent ? STRUCTURED_TYPE : 'application/json', json);
  }
  return false;
}

function isStream(value) {
  if (typeof value !== 'object') return false;
  if (value[Symbol.asyncIterator] !== undefined || typeof value.pipe === 'function') return true;
  return typeof value.next === 'function' && value[Symbol.iterator] !== undefined;
}

/** Sends what a stream or an asynchronous iterator yields, piece by piece. Says whether the first one is still awaited. */
function stream(request, response, source, began) {
  if (source === response) {
    // It is what chains of Express' methods return, and pipe().
    if (response.listenerCount('unpipe') === 0) return reply(request, response, undefined, began);
    whenSent(response);
    return false;
  }
  if (request.method !== 'HEAD' && !source[BEGUN]) {
    wait(request, response, begin(source), began);
    return true;
  }
  if (!response.hasHeader('content-type')) response.setHeader('content-type', 'application/octet-stream');
  if (request.method === 'HEAD') {
    end(source);
    response.end();
    return false;
  }
  require('node:stream').pipeline(source, response, (error) => {
    // A caller who gives up is no error of the function's.
    if (!error || error.code === 'ERR_STREAM_PREMATURE_CLOSE') return;
    calls.get(request.method).failures++;
    sendError(request, response, error);
  });
  whenSent(response);
  return false;
}

function readableOf(source) {
  const { Readable } = require('node:stream');
  if (source instanceof Readable) return source;
  return source.pipe ? new Readable({ objectMode: true }).wrap(source) : Readable.from(source);
}

/** Ends a stream that nobody reads. */
function end(source) {
  readableOf(source).on('error', () => {}).destroy();
}

/** Waits for a stream's first piece: what goes wrong before it can still be told. */
function begin(source) {
  const { Transform, pipeline } = require('node:stream');
  return new Promise((resolve, reject) => {
    const pieces = new Transform({
      writableObjectMode: true,
      transform(piece, _, done) {
        if (typeof piece !== 'string' && !(piece instanceof Uint8Array)) {
          const type = typeof piece;
          done(new TypeError(`main yielded ${type === 'object' ? 'an' : 'a'} ${type}, which is neither text nor bytes`));
          return;
        }
        resolve(pieces);
        done(null, piece);
      },
      flush(done) {
        resolve(pieces);
        done();
      },
    });
    pieces[BEGUN] = true;
    pipeline(readableOf(source), pieces, (error) => error && reject(error));
  });
}

/** Closes the connection of an answer whose head may have promised more, if the server drains by its end. */
function whenSent(response) {
  const { socket } = response;
  const close = () => {
    if (draining) socket?.destroySoon();
  };
  if (response.writableFinished) close();
  else response.once('finish', close);
}

function send(response, contentType, body) {
  if (!response.hasHeader('content-type')) response.setHeader('content-type', contentType);
  // node sets the length of all other answers by itself.
  if (response.req.method === 'HEAD') response.setHeader('content-length', Buffer.byteLength(body));
  response.end(body);
}

/**
 * Answers with an error. Only what the function means for its caller leaves
 * the process; anything else is in the log, under the id the caller gets.
 */
function sendError(request, response, error) {
  const stated = statedStatus(error);
  const status = stated ?? 500;
  const answer = { message: stated === undefined ? http.STATUS_CODES[500] : String(error.message) };
  if (status >= 500) {
    answer.id = request.id;
    log('ERROR', `main failed: ${summary(error)}`, { requestId: request.id, status, stack: stackOf(error) });
  }
  if (response.writableEnded || response.destroyed) return;
  if (response.headersSent) {
    // Half an answer must not look like a whole one.
    response.destroy();
    return;
  }
  if (draining) response.shouldKeepAlive = false;
  for (const name of response.getHeaderNames()) {
    if (name !== 'access-control-allow-origin') response.removeHeader(name);
  }
  response.statusCode = status;
  send(response, 'application/json', JSON.stringify(answer));
}

function statedStatus(error) {
  const status = error?.status;
  return Number.isInteger(status) && status >= 400 && status <= 599 ? status : undefined;
}

// ------------------------------------------------------------------ events

/** What main gets. The attributes of a CloudEvent are added as "ce-type" and so on. */
class FunctionEvent {
  constructor(request, response) {
    this.data = undefined;
    this.extensions = { request, response };
  }

  // As Kubeless called them.
  get 'event-id'() {
    return this.extensions.request.headers['event-id'] ?? this['ce-id'];
  }

  get 'event-type'() {
    return this.extensions.request.headers['event-type'] ?? this['ce-type'];
  }

  get 'event-time'() {
    return this.extensions.request.headers['event-time'] ?? this['ce-time'];
  }

  get 'event-namespace'() {
    return this.extensions.request.headers['event-namespace'] ?? this['ce-source'];
  }

  get tracer() {
    return (tracer ??= findTracer());
  }

  setResponseHeader(name, value) {
    this.extensions.response.setHeader(name, value);
  }

  setResponseContentType(type) {
    this.extensions.response.type(type);
  }

  setResponseStatus(status) {
    this.extensions.response.statusCode = status;
  }

  resolveDataType(data) {
    if (typeof data === 'string') return 'text/plain';
    return data instanceof Uint8Array ? 'application/octet-stream' : 'application/json';
  }

  /** A CloudEvent to return from main, or to publish. */
  buildResponseCloudEvent(id, type, data) {
    return this.#newCloudEvent({ id, type, eventtypeversion: this['ce-eventtypeversion'] }, data);
  }

  /** Sends a new CloudEvent to the sink that the Function is bound to. */
  async emitCloudEvent(type, source, data, attributes) {
    const event = { id: randomUUID(), type, source, time: new Date().toISOString(), ...attributes };
    return this.publishCloudEvent(this.#newCloudEvent(event, data));
  }

  /** Sends a CloudEvent, an object of attributes and data, to the sink. */
  async publishCloudEvent(event) {
    return publish(event instanceof CloudEvent ? event : new CloudEvent(event), this.extensions.request.headers);
  }

  #newCloudEvent(attributes, data) {
    return new CloudEvent({
      source: this['ce-source'] ?? `/${process.env.FUNC_NAMESPACE ?? ''}/${process.env.FUNC_NAME ?? ''}`,
      specversion: '1.0',
      datacontenttype: this.resolveDataType(data),
      ...attributes,
      data,
    });
  }
}

// Functions take the methods from the event, as in main({ setResponseStatus }).
for (const name of [
  'setResponseHeader', 'setResponseContentType', 'setResponseStatus', 'resolveDataType', 'buildResponseCloudEvent', 'emitCloudEvent',
  'publishCloudEvent',
]) {
  const method = FunctionEvent.prototype[name];
  Object.defineProperty(FunctionEvent.prototype, name, {
    get() {
      return method.bind(this);
    },
  });
}

/** A CloudEvent as an object of its attributes and data. */
class CloudEvent {
  constructor(attributes) {
    Object.assign(this, attributes);
  }

  toJSON() {
    const { data, ...attributes } = this;
    return data instanceof Uint8Array
      ? { ...attributes, data_base64: Buffer.from(data).toString('base64') }
      : { ...attributes, data };
  }
}

/** Sends an event in structured mode to K_SINK, as Knative's SinkBinding sets it. */
async function publish(event, { traceparent, tracestate }) {
  const sink = process.env.K_SINK;
  if (!sink) throw new Error('there is no sink to publish to: K_SINK is not set (a SinkBinding sets it)');
  const { extensions } = JSON.parse(process.env.K_CE_OVERRIDES || '{}');
  const body = JSON.stringify({ ...event.toJSON(), ...extensions });
  const headers = { 'content-type': STRUCTURED_TYPE };
  if (!instrumented && traceparent !== undefined) headers.traceparent = traceparent; // Else the SDK adds its own.
  if (!instrumented && tracestate !== undefined) headers.tracestate = tracestate;
  const answer = await fetch(sink, { method: 'POST', headers, body, signal: AbortSignal.timeout(timeout * 1000) });
  await answer.arrayBuffer(); // Else its connection stays busy.
  if (!answer.ok) throw new Error(`the sink refused the event: ${answer.status} ${answer.statusText}`);
  return answer;
}

function newEvent(request, response, body) {
  const event = new FunctionEvent(request, response);
  const { headers } = request;
  const contentType = headers['content-type'];
  if (body !== null && headers['content-encoding'] !== undefined) body = decompress(body, headers['content-encoding'].toLowerCase());
  if (contentType !== undefined && contentType !== 'application/json' && /^application\/cloudevents/i.test(contentType)) {
    readStructured(event, mediaType(contentType), body);
  } else {
    if (headers['ce-specversion'] !== undefined || (headers['ce-type'] !== undefined && headers['ce-source'] !== undefined)) {
      readBinary(event, headers);
    }
    event.data = parse(body, contentType);
  }
  request.body = event.data;
  return event;
}

/** CloudEvents, binary mode: an attribute is a header, the data is the body. */
function readBinary(event, headers) {
  for (const name in headers) {
    if (name.startsWith('ce-')) event[name] = decode(headers[name]);
  }
  if (headers['content-type'] !== undefined) event['ce-datacontenttype'] = headers['content-type'];
  // Older senders give a type and a source, and no version.
  if (headers['ce-specversion'] !== undefined) requireAttributes(event);
}

/** CloudEvents, structured mode: attributes and data are one JSON object. */
function readStructured(event, type, body) {
  if (type !== STRUCTURED_TYPE) throw new StatusError(415, `${type} is not supported`);
  readEnvelope(event, parseJSON(body ?? ''));
}

function readEnvelope(event, envelope) {
  if (envelope === null || typeof envelope !== 'object' || Array.isArray(envelope)) {
    throw new StatusError(400, 'a CloudEvent must be a JSON object');
  }
  const { data = {}, data_base64: base64, ...attributes } = envelope;
  for (const [name, value] of Object.entries(attributes)) event[`ce-${name}`] = value;
  event.data = base64 === undefined ? data : Buffer.from(String(base64), 'base64');
  if (base64 !== undefined && String(base64).replace(/[^a-z\d+/=]/gi, '').length % 4 !== 0) {
    throw new StatusError(400, 'data_base64 of the CloudEvent is not valid');
  }
  requireAttributes(event);
}

function requireAttributes(event) {
  for (const name of ['ce-id', 'ce-source', 'ce-type']) {
    if (!event[name]) throw new StatusError(400, `the CloudEvent has no attribute "${name.slice(3)}"`);
  }
  if (event['ce-specversion'] !== '1.0') {
    throw new StatusError(400, `CloudEvents version ${JSON.stringify(event['ce-specversion'])} is not supported, 1.0 is`);
  }
}

/** Headers carry what is not printable ASCII percent-encoded. */
function decode(value) {
  if (!value.includes('%')) return value;
  try {
    return decodeURIComponent(value);
  } catch {
    return value;
  }
}

/** Turns a body into event.data. No body is {}, so that event.data.x never throws. */
function parse(body, contentType) {
  if (body === null || body.length === 0) return {};
  if (contentType === undefined) return body.toString();
  if (contentType === 'application/json') return parseJSON(body);
  const type = mediaType(contentType);
  if (isJSON(type)) return parseJSON(body);
  if (type === 'application/x-www-form-urlencoded') return parseQuery(textOf(body, contentType));
  return isText(type) ? textOf(body, contentType) : body;
}

/** Decodes text in its charset. */
function textOf(body, contentType) {
  const charset = /;\s*charset=["']?([^\s"';]+)/i.exec(contentType)?.[1];
  if (charset === undefined || /^utf-?8$/i.test(charset)) return body.toString();
  let decoder;
  try {
    decoder = new TextDecoder(charset);
  } catch {
    throw new StatusError(415, `charset ${charset} is not supported`);
  }
  return decoder.decode(body);
}

/** Undoes a body's content-encoding, as far as the limit allows. */
function decompress(body, encoding) {
  if (encoding === 'identity' || body.length === 0) return body;
  if (!/^((x-)?gzip|deflate)$/.test(encoding)) {
    throw new StatusError(415, `content-encoding ${encoding} is not supported, gzip and deflate are`);
  }
  try {
    return require('node:zlib').unzipSync(body, { maxOutputLength: bodyLimit });
  } catch (error) {
    if (error.code === 'ERR_BUFFER_TOO_LARGE') throw new StatusError(413, `request body is larger than ${bodyLimit} bytes`);
    throw new StatusError(400, `request body is not ${encoding}: ${error.message}`);
  }
}

function parseQuery(text) {
  return { ...require('node:querystring').parse(text) };
}

function parseJSON(body) {
  try {
    return JSON.parse(body);
  } catch (error) {
    const text = String(body);
    if (text[0] === '\ufeff') return parseJSON(text.slice(1));
    throw new StatusError(400, `request body is not valid JSON${placeInJSON(text, error)}: ${error.message}`);
  }
}

/** Says where text stops being JSON, if that can be told. */
function placeInJSON(text, error) {
  let offset = offsetOf(error, text.length);
  if (offset === undefined && text.length <= SEARCHED_JSON_LENGTH) {
    // node does not always tell. What the text begins with is JSON as far as
    // only its end is unexpected.
    let low = 0;
    let high = text.length;
    while (low < high) {
      const middle = Math.ceil((low + high) / 2);
      if (beginsJSON(text.slice(0, middle))) low = middle;
      else high = middle - 1;
    }
    offset = low;
  }
  if (offset === undefined) return '';
  const lines = text.slice(0, offset).split('\n');
  return ` at line ${lines.length}, column ${lines.at(-1).length + 1}`;
}

function beginsJSON(text) {
  try {
    JSON.parse(text);
    return true;
  } catch (error) {
    return offsetOf(error, text.length) === text.length;
  }
}

function offsetOf(error, length) {
  if (error.message.startsWith('Unexpected end')) return length;
  const [, position] = / at position (\d+)/.exec(error.message) ?? [];
  return position === undefined ? undefined : Number(position);
}

function mediaType(contentType) {
  return contentType.split(';', 1)[0].trim().toLowerCase();
}

function isJSON(type) {
  return type === 'application/json' || type === 'text/json' || type.endsWith('+json');
}

function isText(type) {
  return type.startsWith('text/') || type.endsWith('+xml') || type === 'application/xml';
}

// ----------------------------------------------------- metrics and telemetry

// The upper bounds of the histogram's buckets, in seconds.
const BUCKETS = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60];

/** How main was called, by method. */
const calls = new Map();

function measure(method, began, failed) {
  const seconds = (performance.now() - began) / 1000;
  let of = calls.get(method);
  if (of === undefined) calls.set(method, (of = { total: 0, failures: 0, seconds: 0, buckets: BUCKETS.map(() => 0) }));
  of.total++;
  of.seconds += seconds;
  if (failed) of.failures++;
  for (let i = 0; i < BUCKETS.length; i++) {
    if (seconds <= BUCKETS[i]) {
      of.buckets[i]++;
      return;
    }
  }
}

/** The metrics in Prometheus' text format. */
function exposition() {
  const lines = [];
  const family = (name, type, help) => lines.push(`# HELP ${name} ${help}`, `# TYPE ${name} ${type}`);
  family('function_calls_total', 'counter', 'Calls of main.');
  for (const [method, { total }] of calls) lines.push(`function_calls_total{method="${method}"} ${total}`);
  family('function_failures_total', 'counter', 'Calls of main that threw, or took too long.');
  for (const [method, { failures }] of calls) lines.push(`function_failures_total{method="${method}"} ${failures}`);
  family('function_duration_seconds', 'histogram', 'The time that main took.');
  for (const [method, { total, seconds, buckets }] of calls) {
    let below = 0;
    BUCKETS.forEach((bound, i) => {
      below += buckets[i];
      lines.push(`function_duration_seconds_bucket{method="${method}",le="${bound}"} ${below}`);
    });
    lines.push(`function_duration_seconds_bucket{method="${method}",le="+Inf"} ${total}`);
    lines.push(`function_duration_seconds_sum{method="${method}"} ${seconds}`);
    lines.push(`function_duration_seconds_count{method="${method}"} ${total}`);
  }
  const { user, system } = process.cpuUsage();
  family('process_cpu_seconds_total', 'counter', 'CPU time of the process.');
  lines.push(`process_cpu_seconds_total ${(user + system) / 1e6}`);
  family('process_resident_memory_bytes', 'gauge', 'Resident memory of the process.');
  lines.push(`process_resident_memory_bytes ${process.memoryUsage.rss()}`);
  return `${lines.join('\n')}\n`;
}

/** Serves the metrics on a port of their own. A function runs without them, too. */
function serveMetrics(port) {
  const server = http.createServer((request, response) => {
    if (request.url !== '/metrics') {
      response.statusCode = 404;
      response.end();
      return;
    }
    response.setHeader('content-type', 'text/plain; version=0.0.4; charset=utf-8');
    response.end(exposition());
  });
  server.on('error', (error) => log('WARNING', `there are no metrics: ${error.message}`));
  server.listen(port, () => log('INFO', 'metrics', { port: server.address().port }));
  server.unref();
}

// What asks for OpenTelemetry's SDK, unless it is "none".
const TELEMETRY = [
  'OTEL_EXPORTER_OTLP_ENDPOINT', 'OTEL_EXPORTER_OTLP_TRACES_ENDPOINT', 'OTEL_EXPORTER_OTLP_METRICS_ENDPOINT',
  'OTEL_EXPORTER_OTLP_LOGS_ENDPOINT', 'OTEL_TRACES_EXPORTER', 'OTEL_METRICS_EXPORTER', 'OTEL_LOGS_EXPORTER',
];

/** Loads OpenTelemetry's SDK from the function's dependencies, if the environment asks for it. */
function loadTelemetry() {
  const { env } = process;
  const asked = TELEMETRY.some((name) => env[name] && env[name].toLowerCase() !== 'none');
  if (!asked || env.OTEL_SDK_DISABLED?.toLowerCase() === 'true') return;
  env.OTEL_SERVICE_NAME ??= env.FUNC_NAME;
  const functionRequire = createRequire(handlerFile);
  const before = process.listeners('SIGTERM');
  try {
    functionRequire('@opentelemetry/auto-instrumentations-node/register');
    functionRequire('http'); // It instruments what is loaded after it.
    instrumented = true;
  } catch (error) {
    log('WARNING', `there are no traces: ${explain(error)}`);
  }
  // On the signal itself the SDK would end while requests are still answered.
  flushes = process.listeners('SIGTERM').filter((listener) => !before.includes(listener));
  for (const listener of flushes) process.off('SIGTERM', listener);
}

/** Ends the process, when the SDK has sent what it still holds. */
function leaveProcess() {
  const leave = () => (failure === undefined ? process.exit(0) : exit(failure));
  if (flushes.length === 0) leave();
  setTimeout(leave, FLUSH_MS);
  Promise.allSettled(flushes.map(async (flush) => flush('SIGTERM'))).then(leave);
}

/** The tracer of the function's own OpenTelemetry, or one that does nothing. */
function findTracer() {
  try {
    return createRequire(handlerFile)('@opentelemetry/api').trace.getTracer(process.env.FUNC_NAME ?? 'function');
  } catch {
    const span = new Proxy({}, { get: (_, name) => (name === 'isRecording' ? () => false : () => span) });
    return { startSpan: () => span, startActiveSpan: (...args) => args.at(-1)(span) };
  }
}

// --------------------------------------------------------------- life cycle

async function start() {
  process.on('uncaughtException', (error, origin) => {
    crash(describe(error, origin === 'unhandledRejection' ? 'unhandled rejection: ' : 'uncaught exception: '), error);
  });
  // As the first process of a container it gets no signal it does not ask for.
  process.on('SIGTERM', () => stop(LINGER_MS));
  process.on('SIGINT', () => stop(0));
  // The event loop runs dry while the module still loads: nothing will wake it.
  const stuck = () => exit(`${path.basename(handlerFile)}: a top-level await never finishes`);
  process.once('beforeExit', stuck);

  const port = setting('PORT', 8080, isPort);
  const metricsPort = setting('OTEL_EXPORTER_PROMETHEUS_PORT', 9464, isPort);
  bodyLimit = Math.floor(setting('REQ_MB_LIMIT', 1, (value) => value > 0 && value < Infinity) * 2 ** 20);
  timeout = setting('FUNC_TIMEOUT', 300, (value) => value > 0 && value <= LONGEST_TIMEOUT_S);
  context = newContext();
  provideSDK();
  loadTelemetry();
  try {
    findMain(await load());
  } catch (error) {
    exit(describe(error), error);
  }
  process.off('beforeExit', stuck);
  serve(port, metricsPort);
}

const isPort = (value) => Number.isInteger(value) && value >= 0 && value < 65_536;

function setting(name, fallback, valid) {
  const text = process.env[name];
  const value = text ? Number(text) : fallback;
  if (!valid(value)) exit(`environment variable ${name}: ${JSON.stringify(text)} is not valid`);
  return value;
}

function newContext() {
  return Object.freeze({
    'function-name': process.env.FUNC_NAME,
    namespace: process.env.FUNC_NAMESPACE,
    runtime: process.env.FUNC_RUNTIME,
    timeout,
    'memory-limit': process.env.FUNC_MEMORY_LIMIT,
    'body-size-limit': bodyLimit / 2 ** 20,
  });
}

async function load() {
  try {
    return await loadHandler();
  } catch (error) {
    const again = error?.code === 'MODULE_NOT_FOUND' ? takeTypeScriptFile() : error instanceof SyntaxError && takeForTypeScript(error);
    if (!again) throw error;
    return loadHandler();
  }
}

async function loadHandler() {
  try {
    return require(handlerFile);
  } catch (error) {
    // An ES module with a top-level await cannot be required.
    if (error?.code !== 'ERR_REQUIRE_ASYNC_MODULE' && error?.code !== 'ERR_REQUIRE_ESM') throw error;
    return import(pathToFileURL(handlerFile).href);
  }
}

/** Lets functions on an author's machine load the module sdk. In images, it is where node looks for modules. */
function provideSDK() {
  const file = path.join(__dirname, 'node_modules', 'sdk', 'index.js');
  if (!fs.existsSync(file)) return;
  require('node:module').registerHooks?.({
    resolve(name, about, next) {
      try {
        return next(name, about);
      } catch (error) {
        if (name !== 'sdk') throw error;
        return { url: pathToFileURL(file).href, format: 'commonjs', shortCircuit: true };
      }
    },
  });
}

/** Uses handler.ts if there is no handler.js. Reports whether it does. */
function takeTypeScriptFile() {
  const file = handlerFile.replace(/\.js$/, '.ts');
  if (fs.existsSync(handlerFile) || !fs.existsSync(file)) return false;
  handlerFile = file;
  return true;
}

/** Reads a handler that is not JavaScript as TypeScript, as node --eval does. Reports whether it had types to strip. */
function takeForTypeScript(error) {
  const { registerHooks, stripTypeScriptTypes } = require('node:module');
  if (registerHooks === undefined || stripTypeScriptTypes === undefined) return false;
  const text = fs.readFileSync(handlerFile, 'utf8');
  let source;
  const { emitWarning } = process;
  process.emitWarning = () => {}; // It would tell the function's author of an experiment of the wrapper's.
  try {
    source = stripTypeScriptTypes(text);
  } catch (other) {
    other.stack = handlerFile + stackOf(other);
    // The language that the error comes later in is the one that was meant.
    if (other.code === 'ERR_UNSUPPORTED_TYPESCRIPT_SYNTAX' || lineOf(other) > lineOf(error)) throw other;
    return false;
  } finally {
    process.emitWarning = emitWarning;
  }
  if (source === text) return false;
  const url = pathToFileURL(handlerFile).href;
  registerHooks({
    load: (of, context, next) => (of === url ? { source, format: context.format, shortCircuit: true } : next(of, context)),
  });
  return true;
}

/** Accepts exports.main, export default { main }, export default function and module.exports = function. */
function findMain(exported) {
  const wanted = process.env.FUNC_HANDLER || 'main';
  for (const [owner, key] of [[exported, wanted], [exported?.default, wanted], [exported, 'default']]) {
    if (typeof owner?.[key] === 'function') {
      handler = owner;
      main = owner[key];
      takesRequest = isRequestStyle();
      return;
    }
  }
  if (typeof exported === 'function') {
    main = exported;
    takesRequest = isRequestStyle();
    return;
  }
  const names = Object.keys(exported ?? {}).filter((name) => name !== 'default' && name !== '__esModule');
  exit(
    `${path.basename(handlerFile)}: exports no function named "${wanted}" (it exports: ${names.join(', ') || 'nothing'}); ` +
      `expected: module.exports = { ${wanted}: (event, context) => … }`
  );
}

/** Reports whether main takes (req, res): FUNC_API decides, or else the name of its second parameter. */
function isRequestStyle() {
  const api = process.env.FUNC_API || undefined;
  if (api !== undefined) {
    if (api !== 'event' && api !== 'request') exit(`environment variable FUNC_API: ${JSON.stringify(api)} is not valid: it is event or request`);
    return api === 'request';
  }
  return /^_?res(ponse)?$/.test(secondParameter(Function.prototype.toString.call(main)));
}

/** The name of a function's second parameter in its text, or "". */
function secondParameter(text) {
  text = text.replace(/\/\*[^]*?\*\/|\/\/.*|'(\\.|[^'\\])*'|"(\\.|[^"\\])*"|`(\\[^]|[^`\\])*`/g, '');
  if (/^(async\s+)?[\w$]+\s*=>/.test(text)) return '';
  let depth = 0;
  let from = 0;
  for (let at = text.indexOf('('); at >= 0 && at < text.length; at++) {
    const c = text[at];
    if ('([{'.includes(c)) {
      depth++;
    } else if (')]}'.includes(c)) {
      if (--depth === 0) return from === 0 ? '' : nameOf(text.slice(from, at));
    } else if (c === ',' && depth === 1) {
      if (from > 0) return nameOf(text.slice(from, at));
      from = at + 1;
    }
  }
  return '';
}

const nameOf = (parameter) => parameter.split('=', 1)[0].trim();

function serve(port, metricsPort) {
  const server = http.createServer(
    {
      IncomingMessage: FunctionRequest,
      ServerResponse: FunctionResponse,
      keepAliveTimeout: KEEP_ALIVE_MS,
      requestTimeout: Math.max(timeout * 1000, REQUEST_TIMEOUT_MS),
    },
    handle
  );
  server.on('connection', (socket) => {
    unused.add(socket);
    socket.once('close', () => unused.delete(socket));
  });
  server.on('error', (error) => exit(`cannot listen on port ${port}: ${error.message}`, error));
  server.listen(port, () => {
    log('INFO', 'ready', { port: server.address().port, node: process.version });
    serveMetrics(metricsPort);
  });
  stop = (linger) => drain(server, linger);
  crash = (reason, error) => {
    log('CRITICAL', reason.split('\n', 1)[0], { stack: stackOf(error) });
    if (failure !== undefined) return;
    failure = reason;
    setTimeout(() => exit(reason), LAST_ANSWERS_MS);
    drain(server, 0);
  };
}

/**
 * Ends the process when every request is answered, and not before idle connections have
 * lingered. It sets no deadline of its own for requests: the platform's grace period is
 * the one that holds.
 */
function drain(server, linger) {
  if (draining) return;
  draining = true;
  log('INFO', 'draining');
  server.getConnections((error, count) => {
    if (count > 0 && linger > 0) setTimeout(close, linger, server);
    else close(server);
  });
}

/** Accepts no more connections, and closes those that carry no request. */
function close(server) {
  server.close(leaveProcess);
  server.closeIdleConnections();
  // node counts a connection that never carried a request as busy.
  for (const socket of unused) {
    if (socket.bytesRead === 0) socket.destroy();
  }
  setTimeout(() => {
    for (const socket of unused) socket.destroy();
  }, HEADERS_GRACE_MS);
}

// ------------------------------------------------------- logs and last words

function log(severity, message, fields) {
  const entry = { severity, timestamp: new Date().toISOString(), message, ...fields };
  process.stderr.write(`${JSON.stringify(entry)}\n`);
}

/**
 * Ends the process with the reason as its last words: Kubernetes keeps them as
 * the container's termination message and Knative shows them in the Revision.
 */
function exit(reason, error) {
  if (error !== undefined) log('CRITICAL', reason.split('\n', 1)[0], { stack: stackOf(error) });
  const words = reason.length > TERMINATION_MESSAGE_LENGTH ? `${reason.slice(0, TERMINATION_MESSAGE_LENGTH)}…` : reason;
  process.stderr.write(`${words}\n`);
  try {
    // Only where Kubernetes has mounted it: it must not come into being here.
    fs.writeFileSync(TERMINATION_LOG, words, { flag: fs.constants.O_WRONLY | fs.constants.O_TRUNC });
  } catch {
    // Then the end of the log is the termination message.
  }
  process.exit(1);
}

/** Says what is wrong and where, in words for the function's author. */
function describe(error, how = '') {
  const stack = stackWithPlace(error);
  const place = locate(stack);
  const file = place ? `${place.file}:${place.line}` : path.basename(handlerFile);
  return [`${file}: ${how}${explain(error)}`, ...(place ? excerpt(stack, place) : [])].join('\n');
}

function explain(error) {
  if (error?.code !== 'MODULE_NOT_FOUND' && error?.code !== 'ERR_MODULE_NOT_FOUND') return summary(error);
  const [message] = error.message.split('\n', 1);
  const [, name] = /^Cannot find (?:module|package) '([^']+)'/.exec(message) ?? [];
  if (name === undefined || /^[./]/.test(name)) return message;
  return `Cannot find module '${name}': is it among the function's dependencies?`;
}

function stackWithPlace(error) {
  return error instanceof SyntaxError && !locate(stackOf(error)) ? reportByNode() : stackOf(error);
}

const lineOf = (error) => locate(stackWithPlace(error))?.line ?? 0;

/**
 * The place of a syntax error in an ES module is known to node alone, which
 * tells it when the module is what it runs. Nothing of a module with a syntax
 * error is executed.
 */
function reportByNode() {
  const { spawnSync } = require('node:child_process');
  return spawnSync(process.execPath, [handlerFile], { encoding: 'utf8', timeout: 5000 }).stderr ?? '';
}

/** Finds the topmost line of the function's own code in a stack. */
function locate(stack) {
  for (const line of stack.split('\n')) {
    const start = line.indexOf(functionDir + path.sep);
    if (start < 0) continue;
    const [, file, number, column] = /^(.+?):(\d+)(?::(\d+))?/.exec(line.slice(start + functionDir.length + 1)) ?? [];
    if (file !== undefined && !file.startsWith('node_modules')) {
      return { file, line: Number(number), column: Number(column ?? 0) };
    }
  }
  return undefined;
}

/** The line in question and a caret under the place. */
function excerpt(stack, { file, line, column }) {
  try {
    const text = fs.readFileSync(path.join(functionDir, file), 'utf8').split('\n')[line - 1];
    if (text.trim() === '' || text.length > 160) return [];
    // Syntax errors carry the caret in their stack, other errors the column.
    const caret = column > 0 ? `${text.slice(0, column - 1).replace(/[^\t]/g, ' ')}^` : /^[ \t]*\^+[ \t]*$/m.exec(stack)?.[0];
    return caret === undefined ? [text] : [text, caret];
  } catch {
    return [];
  }
}

function summary(error) {
  return error instanceof Error ? `${error.name}: ${error.message}` : `thrown: ${require('node:util').inspect(error)}`;
}

function stackOf(error) {
  return String(error?.stack ?? '');
}

// --------------------------------------------------------- the module "sdk"

/** What Kyma's module of that name has. */
const sdk = {
  getTracer: () => (tracer ??= findTracer()),
  getFunctionName: () => process.env.FUNC_NAME ?? '',
  getNamespace: () => process.env.FUNC_NAMESPACE ?? '',
  getRuntime: () => process.env.FUNC_RUNTIME ?? '',
  getTimeout: () => timeout,
  getBodySizeLimit: () => bodyLimit / 2 ** 20,
  emitCloudEvent: (...of) => new FunctionEvent({ headers: {} }).emitCloudEvent(...of),

  /** The CloudEvent of a request of main(req, res), or null. */
  getCloudEvent(request) {
    const event = new FunctionEvent(request, request.res);
    try {
      if (mediaType(request.get('content-type') ?? '') === STRUCTURED_TYPE) {
        readEnvelope(event, request.body);
      } else if (request.get('ce-type') && request.get('ce-source')) {
        readBinary(event, request.headers);
        event.data = request.body;
      } else {
        return null;
      }
      requireAttributes(event);
    } catch {
      return null;
    }
    const attributes = Object.entries(event).filter(([name]) => name.startsWith('ce-'));
    return new CloudEvent({ ...Object.fromEntries(attributes.map(([name, value]) => [name.slice(3), value])), data: event.data });
  },
};

module.exports = { StatusError, decode, mediaType, sdk, send, sendError, shortTypes: SHORT_TYPES };

start();
