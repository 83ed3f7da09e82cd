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

// What Express' requests and responses have beyond server.cjs, which loads this
// when a function first uses it. docs/runtimes.md lists what is missing.

'use strict';

const fs = require('node:fs');
const path = require('node:path');

const { StatusError, decode, mediaType, send, sendError, shortTypes } = require.main.exports;

const COOKIES = Symbol('cookies');
const LOCALS = Symbol('locals');

const TOKEN = /^[\w!#$%&'*+.^`|~-]+$/;

// ---------------------------------------------------------- negotiation

/** The entries of an Accept header or its like, in order, with their quality. */
function ranges(header) {
  return header.split(',').flatMap((text, order) => {
    const [value, ...parameters] = text.split(';').map((part) => part.trim());
    if (value === '') return [];
    const quality = parameters.map((parameter) => /^q=(.*)$/i.exec(parameter)?.[1]).find((q) => q !== undefined);
    return [{ value, order, quality: quality === undefined ? 1 : Number(quality) || 0 }];
  });
}

/**
 * The offers that the header accepts, the best first. specificity says how exactly
 * a range means an offer, and is 0 if it does not.
 */
function acceptable(header, offers, specificity) {
  const accepted = ranges(header);
  const best = (offer) =>
    accepted
      .map((range) => ({ ...range, offer, specificity: specificity(range.value.toLowerCase(), offer.toLowerCase()) }))
      .filter((match) => match.specificity > 0)
      .sort((a, b) => b.specificity - a.specificity || a.order - b.order)[0];
  return offers
    .map(best)
    .filter((match) => match?.quality > 0)
    .sort((a, b) => b.quality - a.quality || b.specificity - a.specificity || a.order - b.order)
    .map((match) => match.offer);
}

/** Answers as Express' accepts methods: the best offer or false, or without offers all that is accepted. */
function negotiate(header, offers, specificity) {
  if (offers.length > 0) return header === undefined ? offers[0] : (acceptable(header, offers, specificity)[0] ?? false);
  return ranges(header ?? '*')
    .filter(({ quality }) => quality > 0)
    .sort((a, b) => b.quality - a.quality || a.order - b.order)
    .map(({ value }) => value);
}

function matchType(range, offer) {
  if (range === offer) return 3;
  const [type, subtype] = range.split('/');
  if (range === '*/*' || range === '*') return 1;
  return subtype === '*' && offer.startsWith(`${type}/`) ? 2 : 0;
}

function matchLanguage(range, offer) {
  if (range === offer) return 4;
  if (offer.startsWith(`${range}-`)) return 3;
  if (range.startsWith(`${offer}-`)) return 2;
  return range === '*' ? 1 : 0;
}

const matchName = (range, offer) => (range === offer ? 2 : Number(range === '*'));

const listOf = (values) => values.flat().map(String);

/** The full type of a short one, such as html. */
function fullType(type) {
  if (type.includes('/')) return mediaType(type);
  return shortTypes[type.replace(/^\./, '')] ?? type;
}

/** Whether a type is what a function asks for: json, text/*, *\/xml, +json. */
function isType(wanted, actual) {
  if (wanted === 'urlencoded') wanted = 'application/x-www-form-urlencoded';
  if (wanted === 'multipart') wanted = 'multipart/*';
  if (wanted.startsWith('+')) return actual.endsWith(wanted);
  const [type, subtype] = fullType(wanted).split('/');
  const [actualType, actualSubtype] = actual.split('/');
  if (type !== '*' && type !== actualType) return false;
  return subtype === '*' || subtype === actualSubtype || (subtype?.startsWith('*+') === true && actualSubtype.endsWith(subtype.slice(1)));
}

// ------------------------------------------------------------- requests

const forwarded = ({ headers, socket }) => {
  const addresses = headers['x-forwarded-for']?.split(',').map((address) => address.trim());
  return addresses?.[0] ? addresses : [socket.remoteAddress];
};

const request = {
  baseUrl: { get: () => '' },
  cookies: {
    get() {
      return (this[COOKIES] ??= readCookies(this.headers.cookie ?? ''));
    },
    set(cookies) {
      this[COOKIES] = cookies;
    },
  },
  host: {
    get() {
      return this.headers['x-forwarded-host']?.split(',', 1)[0].trim() ?? this.headers.host;
    },
  },
  ip: {
    get() {
      return forwarded(this)[0];
    },
  },
  ips: {
    get() {
      return this.headers['x-forwarded-for'] === undefined ? [] : forwarded(this);
    },
  },
  secure: {
    get() {
      return this.protocol === 'https';
    },
  },
  subdomains: {
    get() {
      return /^[\d.]+$|:/.test(this.hostname ?? '') ? [] : (this.hostname ?? '').split('.').reverse().slice(2);
    },
  },
  xhr: {
    get() {
      return this.headers['x-requested-with']?.toLowerCase() === 'xmlhttprequest';
    },
  },
  accepts: {
    value(...types) {
      const names = listOf(types);
      const full = names.map(fullType);
      const found = negotiate(this.headers.accept ?? (names.length > 0 ? undefined : '*/*'), full, matchType);
      return typeof found === 'string' ? names[full.indexOf(found)] : found;
    },
  },
  acceptsCharsets: {
    value(...charsets) {
      return negotiate(this.headers['accept-charset'], listOf(charsets), matchName);
    },
  },
  acceptsEncodings: {
    value(...encodings) {
      const header = this.headers['accept-encoding'] ?? '';
      // What is not encoded is always accepted, unless the header says otherwise.
      const implied = ranges(header).some(({ value }) => value === 'identity' || value === '*') ? '' : `${header && ','}identity;q=0.0001`;
      return negotiate(header + implied, listOf(encodings), matchName);
    },
  },
  acceptsLanguages: {
    value(...languages) {
      return negotiate(this.headers['accept-language'], listOf(languages), matchLanguage);
    },
  },
  is: {
    value(...types) {
      const { headers } = this;
      if (headers['transfer-encoding'] === undefined && headers['content-length'] === undefined) return null;
      const actual = mediaType(headers['content-type'] ?? '');
      if (!actual.includes('/')) return false;
      const wanted = listOf(types);
      if (wanted.length === 0) return actual;
      const found = wanted.find((type) => isType(type, actual));
      if (found === undefined) return false;
      return found.includes('*') || found.startsWith('+') ? actual : found;
    },
  },
};

function readCookies(header) {
  const cookies = {};
  for (const pair of header.split(';')) {
    const at = pair.indexOf('=');
    const name = pair.slice(0, Math.max(at, 0)).trim();
    if (name === '' || Object.hasOwn(cookies, name)) continue;
    const text = pair.slice(at + 1).trim();
    const value = decode(text.startsWith('"') && text.endsWith('"') ? text.slice(1, -1) : text);
    Object.defineProperty(cookies, name, { value: readCookie(value), enumerable: true, configurable: true, writable: true });
  }
  return cookies;
}

/** What res.cookie() has made of an object is an object again. */
function readCookie(value) {
  if (!value.startsWith('j:')) return value;
  try {
    return JSON.parse(value.slice(2));
  } catch {
    return value;
  }
}

// ------------------------------------------------------------ responses

const response = {
  locals: {
    get() {
      return (this[LOCALS] ??= {});
    },
    set(locals) {
      this[LOCALS] = locals;
    },
  },
  attachment: {
    value(name) {
      if (name !== undefined && path.extname(name) !== '') this.type(path.extname(name));
      return this.set('content-disposition', disposition(name));
    },
  },
  clearCookie: {
    value(name, options) {
      return this.cookie(name, '', { ...options, maxAge: undefined, expires: new Date(1) });
    },
  },
  cookie: {
    value(name, value, options = {}) {
      if (options.signed) throw new TypeError('signed cookies are not supported');
      const text = typeof value === 'object' ? `j:${JSON.stringify(value)}` : String(value);
      return this.append('set-cookie', cookie(name, text, options));
    },
  },
  download: {
    value(file, ...rest) {
      const name = typeof rest[0] === 'string' ? rest.shift() : path.basename(file);
      const options = typeof rest[0] === 'object' ? rest.shift() : {};
      return this.sendFile(options.root === undefined ? path.resolve(file) : file, {
        ...options, headers: { ...options.headers, 'content-disposition': disposition(name) },
      }, rest[0]);
    },
  },
  format: {
    value(handlers) {
      const types = Object.keys(handlers).filter((type) => type !== 'default');
      const type = types.length > 0 && this.req.accepts(types);
      this.vary('Accept');
      if (type) {
        this.type(type);
        handlers[type](this.req, this);
      } else if (handlers.default) {
        handlers.default(this.req, this);
      } else {
        sendError(this.req, this, new StatusError(406, 'Not Acceptable'));
      }
      return this;
    },
  },
  jsonp: {
    value(body) {
      const { callback } = this.req.query;
      const name = String(Array.isArray(callback) ? callback[0] : (callback ?? '')).replace(/[^[\]\w$.]/g, '');
      if (name === '') return this.json(body);
      const json = (JSON.stringify(body) ?? '').replaceAll('\u2028', '\\u2028').replaceAll('\u2029', '\\u2029');
      this.setHeader('x-content-type-options', 'nosniff');
      // A comment before it keeps the name from being the start of another file format.
      send(this, 'text/javascript; charset=utf-8', `/**/ typeof ${name} === 'function' && ${name}(${json});`);
      return this;
    },
  },
  links: {
    value(links) {
      const list = Object.entries(links).flatMap(([rel, urls]) => [urls].flat().map((url) => `<${url}>; rel="${rel}"`));
      return this.set('link', [this.get('link'), ...list].filter(Boolean).join(', '));
    },
  },
  location: {
    value(url) {
      return this.set('location', encodeURL(url));
    },
  },
  sendFile: {
    value(file, options, done) {
      if (typeof options === 'function') [options, done] = [{}, options];
      sendFile(this, file, options ?? {}, done ?? ((error) => error && sendError(this.req, this, error)));
      return this;
    },
  },
  vary: {
    value(fields) {
      const all = String(this.get('vary') ?? '').split(',').map((field) => field.trim()).filter(Boolean);
      for (const field of [fields].flat()) {
        if (!all.some((one) => one === '*' || one.toLowerCase() === field.toLowerCase())) all.push(field);
      }
      return this.set('vary', all.join(', '));
    },
  },
};
response.contentType = {
  value(type) {
    return this.type(type);
  },
};

function disposition(name) {
  if (name === undefined) return 'attachment';
  const base = path.basename(name);
  const ascii = base.replace(/[^\x20-\x7e]/g, '?').replace(/["\\]/g, '\\$&');
  const encoded = encodeURIComponent(base.toWellFormed()).replace(/['()*]/g, (c) => `%${c.charCodeAt(0).toString(16).toUpperCase()}`);
  return `attachment; filename="${ascii}"${/[^\x20-\x7e]/.test(base) ? `; filename*=UTF-8''${encoded}` : ''}`;
}

/** The value of Set-Cookie. Nothing in it can begin another attribute. */
function cookie(name, value, { encode = encodeURIComponent, maxAge, domain, path: below = '/', expires, ...flags }) {
  if (!TOKEN.test(name)) throw new TypeError(`${JSON.stringify(name)} is not a name of a cookie`);
  const parts = [`${name}=${encode(value)}`];
  if (maxAge !== undefined && maxAge !== null) {
    if (!Number.isFinite(maxAge - 0)) throw new TypeError('maxAge of a cookie must be a number of milliseconds');
    parts.push(`Max-Age=${Math.floor(maxAge / 1000)}`);
    expires = new Date(Date.now() + (maxAge - 0));
  }
  if (domain) parts.push(`Domain=${domain}`);
  if (below) parts.push(`Path=${below}`);
  if (expires) parts.push(`Expires=${expires.toUTCString()}`);
  for (const flag of ['httpOnly', 'secure', 'partitioned']) {
    if (flags[flag]) parts.push(flag[0].toUpperCase() + flag.slice(1));
  }
  const named = (value) => String(value)[0].toUpperCase() + String(value).slice(1).toLowerCase();
  if (flags.priority) parts.push(`Priority=${named(flags.priority)}`);
  if (flags.sameSite) parts.push(`SameSite=${flags.sameSite === true ? 'Strict' : named(flags.sameSite)}`);
  const wrong = parts.find((part) => /[;\x00-\x1f\x7f]/.test(part));
  if (wrong !== undefined) throw new TypeError(`${JSON.stringify(wrong)} is not allowed in a cookie`);
  return parts.join('; ');
}

/** Encodes what a URL in a header cannot have, and keeps what is encoded. */
function encodeURL(url) {
  return String(url).toWellFormed().replace(/[^\x21\x23-\x3b\x3d\x3f-\x5f\x61-\x7a\x7e]/gu, encodeURIComponent);
}

/** Sends a file. Only a path that the function itself states as absolute may leave the root. */
function sendFile(response, file, { root, headers = {}, dotfiles = 'ignore' }, done) {
  if (root === undefined && !path.isAbsolute(file)) throw new TypeError('the path of a file must be absolute, or a root be given');
  const parts = file.split('/');
  if (file.includes('\0') || (root !== undefined && parts.includes('..'))) {
    done(new StatusError(403, 'Forbidden'));
    return;
  }
  if (dotfiles !== 'allow' && root !== undefined && parts.some((part) => part.length > 1 && part.startsWith('.'))) {
    done(new StatusError(404, 'Not Found'));
    return;
  }
  const name = root === undefined ? file : path.join(root, file);
  // At once, so that the answer has begun when main returns.
  let descriptor;
  let stat;
  try {
    descriptor = fs.openSync(name);
    stat = fs.fstatSync(descriptor);
  } catch (error) {
    done(['ENOENT', 'ENOTDIR', 'ENAMETOOLONG'].includes(error.code) ? new StatusError(404, 'Not Found') : error);
    return;
  }
  if (stat.isFile()) {
    stream(response, name, descriptor, stat.size, headers, done);
  } else {
    fs.closeSync(descriptor);
    done(new StatusError(404, 'Not Found'));
  }
}

function stream(response, name, descriptor, size, headers, done) {
  const source = fs.createReadStream(name, { fd: descriptor });
  response.set(headers);
  if (!response.hasHeader('content-type')) response.type(path.extname(name) || 'bin');
  response.setHeader('content-length', size);
  if (response.req.method === 'HEAD') {
    source.destroy();
    response.end();
    done();
    return;
  }
  response.flushHeaders();
  require('node:stream').pipeline(source, response, (error) => {
    // A caller who gives up is no error of the function's.
    if (error && error.code !== 'ERR_STREAM_PREMATURE_CLOSE') done(error);
    else done();
  });
}

module.exports = { request, response, encodeURL };
