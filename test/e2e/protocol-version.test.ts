/**
 * A service that wants a newer client, and --protocol-version, which announces another version: through the
 * whole program.
 */
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import type { VerificationDocument } from '../../lib/observe/verification-document.ts';
import { askChat } from '../support/doors/ask-chat.ts';
import { type Stack, startStack } from '../support/doors/stack.ts';
import { freePort } from '../support/processes/foreign-programs.ts';

describe('a proxy whose service begins to require a newer client', () => {
  let stack: Stack;
  before(async () => {
    stack = await startStack();
    assert.equal((await askChat(stack)).status, 200);
  });
  after(() => stack.close());

  it('refuses requests with 400 client_too_old, stays ready, and serves again once the service accepts it', async () => {
    stack.simulator.faults.set('minimum-version', 'v1.46.0');
    const refused = await askChat(stack);
    assert.deepEqual(
      [refused.status, refused.headers.get('privatemode-proxy-error'), refused.headers.get('x-should-retry')],
      [400, 'client_too_old', 'false'],
    );
    assert.match(
      await refused.text(),
      /wants a client of version 1\.46\.0 or newer; this one announces v1\.40\.0/,
    );
    assert.ok((await fetch(`${stack.url}/readyz`)).ok);
    stack.simulator.faults.delete('minimum-version');
    assert.equal((await askChat(stack)).status, 200);
  });
});

describe('--protocol-version', () => {
  let stack: Stack;
  let admin: number;
  before(async () => {
    admin = await freePort();
    stack = await startStack({
      simulator: { faults: { 'minimum-version': 'v1.46.0' } },
      flags: ['--protocol-version=v1.46.0', `--admin-address=127.0.0.1:${admin}`],
    });
  });
  after(() => stack.close());

  it('is announced in every request to the service, and the service accepts it', async () => {
    assert.equal((await askChat(stack)).status, 200);
    assert.equal((await fetch(`${stack.url}/v1/models`)).status, 200);
    const announced = stack.simulator.recorder
      .requests()
      .filter(({ path }) => !path.includes('manifest'))
      .map(({ path, headers }) => [path, headers['privatemode-version']]);
    assert.deepEqual(announced, [
      ['/privatemode/v1/attest', 'v1.46.0'],
      ['/privatemode/v1/secret', 'v1.46.0'],
      ['/v1/chat/completions', 'v1.46.0'],
      ['/v1/models', 'v1.46.0'],
    ]);
  });

  it('is the member protocol of /verification', async () => {
    const response = await fetch(`http://127.0.0.1:${admin}/verification`);
    assert.equal(((await response.json()) as VerificationDocument).protocol, 'v1.46.0');
  });
});
