import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { plainContentType } from '../../lib/http-rules/unauthenticated.ts';

describe('the type of a body that the service sent in clear', () => {
  const rows: [declared: string | undefined, ours: string][] = [
    ['application/json', 'application/json'],
    ['Application/JSON; charset=latin1', 'application/json'],
    ['application/problem+json', 'application/json'],
    [undefined, 'text/plain; charset=utf-8'],
    ['', 'text/plain; charset=utf-8'],
    ['text/html', 'text/plain; charset=utf-8'],
    ['text/html; application/json', 'text/plain; charset=utf-8'],
    ['application/json, text/html', 'text/plain; charset=utf-8'],
    ['text/event-stream', 'text/plain; charset=utf-8'],
    ['text/javascript', 'text/plain; charset=utf-8'],
    ['image/svg+xml', 'text/plain; charset=utf-8'],
    ['application/jsonp', 'text/plain; charset=utf-8'],
    ['text/x+json', 'text/plain; charset=utf-8'],
  ];
  for (const [declared, ours] of rows) {
    it(`is ${ours} for the application if it was declared as ${declared}`, () =>
      assert.equal(plainContentType(declared), ours));
  }
});
