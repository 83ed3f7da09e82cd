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

// Runs the wrapper of a function and replaces it when kubectl fn dev asks for it:
// node -e launcher.cjs SETTINGS. launcher.py does the same for Python, and launcher.go
// describes the requests.

'use strict';

const { spawn } = require('node:child_process');
const { createHash, randomBytes, timingSafeEqual } = require('node:crypto');
const fs = require('node:fs');
const http = require('node:http');
const net = require('node:net');
const path = require('node:path');
const { pipeline } = require('node:stream/promises');
const { setTimeout: sleep } = require('node:timers/promises');

const LOOPBACK = '127.0.0.1';
const POLL_MS = 5;
const DRAIN_MS = 5000;

const settings = JSON.parse(process.argv[1]);
const tokenHash = Buffer.from(settings.tokenHash, 'hex');
const partialSuffix = randomBytes(8).toString('hex');

let starting; // a wrapper that does not answer yet
let serving; // { child, port } of the wrapper that gets the requests
const draining = new Set();

const isAlive = (child) => child.exitCode === null && child.signalCode === null;

function freePort() {
  return new Promise((resolve, reject) => {
    const server = net.createServer().once('error', reject);
    server.listen(0, LOOPBACK, () => {
      const { port } = server.address();
      server.close(() => resolve(port));
    });
  });
}

function isHealthy(port) {
  return new Promise((resolve) => {
    http
      .get({ host: LOOPBACK, port, path: settings.health, agent: false }, (answer) => {
        answer.resume();
        resolve(answer.statusCode === 200);
      })
      .on('error', () => resolve(false));
  });
}

function drain(child) {
  draining.add(child);
  child.once('exit', () => draining.delete(child));
  child.kill('SIGTERM');
  setTimeout(() => child.kill('SIGKILL'), DRAIN_MS).unref();
}

/** Starts a wrapper, and gives it the requests once it is healthy. Reports whether it is. */
async function start() {
  starting?.kill('SIGKILL');
  for (const child of draining) child.kill('SIGKILL');
  const port = await freePort();
  const [program, ...words] = settings.command;
  // Two wrappers run at the same time, and the port of metrics must not be taken.
  const env = { ...process.env, PORT: String(port), OTEL_EXPORTER_PROMETHEUS_PORT: '0' };
  const child = spawn(program, words, { cwd: settings.source, env, stdio: ['ignore', 'inherit', 'inherit'] });
  starting?.kill('SIGKILL');
  starting = child;
  child.on('error', (error) => console.error(`The function cannot be started: ${error.message}`));
  child.once('exit', () => {
    if (serving?.child !== child) return;
    serving = undefined;
    console.error('The function has exited. It starts again when a file changes.');
  });
  while (child.pid !== undefined && isAlive(child) && !(await isHealthy(port))) await sleep(POLL_MS);
  if (starting !== child) return false;
  starting = undefined;
  if (child.pid === undefined || !isAlive(child)) return false;
  if (serving) drain(serving.child);
  serving = { child, port };
  return true;
}

async function write(request, file) {
  if (fs.statSync(file, { throwIfNoEntry: false })?.isDirectory()) fs.rmSync(file, { recursive: true });
  fs.mkdirSync(path.dirname(file), { recursive: true });
  // A running function must not read half a file.
  const partial = `${file}.${partialSuffix}`;
  await pipeline(request, fs.createWriteStream(partial, { mode: request.headers.executable ? 0o755 : 0o644 }));
  fs.renameSync(partial, file);
}

function isAuthorized(request) {
  const [, token = ''] = /^Bearer (.*)$/.exec(request.headers.authorization ?? '') ?? [];
  return timingSafeEqual(createHash('sha256').update(token).digest(), tokenHash);
}

async function answer(request, response) {
  if (!isAuthorized(request)) return 403;
  const url = new URL(request.url, 'http://launcher');
  const [, kind, ...rest] = url.pathname.split('/').map(decodeURIComponent);
  const file = path.join(settings[kind] ?? '', path.join('/', ...rest));
  switch (`${request.method} ${kind}`) {
    case 'PUT source':
      await write(request, file);
      return 204;
    case 'DELETE source':
      fs.rmSync(file, { recursive: true, force: true });
      return 204;
    case 'GET image':
      if (!fs.existsSync(file)) return 404;
      response.write(fs.readFileSync(file));
      return 200;
    case 'POST start':
      response.write(JSON.stringify({ started: await start(), serving: serving !== undefined }));
      return 200;
    case 'GET ':
      return 204;
  }
  return 404;
}

function control(request, response) {
  answer(request, response).then(
    (status) => {
      if (!response.headersSent) response.statusCode = status;
      response.end();
    },
    (error) => {
      response.statusCode = 500;
      response.end(error.message);
    }
  );
}

/** Passes a connection on to the wrapper that gets the requests. */
function pass(inside) {
  inside.on('error', () => inside.destroy());
  if (!serving) {
    // A connection that is reset would end the whole port forwarding.
    inside.resume();
    inside.end('HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 0\r\n\r\n');
    return;
  }
  const outside = net.connect({ host: LOOPBACK, port: serving.port, allowHalfOpen: true });
  outside.on('error', () => inside.resume().end());
  inside.on('close', () => outside.destroy());
  inside.pipe(outside).pipe(inside);
}

process.on('SIGTERM', () => process.exit(0));
fs.mkdirSync(settings.source, { recursive: true });
if (fs.existsSync(settings.image)) fs.symlinkSync(path.join(settings.image, 'node_modules'), path.join(settings.source, 'node_modules'));
const server = http.createServer(control);
server.keepAliveTimeout = 0;
server.requestTimeout = 0;
server.listen(settings.controlPort, LOOPBACK);
net.createServer({ allowHalfOpen: true }, pass).listen(settings.functionPort, LOOPBACK);
