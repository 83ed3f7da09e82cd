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
//
// It has no dependencies, so that a function starts as fast as a bare
// node:http server and its own dependencies can never clash with ours.

'use strict';

const fs = require('node:fs');
const http = require('node:http');
const path = require('node:path');
const { pathToFileURL } = require('node:url');

const HEALTH_PATH = '/healthz';

// Longer than the idle timeout of any usual proxy (the longest, of cloud load
// balancers, is 600 s): the side that reuses a connection must be the one to
// close it, or a request now and then meets a closing socket.
const KEEP_ALIVE_MS = 620_000;

// How long a draining server waits for the rest of a request's headers.
const HEADERS_GRACE_MS = 1000;

const TERMINATION_LOG = '/dev/termination-log';

// Kubernetes keeps the last 2048 bytes of a log as the termination message.
const TERMINATION_MESSAGE_LENGTH = 1500;

const handlerFile = path.resolve(process.argv[2] ?? 'handler.js');
const functionDir = path.dirname(handlerFile);

/** Every open connection and its latest response; null before the first request. */
const connections = new Map();
let draining = false;

let stop = () => process.exit(0);

let handler; // what handlerFile exports main on: the handler's `this`
let main;
let context;
let bodyLimit;

// ---------------------------------------------------------------- requests

class FunctionRequest extends http.IncomingMessage {
  get path() {
    const mark = this.url.indexOf('?');
    return mark < 0 ? this.url : this.url.slice(0, mark);
  }

  get query() {
    const mark = this.url.indexOf('?');
    return require('node:querystring').parse(mark < 0 ? '' : this.url.slice(mark + 1));
  }
}

class FunctionResponse extends http.ServerResponse {
  status(code) {
    this.statusCode = code;
    return this;
  }

  set(name, value) {
    this.setHeader(name, value);
    return this;
  }
}

/** An error whose status and message are meant for the caller. */
class StatusError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

function handle(request, response) {
  connections.set(request.socket, response);
  if (draining) response.shouldKeepAlive = false;

  const { headers, method, url } = request;
  if (url === HEALTH_PATH && (method === 'GET' || method === 'HEAD')) {
    send(response, 'text/plain', 'ok');
  } else if (headers['content-length'] === undefined && headers['transfer-encoding'] === undefined) {
    call(request, response, null);
  } else {
    receive(request, response);
  }
}

/** Reads the body, as far as the limit allows, then calls the function. */
function receive(request, response) {
  const tooLarge = () =>
    sendError(response, new StatusError(413, `request body is larger than ${bodyLimit} bytes`));
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
  let result;
  try {
    result = main.call(handler, newEvent(request, response, body), context);
    if (typeof result?.then !== 'function') {
      reply(response, result);
      return;
    }
  } catch (error) {
    sendError(response, error);
    return;
  }
  Promise.resolve(result)
    .then((value) => reply(response, value))
    .catch((error) => sendError(response, error));
}

