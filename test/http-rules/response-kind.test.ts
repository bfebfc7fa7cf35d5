import assert from 'node:assert/strict';
import type { IncomingHttpHeaders } from 'node:http';
import { describe, it } from 'node:test';
import { PrivatemodeError } from '../../lib/errors.ts';
import { ForeignError, plainContentType, responseKind } from '../../lib/http-rules/response-kind.ts';

const STREAM = { 'content-type': 'text/event-stream; charset=utf-8' };
const BODY = { 'content-type': 'application/json' };
const PLAIN = { ...BODY, 'privatemode-encrypted': 'false' };
const encoded = (encoding: string) => ({ ...BODY, 'content-encoding': encoding });

/** How an answer is read: the kind, or the code of the refusal. */
function read(status: number, headers: IncomingHttpHeaders, encrypted: boolean, streaming: boolean): string {
  const kind = responseKind(status, headers, encrypted, streaming);
  return typeof kind === 'string' ? kind : kind.code;
}

describe('the head of an upstream response', () => {
  type Row = [name: string, status: number, headers: IncomingHttpHeaders, streaming: boolean, is: string];
  const rows: Row[] = [
    ['a body, as asked', 200, BODY, false, 'encrypted-body'],
    ['a stream, as asked', 200, STREAM, true, 'encrypted-stream'],
    ['a body without a type', 200, {}, false, 'encrypted-body'],
    ['a body in place of a stream', 200, BODY, true, 'response_malformed'],
    ['a stream in place of a body', 200, STREAM, false, 'response_malformed'],
    ['the last success, in place of a stream', 299, BODY, true, 'response_malformed'],
    ['a success that says it is plain', 200, PLAIN, false, 'response_not_encrypted'],
    ['an error that says it is plain', 400, PLAIN, false, 'plain'],
    ['an error that says it is plain, in place of a stream', 500, PLAIN, true, 'plain'],
    ['the first error, sealed', 400, BODY, true, 'encrypted-body'],
    ['an error that calls itself a stream, in place of a body', 500, STREAM, false, 'encrypted-body'],
    ['an error that calls itself a stream, in place of one', 429, STREAM, true, 'encrypted-body'],
    ['the mark in capitals', 400, { 'privatemode-encrypted': 'FALSE' }, false, 'encrypted-body'],
    ['the last error, plain', 599, PLAIN, false, 'plain'],
    ['status 600, plain, which clients do not treat as an error', 600, PLAIN, false, 'response_malformed'],
    ['status 999, a stream', 999, STREAM, true, 'response_malformed'],
    ['status 199, less than a success', 199, BODY, false, 'response_malformed'],
    ['a success without a body', 204, STREAM, true, 'response_malformed'],
    ['a success whose body clients do not read', 205, BODY, false, 'response_malformed'],
    ['the first redirect', 300, PLAIN, false, 'upstream_redirect'],
    ['the last redirect', 399, PLAIN, false, 'upstream_redirect'],
    ['content-encoding: Identity', 200, encoded('Identity'), false, 'encrypted-body'],
    ['compression', 200, encoded('gzip'), false, 'response_malformed'],
    ['compression of an error', 500, { ...PLAIN, ...encoded('br') }, false, 'response_malformed'],
  ];
  it('decides how the response is read, or that it is refused', () => {
    for (const [name, status, headers, streaming, is] of rows)
      assert.equal(read(status, headers, true, streaming), is, name);
  });

  it('is read as plain at an endpoint without encryption, but refused with a redirect, compression, 204 or 600', () => {
    assert.equal(read(200, BODY, false, false), 'plain');
    assert.equal(read(503, {}, false, false), 'plain');
    assert.equal(read(302, {}, false, false), 'upstream_redirect');
    assert.equal(read(600, BODY, false, false), 'response_malformed');
    assert.equal(read(204, {}, false, false), 'response_malformed');
    assert.equal(read(200, encoded('gzip'), false, false), 'response_malformed');
  });
});

it('a body that the service sent in clear is JSON if it was declared so, and else text that nothing renders', () => {
  for (const type of ['application/json', 'Application/JSON; charset=latin1', 'application/problem+json'])
    assert.equal(plainContentType(type), 'application/json', type);
  const others = ['', 'text/html', 'text/html; application/json', 'application/json, text/html'];
  const more = ['text/x+json', 'text/event-stream', 'image/svg+xml', 'application/jsonp'];
  for (const type of [undefined, ...others, ...more])
    assert.equal(plainContentType(type), 'text/plain; charset=utf-8', String(type));
});

it('an error that does not authenticate is said to be tampered with only if a part of it was authentic', () => {
  const failure = new PrivatemodeError('response_not_authentic', 'a wrong tag');
  assert.equal(new ForeignError(failure, 400).code, 'response_malformed');
  assert.equal(new ForeignError(failure, 400, true).code, 'response_not_authentic');
});
