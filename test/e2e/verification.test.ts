/** GET /verification of whole simulated deployments, and GET /status beside it. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { StatusReport } from '../../lib/observe/status-report.ts';
import type { VerificationDocument } from '../../lib/observe/verification-document.ts';
import { askChat } from '../support/doors/ask-chat.ts';
import { CANARY_KEY } from '../support/doors/canaries.ts';
import { type Stack, startStack } from '../support/doors/stack.ts';
import { eventually } from '../support/processes/eventually.ts';
import { freePort } from '../support/processes/foreign-programs.ts';

async function withStack(
  options: NonNullable<Parameters<typeof startStack>[0]>,
  use: (stack: Stack, admin: string) => Promise<void>,
): Promise<void> {
  const [port, remote] = [await freePort(), await freePort()];
  const flags = [
    `--admin-address=127.0.0.1:${port}`,
    ...[`--intel-pcs-url=https://localhost:${remote}`, `--amd-kds-url=https://localhost:${remote}`],
  ];
  const simulator = { ...options.simulator, port: remote };
  const stack = await startStack({ managedManifest: true, ...options, simulator, flags });
  try {
    await use(stack, `http://127.0.0.1:${port}`);
  } finally {
    await stack.close();
  }
}

async function json<T>(url: string): Promise<T> {
  const response = await fetch(url, { headers: { connection: 'close' } });
  assert.equal(response.status, 200, url);
  return (await response.json()) as T;
}

/** Asks until it holds. */
function until<T extends object>(url: string, holds: (answer: T) => boolean): Promise<T> {
  let answer: T;
  return eventually(
    () => `${holds}; it was ${JSON.stringify(answer).slice(0, 2_000)}`,
    async () => {
      answer = await json<T>(url);
      return holds(answer) && answer;
    },
  );
}

const chat = (url: string, model: string, stream = false): Promise<Response> =>
  askChat({ url }, { model, stream, content: 'a-word-of-the-prompt' });

describe('the verification document', { timeout: 600_000 }, () => {
  for (const tee of ['snp', 'tdx'] as const) {
    it(`holds no secret, for an accepted ${tee} deployment`, async () => {
      await withStack({ simulator: { tee } }, async ({ url, proxy, simulator }, admin) => {
        assert.equal((await chat(url, 'sim-echo')).status, 200);
        const document = await json<VerificationDocument>(`${admin}/verification`);
        const { verified, epoch, verdict, chain } = document;
        assert.deepEqual(
          [verified, verdict?.outcome, verdict?.tee, verdict?.failure],
          [true, 'accepted', tee, null],
        );
        assert.equal(verdict?.roots, 'custom');
        assert.equal(epoch?.manifestSha256, simulator.manifestSha256);
        assert.ok(Date.parse(epoch?.expiresAt ?? '') > Date.parse(epoch?.renewAt ?? ''));
        assert.deepEqual(
          chain.map(({ id, outcome }) => `${id} ${outcome}`),
          [...['hardware pass', 'manifest pass', 'coordinator pass', 'mesh pass', 'secret pass']],
        );

        // What the proxy and the service alone know is not in it.
        const text = JSON.stringify(document);
        const nonces = simulator.recorder
          .requests()
          .filter(({ path }) => path.endsWith('/attest'))
          .map(({ body }) => Buffer.from(JSON.parse(body.toString()).Nonce, 'base64'));
        assert.ok(nonces.length > 0);
        const key = simulator.secrets.lookup(proxy.session.current()?.secretId ?? '');
        const secrets = [...nonces, Buffer.from(key ?? '')];
        const forbidden = secrets.flatMap((bytes) => [bytes.toString('hex'), bytes.toString('base64')]);
        for (const secret of [...forbidden, CANARY_KEY, 'a-word-of-the-prompt']) {
          assert.ok(secret.length > 10 && !text.includes(secret), 'a secret is in the document');
        }
      });
    });

    it(`names the failed check for a rejected ${tee} deployment`, async () => {
      const simulator = { tee, faults: { 'evidence-stale-nonce': true } };
      await withStack({ simulator }, async (_, admin) => {
        const document = await until<VerificationDocument>(
          `${admin}/verification`,
          ({ verdict }) => verdict !== null,
        );
        const { verified, epoch, verdict, chain } = document;
        const id = tee === 'snp' ? 'snp.report_data' : 'tdx.policy.report_data';
        assert.deepEqual(
          [verified, epoch, verdict?.outcome, verdict?.failure?.id],
          [false, null, 'rejected', id],
        );
        assert.notEqual(verdict?.failure?.found, verdict?.failure?.expected);
        assert.equal(chain.find(({ outcome }) => outcome === 'fail')?.id, 'coordinator');
        assert.equal(chain.at(-1)?.outcome, 'unknown');
        const status = await until<StatusReport>(`${admin}/status`, ({ lastError }) => lastError !== null);
        assert.deepEqual([status.standing.verified, status.lastError?.code], [false, 'attestation_failed']);
        assert.ok((status.lastError?.remedy ?? '').length > 10);
      });
    });
  }
});

it('GET /status counts requests in flight, stream events and the outcomes of requests', async () => {
  await withStack({}, async ({ url }, admin) => {
    const streaming = await chat(url, 'sim-40x25', true);
    const reader = streaming.body?.getReader();
    await reader?.read();
    const during = await until<StatusReport>(
      `${admin}/status`,
      ({ traffic }) => traffic.inFlight === 1 && traffic.seconds.some(({ chunks }) => chunks > 0),
    );
    assert.deepEqual(during.traffic.finished, []);
    for (let done = false; !done; ) done = (await reader?.read())?.done ?? true;
    const after = await until<StatusReport>(
      `${admin}/status`,
      ({ traffic }) => traffic.finished.length === 1,
    );
    const [streamed] = after.traffic.finished;
    assert.deepEqual([streamed?.model, streamed?.status, streamed?.outcome], ['sim-40x25', 200, 'answered']);
    assert.ok((streamed?.firstTokenMs ?? -1) >= 0 && (streamed?.durationMs ?? 0) > 0);
    const { seconds, inFlight } = after.traffic;
    // 40 tokens, the events of role and finish, and the last one, also if a busy machine joins pieces.
    const events = seconds.reduce((sum, { chunks }) => sum + chunks, 0);
    assert.deepEqual([inFlight, events, after.standing.state], [0, 43, 'verified']);
    assert.ok(!JSON.stringify(after).includes('a-word-of-the-prompt'));
  });
});
