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

// The function of the suite in the style of Express, with Kyma's module sdk.

import { getCloudEvent, getFunctionName, getTracer } from 'sdk';

const paths = {
  '/send': (req, res) => res.send('Hello World!'),
  '/json': async (req, res) => {
    await null;
    res.json({ a: 1 });
  },
  '/status': (req, res) => res.status(400).send('Missing id parameter'),
  '/query': (req, res) => res.json({ id: req.query.id }),
  '/body': (req, res) => res.json({ body: req.body, type: req.get('Content-Type') }),
  '/later': (req, res) => {
    setTimeout(() => res.end('later'), 10);
  },
  '/write': (req, res) => {
    res.writeHead(200, { 'content-type': 'text/event-stream' });
    res.write('data: 1\n\n');
    res.end('data: 2\n\n');
  },
  '/event': (req, res) => {
    const event = getCloudEvent(req);
    res.json(event ? { id: event.id, type: event.type, source: event.source, data: event.data } : { none: event });
  },
  '/sdk': (req, res) => res.json({ name: getFunctionName(), traced: typeof getTracer().startSpan }),
  '/accepts': (req, res) => res.json([req.accepts('html', 'json'), req.acceptsLanguages('de', 'en')]),
  '/is': (req, res) => res.json([req.is('json'), req.is('text/*'), req.is('urlencoded')]),
  '/cookie': (req, res) => res.cookie('a', req.cookies.a, { httpOnly: true, sameSite: 'lax' }).clearCookie('b').end(),
  '/attachment': (req, res) => res.attachment('a.csv').send('a,b'),
  '/format': (req, res) => res.format({ html: () => res.send('<p>'), json: () => res.json([]) }),
  '/headers': (req, res) => res.set({ 'X-A': '1' }).append('X-A', '2').vary('Accept').links({ next: '/2' }).location('/ä').end(),
  '/jsonp': (req, res) => res.jsonp({ a: 1 }),
  '/sendStatus': (req, res) => res.sendStatus(404),
  '/type': (req, res) => res.type('html').send('<p>'),
  '/sendFile': (req, res) => res.sendFile('package.json', { root: import.meta.dirname }),
  '/throws': () => {
    throw new Error('secret');
  },
  '/rejects': async () => {
    throw Object.assign(new Error('no such thing'), { status: 404 });
  },
  '/silent': () => 'ignored',
};

export function main(req, res) {
  return (paths[req.path] ?? (() => res.status(404).end()))(req, res);
}
