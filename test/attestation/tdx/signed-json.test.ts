import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { DATE, hex, integer, type JsonMembers, TEXT } from '../../../lib/attestation/json-members.ts';
import { readSignedJson } from '../../../lib/attestation/tdx/tcb-info.ts';

const UNUSABLE = { name: 'PrivatemodeError', code: 'collateral_unavailable' };
const SIGNATURE = 'ab'.repeat(64);

describe('signed JSON of Intel', () => {
  const texts: readonly (readonly [name: string, value: string])[] = [
    ['as Intel writes it', '{"id":"TDX","version":3}'],
    ['with white space inside', '{ "id" :\t"TDX",\n"version" : 3 }'],
    [
      'with the structure of JSON inside strings',
      String.raw`{"a":"},\"signature\":\"}","b":["{","]",{"c":"\\"}]}`,
    ],
    ['with escapes and other alphabets', String.raw`{"ü":"\u00fc","n":1e2}`],
    ['with the name of the member inside', '{"tcbInfo":{"tcbInfo":1}}'],
  ];
  for (const [name, value] of texts) {
    it(`gives the exact bytes of the value ${name}`, () => {
      for (const body of [
        `{"tcbInfo":${value},"signature":"${SIGNATURE}"}`,
        `{"signature":"${SIGNATURE}","tcbInfo":${value}}`,
        ` {\n "tcbInfo" : ${value} ,\r\n "later": [1,{"x":"y"}], "signature":"${SIGNATURE.toUpperCase()}"\t}\n`,
      ]) {
        const { signed, signature } = readSignedJson(body, 'tcbInfo');
        assert.equal(Buffer.from(signed).toString('utf8'), value);
        assert.equal(Buffer.from(signature).toString('hex'), SIGNATURE);
      }
    });
  }

  const signature = `"signature":"${SIGNATURE}"`;
  const refused: readonly (readonly [name: string, body: string, message: string])[] = [
    ['an empty body', '', 'the body: not JSON at character 0'],
    ['a page of HTML', '<html>portal</html>', 'the body: not JSON at character 0'],
    ['a list', `[{"tcbInfo":{},${signature}}]`, 'the body: the text is not an object'],
    ['null', 'null', 'the body: not JSON at character 0'],
    ['no value', `{${signature}}`, 'tcbInfo is not an object'],
    ['a value of another name', `{"enclaveIdentity":{},${signature}}`, 'tcbInfo is not an object'],
    ['a value that is no object', `{"tcbInfo":[],${signature}}`, 'tcbInfo is not an object'],
    ['a value inside another member only', `{"x":{"tcbInfo":{}},${signature}}`, 'tcbInfo is not an object'],
    ['the value twice', `{"tcbInfo":{},"tcbInfo":{},${signature}}`, 'a member appears twice'],
    [
      'the value twice, once escaped',
      String.raw`{"tcbInfo":{},"tcb\u0049nfo":{},${signature}}`,
      'a member appears twice',
    ],
    ['the signature twice', `{"tcbInfo":{},${signature},${signature}}`, 'a member appears twice'],
    ['no signature', '{"tcbInfo":{}}', 'signature is not hex of 64 bytes'],
    ['a signature of 63 bytes', `{"tcbInfo":{},"signature":"${SIGNATURE.slice(2)}"}`, 'signature is not hex'],
    ['a signature of 65 bytes', `{"tcbInfo":{},"signature":"${SIGNATURE}00"}`, 'signature is not hex'],
    [
      'a signature that is not hex',
      `{"tcbInfo":{},"signature":"${'zz'.repeat(64)}"}`,
      'signature is not hex',
    ],
  ];
  for (const [name, body, message] of refused) {
    it(`refuses ${name}, and says "${message}"`, () =>
      assert.throws(() => readSignedJson(body, 'tcbInfo'), { ...UNUSABLE, message: new RegExp(message) }));
  }
});

describe('the limits of signed JSON', () => {
  const ending = `,"signature":"${SIGNATURE}"}`;

  it('allow 64 Ki characters, and no more', () => {
    const padded = (length: number): string => {
      const start = '{"tcbInfo":{"x":"';
      return `${start}${' '.repeat(length - start.length - 2 - ending.length)}"}${ending}`;
    };
    assert.equal(readSignedJson(padded(65_536), 'tcbInfo').signature.length, 64);
    assert.throws(() => readSignedJson(padded(65_537), 'tcbInfo'), { ...UNUSABLE, message: /too large/ });
  });

  it('allow 16 levels of nesting, and no more', () => {
    const nested = (depth: number): string =>
      `{"tcbInfo":{"x":${'['.repeat(depth - 2)}${']'.repeat(depth - 2)}}${ending}`;
    assert.equal(readSignedJson(nested(16), 'tcbInfo').signature.length, 64);
    assert.throws(() => readSignedJson(nested(17), 'tcbInfo'), { ...UNUSABLE, message: /nested too deeply/ });
  });
});

const members = (value: object): JsonMembers =>
  readSignedJson(`{"x":${JSON.stringify(value)},"signature":"${SIGNATURE}"}`, 'x').content;

describe('members of Intel’s JSON', () => {
  it('are read with their type, length and range', () => {
    const object = members({ s: 'a', n: 3, h: 'A0b1', d: '2026-11-01T00:00:00Z', l: [{}] });
    assert.equal(object.get('s', TEXT), 'a');
    assert.equal(object.get('n', integer(3)), 3);
    assert.deepEqual(object.get('h', hex(2)), Uint8Array.of(0xa0, 0xb1));
    assert.equal(object.get('d', DATE).getTime(), Date.UTC(2026, 10, 1));
    assert.equal(object.objects('l').length, 1);
    assert.equal(object.members.has('toString'), false);
  });

  const refusals: readonly (readonly [string, unknown, (object: JsonMembers) => unknown])[] = [
    ['a missing string', undefined, (o) => o.get('m', TEXT)],
    ['a number for a string', 3, (o) => o.get('m', TEXT)],
    ['an inherited member', undefined, (o) => o.get('constructor', TEXT)],
    ['a fraction', 2.5, (o) => o.get('m', integer(9))],
    ['a negative number', -1, (o) => o.get('m', integer(9))],
    ['a number above its range', 10, (o) => o.get('m', integer(9))],
    ['a number as text', '3', (o) => o.get('m', integer(9))],
    ['hex of another length', 'abcd', (o) => o.get('m', hex(3))],
    ['hex with a stray letter', 'abcg', (o) => o.get('m', hex(2))],
    ['a date without time', '2026-11-01', (o) => o.get('m', DATE)],
    ['a date in another zone', '2026-11-01T00:00:00+01:00', (o) => o.get('m', DATE)],
    ['a date that does not exist', '2026-02-30T00:00:00Z', (o) => o.get('m', DATE)],
    ['a date as a number', 0, (o) => o.get('m', DATE)],
    ['an object for a list', {}, (o) => o.objects('m')],
    ['a list of numbers', [1], (o) => o.objects('m')],
    ['a list for an object', [], (o) => o.object('m')],
    ['null for an object', null, (o) => o.object('m')],
  ];
  for (const [name, value, read] of refusals) {
    it(`are refused with ${name}`, () => assert.throws(() => read(members({ m: value })), UNUSABLE));
  }
});
