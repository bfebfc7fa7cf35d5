import assert from 'node:assert/strict';
import { it } from 'node:test';
import { PrivatemodeError } from '../../lib/errors.ts';
import { ForeignError, plainContentType } from '../../lib/http-rules/unauthenticated.ts';

it('a body that the service sent in clear is JSON if it was declared so, and else text that nothing renders', () => {
  for (const type of ['application/json', 'Application/JSON; charset=latin1', 'application/problem+json'])
    assert.equal(plainContentType(type), 'application/json', type);
  const others = [
    '',
    'text/html',
    'text/html; application/json',
    'application/json, text/html',
    'text/x+json',
  ];
  for (const type of [undefined, ...others, 'text/event-stream', 'image/svg+xml', 'application/jsonp'])
    assert.equal(plainContentType(type), 'text/plain; charset=utf-8', String(type));
});

it('an error that does not authenticate is said to be tampered with only if a part of it was authentic', () => {
  const failure = new PrivatemodeError('response_not_authentic', 'a wrong tag');
  assert.equal(new ForeignError(failure, 400).code, 'response_malformed');
  assert.equal(new ForeignError(failure, 400, true).code, 'response_not_authentic');
});