/** Answers with what main returned, unless main has answered by itself. */
function reply(response, result) {
  if (response.headersSent || response.writableEnded) return;
  if (result === undefined || result === null) {
    // Success without content, which event sources take as "no reply event".
    if (response.statusCode === 200) response.statusCode = 204;
    response.end();
  } else if (typeof result === 'string') {
    send(response, 'text/plain; charset=utf-8', result);
  } else if (result instanceof Uint8Array) {
    send(response, 'application/octet-stream', result);
  } else {
    const json = JSON.stringify(result);
    if (json === undefined) throw new TypeError(`main returned a ${typeof result}, which has no JSON form`);
    send(response, 'application/json', json);
  }
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
function sendError(response, error) {
  const stated = statedStatus(error);
  const status = stated ?? 500;
  const answer = { message: stated === undefined ? http.STATUS_CODES[500] : String(error.message) };
  if (status >= 500) {
    answer.id = require('node:crypto').randomUUID();
    log('ERROR', `main failed: ${summary(error)}`, { id: answer.id, status, stack: stackOf(error) });
  }
  if (response.headersSent) {
    // Half an answer must not look like a whole one.
    response.destroy();
    return;
  }
  for (const name of response.getHeaderNames()) response.removeHeader(name);
  response.statusCode = status;
  send(response, 'application/json', JSON.stringify(answer));
}

function statedStatus(error) {
  const status = error?.status;
  return Number.isInteger(status) && status >= 400 && status <= 599 ? status : undefined;
}

// ------------------------------------------------------------------ events

function newEvent(request, response, body) {
  const event = { data: undefined, extensions: { request, response } };
  const contentType = request.headers['content-type'];
  if (contentType !== undefined && contentType.startsWith('application/cloudevents')) {
    readStructured(event, mediaType(contentType), body);
  } else {
    if (request.headers['ce-specversion'] !== undefined) readBinary(event, request.headers);
    event.data = parse(body, contentType);
  }
  request.body = event.data;
  return event;
}

/** CloudEvents, binary mode: an attribute is a header, the data is the body. */
function readBinary(event, headers) {
  for (const name in headers) {
    if (name.startsWith('ce-')) event[name] = decodeAttribute(headers[name]);
  }
  if (headers['content-type'] !== undefined) event['ce-datacontenttype'] = headers['content-type'];
  requireAttributes(event);
}

/** CloudEvents, structured mode: attributes and data are one JSON object. */
function readStructured(event, type, body) {
  if (type !== 'application/cloudevents+json') throw new StatusError(415, `${type} is not supported`);
  const envelope = parseJSON(body ?? '');
  if (envelope === null || typeof envelope !== 'object' || Array.isArray(envelope)) {
    throw new StatusError(400, 'a CloudEvent must be a JSON object');
  }
  const { data, data_base64: base64, ...attributes } = envelope;
  for (const [name, value] of Object.entries(attributes)) event[`ce-${name}`] = value;
  event.data = base64 === undefined ? data : Buffer.from(String(base64), 'base64');
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
function decodeAttribute(value) {
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
  return isText(type) ? body.toString() : body;
}

function parseJSON(body) {
  try {
    return JSON.parse(body);
  } catch (error) {
    throw new StatusError(400, `request body is not valid JSON: ${error.message}`);
  }
}

function mediaType(contentType) {
  return contentType.split(';', 1)[0].trim().toLowerCase();
}

function isJSON(type) {
  return type === 'application/json' || type === 'text/json' || type.endsWith('+json');
}

function isText(type) {
  return (
    type.startsWith('text/') ||
    type.endsWith('+xml') ||
    type === 'application/xml' ||
    type === 'application/x-www-form-urlencoded'
  );
}

// --------------------------------------------------------------- life cycle

async function start() {
  process.on('uncaughtException', (error, origin) => {
    exit(describe(error, origin === 'unhandledRejection' ? 'unhandled rejection: ' : 'uncaught exception: '), error);
  });
  // As the first process of a container it gets no signal it does not ask for.
  process.on('SIGTERM', () => stop());
  process.on('SIGINT', () => stop());
  // The event loop runs dry while the module still loads: nothing will wake it.
  const stuck = () => exit(`${path.basename(handlerFile)}: a top-level await never finishes`);
  process.once('beforeExit', stuck);

  const port = setting('PORT', 8080, (value) => Number.isInteger(value) && value >= 0 && value < 65_536);
  bodyLimit = setting('REQ_MB_LIMIT', 1, (value) => value > 0 && value < Infinity) * 2 ** 20;
  context = newContext();
  try {
    findMain(await load());
  } catch (error) {
    exit(describe(error), error);
  }
  process.off('beforeExit', stuck);
  serve(port);
}

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
    'body-limit': bodyLimit,
  });
}

async function load() {
  try {
    return require(handlerFile);
  } catch (error) {
    // An ES module with a top-level await cannot be required.
    if (error?.code !== 'ERR_REQUIRE_ASYNC_MODULE' && error?.code !== 'ERR_REQUIRE_ESM') throw error;
    return import(pathToFileURL(handlerFile).href);
  }
}

/** Accepts exports.main, export default { main } and export default function. */
function findMain(exported) {
  for (const [owner, key] of [[exported, 'main'], [exported?.default, 'main'], [exported, 'default']]) {
    if (typeof owner?.[key] === 'function') {
      handler = owner;
      main = owner[key];
      return;
    }
  }
  const names = Object.keys(exported ?? {}).filter((name) => name !== 'default' && name !== '__esModule');
  exit(
    `${path.basename(handlerFile)}: exports no function named "main" (it exports: ${names.join(', ') || 'nothing'}); ` +
      'expected: module.exports = { main: (event, context) => … }'
  );
}

function serve(port) {
  const server = http.createServer(
    { IncomingMessage: FunctionRequest, ServerResponse: FunctionResponse, keepAliveTimeout: KEEP_ALIVE_MS },
    handle
  );
  server.on('connection', (socket) => {
    connections.set(socket, null);
    socket.once('close', () => connections.delete(socket));
  });
  server.on('error', (error) => exit(`cannot listen on port ${port}: ${error.message}`, error));
  server.listen(port, () => {
    log('INFO', 'ready', { port: server.address().port, node: process.version });
  });
  stop = () => drain(server);
}

/**
 * Ends the process when every request is answered. It sets no deadline of its
 * own for them: the platform's grace period is the one that holds.
 */
function drain(server) {
  if (draining) return;
  draining = true;
  server.close(() => process.exit(0));
  server.closeIdleConnections();
  let waiting = 0;
  for (const [socket, response] of connections) {
    if (response === null) {
      // node counts a connection that never carried a request as busy.
      if (socket.bytesRead === 0) socket.destroy();
    } else if (!response.closed) {
      waiting++;
      response.shouldKeepAlive = false;
      response.once('close', () => socket.destroySoon());
    }
  }
  log('INFO', 'draining', { requests: waiting });
  setTimeout(() => {
    for (const [socket, response] of connections) {
      if (response === null) socket.destroy();
    }
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
  const stack = error instanceof SyntaxError && !locate(stackOf(error)) ? reportByNode() : stackOf(error);
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
    const caret = column > 0 ? `${text.slice(0, column - 1).replace(/[^\t]/g, ' ')}^` : stack.split('\n')[2];
    return /^\s*\^+\s*$/.test(caret) ? [text, caret] : [text];
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

start();
