import assert from 'node:assert/strict';
import { it } from 'node:test';
import type { VerificationDocument } from '../../lib/observe/verification-document.ts';
import { askChat } from '../support/doors/ask-chat.ts';
import { startStack } from '../support/doors/stack.ts';
import { freePort } from '../support/processes/foreign-programs.ts';

it('--protocol-version is announced in every request to the service, and in /verification', async (t) => {
  const admin = await freePort();
  const stack = await startStack({
    simulator: { faults: { 'minimum-version': 'v1.46.0' } },
    flags: ['--protocol-version=v1.46.0', `--admin-address=127.0.0.1:${admin}`],
  });
  t.after(() => stack.close());
  assert.equal((await askChat(stack)).status, 200);
  assert.equal((await fetch(`${stack.url}/v1/models`)).status, 200);
  const requests = stack.simulator.recorder.requests().filter(({ path }) => !path.includes('manifest'));
  const announced = requests.map(({ path, headers }) => `${path} ${headers['privatemode-version']}`);
  const paths = ['/privatemode/v1/attest', '/privatemode/v1/secret', '/v1/chat/completions', '/v1/models'];
  const expected = paths.map((path) => `${path} v1.46.0`);
  assert.deepEqual(announced, expected);
  const response = await fetch(`http://127.0.0.1:${admin}/verification`);
  assert.equal(((await response.json()) as VerificationDocument).protocol, 'v1.46.0');
});
