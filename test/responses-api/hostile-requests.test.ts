/**
 * Requests that are made to cost more than their bytes: what bounds them, and where others have their turn.
 */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { RequestRefusal } from '../../lib/responses-api/request-refusal.ts';
import { translateRequest } from '../../lib/responses-api/translate-request.ts';
import { type Json, translated } from './chat-side.ts';

const fn = (name: string) => ({ type: 'function', name, parameters: {} });
const user = { role: 'user', content: 'x' };
const call = (name: string) => ({ type: 'function_call', call_id: 'c', name, arguments: '{}' });
const namespaced = (tools: readonly object[]) => ({ type: 'namespace', name: 'n', tools });

const MIB = 1024 * 1024;

describe('a Responses request is refused with 413 beyond', () => {
  const numbers = (count: number) =>
    `{"model":"m","input":"x","metadata":{"a":[${Array(count).fill('1e400').join(',')}]}}`;

  const tooLarge = { code: 'body_too_large', status: 413, api: { param: 'request', code: 'invalid_value' } };

  it('200,000 values', (t) => {
    const values = (count: number) => ({ metadata: { a: Array(count).fill(0) } });
    // The request itself, its other members and `a` count, too.
    assert.doesNotThrow(() => translated(values(200_000 - 5)));
    const parse = t.mock.method(JSON, 'parse');
    assert.throws(() => translated(values(200_000 - 4)), tooLarge);
    assert.equal(parse.mock.callCount(), 0, 'it is refused before any of it is parsed');
  });

  it('32 MiB of one item or member, with its name', () => {
    const long = (count: number) => ({
      role: 'user',
      content: 'x'.repeat(count - '{"role":"user","content":""}'.length),
    });
    assert.doesNotThrow(() => translated({ input: [long(32 * MIB)] }));
    const { code, status } = tooLarge;
    const refusal = (param: string) => ({ code, status, api: { param, code: 'invalid_value' } });
    assert.throws(() => translated({ input: [user, long(32 * MIB + 1)] }), refusal('input[1]'));
    assert.throws(() => translated({ input: 'x'.repeat(32 * MIB) }), refusal('input'));
  });

  it('16 MiB in all members beside input', () => {
    const long = (count: number) => ({ instructions: 'x'.repeat(8 * MIB - 2), user: 'x'.repeat(count - 2) });
    assert.doesNotThrow(() => translated(long(8 * MIB - '"m"'.length)));
    assert.throws(() => translated(long(8 * MIB)), tooLarge);
  });

  it('20,000 numbers that no double holds', () => {
    const translate = (count: number) => () => [...translateRequest(Buffer.from(numbers(count)))];
    assert.doesNotThrow(translate(20_000));
    assert.throws(translate(20_001), tooLarge);
  });
});

describe('a Responses request leaves others their turn', () => {
  const turnsOf = (input: readonly Json[]): number => translated({ input }).turns;

  it('after each item, and after each message', () => {
    const output = { type: 'function_call_output', call_id: 'c', output: 'x' };
    const tools = { type: 'additional_tools', tools: [fn('f')] };
    for (const [item, least] of [
      [user, 3],
      [output, 3],
      [tools, 1],
    ] as const)
      assert.ok(turnsOf([user, ...Array(50).fill(item)]) > 50 * least);
  });

  it('within the arguments of one call, which are scanned and not parsed', () => {
    const args = `{"a":[${'0,'.repeat(MIB)}0]}`;
    // 2 MiB of the body, of the input and of the arguments, in steps of 512 KiB
    assert.ok(turnsOf([{ ...call('f'), arguments: args }]) >= 3 * 4);
  });
});

describe('a Responses request whose lists are long', () => {
  const names = Array.from({ length: 1024 }, (_, i) => `f${i}`);
  const many = (count: number) => Array.from({ length: count }, (_, i) => `g${i}`);
  const MOST: Readonly<Record<string, (count: number) => Json>> = {
    'hosted tools': (count) => ({ tools: many(count).map((type) => ({ type })) }),
    'earlier calls': (count) => ({ tools: many(count - 24).map(fn), input: names.slice(0, 24).map(call) }),
  };
  for (const [what, request] of Object.entries(MOST)) {
    it(`may name 1,024 different tools, and is refused with more: ${what}`, () => {
      assert.doesNotThrow(() => translated(request(1_024)));
      assert.throws(() => translated(request(1_025)), RequestRefusal);
    });
  }

  it('is refused if a tool is called as another one would be in chat', () => {
    const [name = ''] = translated({ tools: [fn('a.b')] }).context.origins.keys();
    assert.match(name, /^a_b_[0-9a-f]{16}$/);
    assert.throws(() => translated({ tools: [fn(name), fn('a.b')] }), RequestRefusal);
  });

  const LONG: Readonly<Record<string, (name: string) => Json>> = {
    'a name': (name) => ({ tools: [fn(name)] }),
    'a namespace': (name) => ({ tools: [{ ...namespaced([fn('f')]), name }] }),
    'a hosted type': (type) => ({ tools: [{ type }] }),
  };
  for (const [what, request] of Object.entries(LONG)) {
    it(`has ${what} of 256 bytes at most`, () => {
      assert.doesNotThrow(() => translated(request('é'.repeat(128))));
      assert.throws(() => translated(request('é'.repeat(129))), RequestRefusal);
    });
  }
});
