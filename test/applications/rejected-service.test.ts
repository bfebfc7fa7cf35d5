/**
 * A service that is not what it should be, as the official clients see it with their own settings for
 * retries: the check's code within ten seconds, and no request after it.
 */

import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { TIMES } from '../../lib/times.ts';
import { type Stack, startStack } from '../support/doors/stack.ts';
import { type Asked, CLIENTS } from './ask.ts';
import { watchedFetch } from './versions.ts';

interface Raised {
  readonly status: number;
  readonly message: string;
  readonly headers: Headers;
}

const ASKED = { model: 'sim-echo', content: 'hello', headers: {}, apiKey: 'k' } as const;

/** Each kind of evidence that is rejected, and where the manifest comes from. */
const REJECTED = [
  { fault: 'evidence-debug', managedManifest: true, check: /snp\.id_key: expected/ },
  { fault: 'evidence-signature', managedManifest: false, check: /snp\.report\.signature: expected/ },
] as const;

for (const { fault, managedManifest, check } of REJECTED) {
  const how = `${fault}, ${managedManifest ? 'fetched' : 'given'} manifest`;
  describe(`a service that is rejected: ${how}`, { concurrency: true, timeout: 600_000 }, () => {
    let stack: Stack;
    before(async () => {
      stack = await startStack({ managedManifest, simulator: { faults: { [fault]: true } } });
    });
    after(() => stack.close());

    for (const [name, client] of CLIENTS) {
      for (const stream of [false, true]) {
        it(`${name} raises attestation_failed with the failed check, within one request and ten seconds${stream ? ', for a stream' : ''}`, async () => {
          const { url, simulator } = stack;
          const { fetch, sent } = watchedFetch();
          const asked: Asked = { ...ASKED, baseURL: url + client.base, stream, fetch };
          const began = performance.now();
          await assert.rejects(client.ask(asked), (thrown) => {
            assert.ok(thrown instanceof client.classes.BadRequestError, String(thrown));
            const { status, message, headers } = thrown as unknown as Raised;
            assert.equal(status, 400);
            assert.match(message, /Do not trust the (?:remote|service)/);
            assert.match(message, check);
            assert.equal(headers.get('privatemode-proxy-error'), 'attestation_failed');
            assert.equal(headers.get('x-should-retry'), 'false');
            assert.equal(headers.get('retry-after'), null);
            return true;
          });
          assert.ok(performance.now() - began < 10_000);
          assert.equal(sent.length, 1);
          assert.equal(simulator.counts['inference'], 0);
        });
      }
    }
  });
}

describe('a service whose evidence is bad for a moment', { concurrency: true, timeout: 600_000 }, () => {
  let stack: Stack;
  before(async () => {
    stack = await startStack({
      managedManifest: true,
      simulator: { faults: { 'evidence-debug': true } },
      times: { confirmAfter: TIMES.confirmAfter },
    });
    setTimeout(() => stack.simulator.faults.clear(), 500);
  });
  after(() => stack.close());

  for (const [name, client] of CLIENTS) {
    it(`${name} gets the answer`, async () => {
      const asked: Asked = { ...ASKED, baseURL: stack.url + client.base, stream: true, fetch };
      assert.equal(await client.ask(asked), 'hello');
    });
  }
});
