/**
 * No method of Node's objects is replaced, and no private member read: subclasses and documented extension
 * points do it. One file alone calls the recursive mkdir, which may never return (docs/architecture.md H30).
 */
import assert from 'node:assert/strict';
import { EventEmitter } from 'node:events';
import { readdirSync, readFileSync } from 'node:fs';
import http from 'node:http';
import https from 'node:https';
import net from 'node:net';
import { join, resolve } from 'node:path';
import stream from 'node:stream';
import { describe, it } from 'node:test';
import tls from 'node:tls';

const LIB = resolve(import.meta.dirname, '../lib');

/** The public methods of what Node makes and hands out. */
const METHODS = new Set(
  [
    ...[EventEmitter, stream.Readable, stream.Writable, stream.Duplex, stream.Transform],
    ...[
      net.Socket,
      net.Server,
      tls.TLSSocket,
      tls.Server,
      http.Agent,
      https.Agent,
      http.Server,
      https.Server,
    ],
    ...[http.IncomingMessage, http.OutgoingMessage, http.ServerResponse, http.ClientRequest],
  ].flatMap(({ prototype }) =>
    Object.entries(Object.getOwnPropertyDescriptors(prototype))
      .filter(([name, { value }]) => typeof value === 'function' && name !== 'constructor')
      .map(([name]) => name),
  ),
);

/**
 * The members that the source replaces where Node has a method of that name, those with an underscore that it
 * reads, and its calls of mkdir with `recursive`.
 */
function reached(source: string): string[] {
  const code = source.replace(/\/\*[\s\S]*?\*\//g, '').replace(/^\s*\/\/.*$|\s\/\/ .*$/gm, '');
  const usesNode = /from 'node:(?:events|http|https|net|stream|tls)/.test(code);
  const names = (pattern: RegExp): string[] => [...code.matchAll(pattern)].map((match) => match[1] as string);
  const replaced = [
    ...names(/\.(\w+)\s*=(?![=>])/g),
    ...names(/\[['"](\w+)['"]\]\s*=(?![=>])/g),
    ...names(/(?:defineProperty|Reflect\.set)\([^,()]*,\s*['"](\w+)['"]/g),
  ].filter((name) => usesNode && METHODS.has(name));
  // A stage overrides what Node documents for subclasses (`override _transform`): that is a definition, no
  // read.
  const read = [...names(/\.(_[a-z]\w*)/g), ...names(/\[['"](_[a-z]\w*)['"]\]/g)];
  const ofOthers = names(/\.((?:raw)?[lL]isteners)\(/g);
  const endless = names(/\b(mkdir(?:Sync)?)\([^;]*?\brecursive\b/g);
  return [...new Set([...replaced, ...read, ...ofOthers, ...endless])];
}

describe('methods and private members of Node', () => {
  it('are neither replaced nor read by lib', () => {
    const found = readdirSync(LIB, { recursive: true, encoding: 'utf8' })
      .filter((name) => name.endsWith('.ts') && name !== 'files/durable-file.ts')
      .flatMap((name) => reached(readFileSync(join(LIB, name), 'utf8')).map((member) => `${name} ${member}`));
    assert.deepEqual(found, []);
  });

  it('are found by this test however code reaches them', () => {
    const rows: [source: string, members: readonly string[]][] = [
      ['socket.destroy = later;', ['destroy']],
      ["Object.defineProperty(res, 'write', { value: later });", ['write']],
      ['(this as unknown as Sending)._send(chunk);', ['_send']],
      ["const last = res.listeners('close').at(-1);", ['listeners']],
      ["await unless('EEXIST', mkdir(join(a, b), {\n  mode: 0o700,\n  recursive: true,\n}));", ['mkdir']],
      ['override _transform(chunk, encoding, done) {}', []],
      ['if (options.write === undefined) count = 1; // socket.destroy = later', []],
    ];
    const imports = "import { Socket } from 'node:net';\n";
    for (const [source, members] of rows) assert.deepEqual(reached(imports + source), members, source);
  });
});
