/** Who takes part in a benchmark, and how it is started. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { commandLine, entryOf, variantOf } from '../../bench/entries.ts';

const PLACES = { port: 8080, admin: 9090, upstream: 443, directory: '/d', workspace: '/d/w' };

describe('--subject of the benchmark', () => {
  for (const [argument, entry] of [
    ['a=http://127.0.0.1:8081', { kind: 'running', url: new URL('http://127.0.0.1:8081') }],
    ['before=../b/proxy.js', { kind: 'build', file: '../b/proxy.js' }],
    ['go=./proxy', { kind: 'command', command: ['./proxy'] }],
    [
      'go=./proxy --port {port} --x=y',
      { kind: 'command', command: ['./proxy', '--port', '{port}', '--x=y'] },
    ],
    ['js=node other.js', { kind: 'command', command: ['node', 'other.js'] }],
  ] as const) {
    it(`accepts ${argument} as a ${entry.kind}`, () =>
      assert.deepEqual(entryOf(argument), [argument.slice(0, argument.indexOf('=')), entry]));
  }
  for (const argument of ['', 'name', 'name=', '=what']) {
    it(`refuses ${JSON.stringify(argument)}`, () => assert.throws(() => entryOf(argument), /NAME=URL/));
  }
});

describe('the command line of a subject of the benchmark', () => {
  it('starts a build with the flags of its variant', () => {
    const { entry, variant } = variantOf('before, clients, 2 workers');
    assert.equal(entry, 'before');
    const line = commandLine({ kind: 'build', file: 'proxy.js' }, variant, PLACES, ['--expose-gc']);
    assert.deepEqual(line.slice(0, 3), [process.execPath, '--expose-gc', 'proxy.js']);
    for (const flag of [
      '--api-endpoint=localhost:443',
      '--workspace=/d/w',
      '--port=8080',
      '--clients=/d/clients.json',
      '--workers=2',
    ])
      assert.ok(line.includes(flag), flag);
  });

  it('starts a command with the known placeholders filled in', () => {
    const command = ['go', '--at', '{upstream}:{port}', '{directory}/ca.pem', '{workspace}', '{else}'];
    const line = commandLine({ kind: 'command', command }, variantOf('go').variant, PLACES, ['--expose-gc']);
    assert.deepEqual(line, ['go', '--at', '443:8080', '/d/ca.pem', '/d/w', '{else}']);
  });

  it('is refused for an unknown variant', () => assert.throws(() => variantOf('ours, faster'), /no variant/));
});
