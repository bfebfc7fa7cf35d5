/** `verify()` resolves only where the newest judgement accepts the service; a wrong pin sends nothing. */
import assert from 'node:assert/strict';
import { hash } from 'node:crypto';
import { after, before, beforeEach, describe, it } from 'node:test';
import {
  type ClientVerdict,
  PrivatemodeAI,
  type PrivatemodeAIOptions,
  PrivatemodeError,
  VerificationError,
} from '../../lib/client-library/index.ts';
import { verificationOf } from '../../lib/client-library/verification.ts';
import type { ErrorCode } from '../../lib/errors.ts';
import { failureOf } from '../../lib/verdict/verdict.ts';
import type { Simulator } from '../../simulator/simulator.ts';
import { clientOptions, fetchWith } from '../support/doors/library-door.ts';
import { eventually } from '../support/processes/eventually.ts';
import { startTestSimulator } from '../support/remote/simulator.ts';

const KEY = 'pm-key-of-the-verify-tests';
const PROMPT = 'prompt-that-must-not-leave-8c2e';
const ask = { model: 'sim-echo', messages: [{ role: 'user' as const, content: PROMPT }] };

const error = (code: ErrorCode): PrivatemodeError => new PrivatemodeError(code, `it is ${code}`);
const ACCEPTED: ClientVerdict = {
  ...{ outcome: 'accepted', tee: 'snp', manifestSha256: 'ab'.repeat(32), at: '2026-01-01T00:00:00.000Z' },
  ...{ roots: 'vendor', checks: [], failure: null },
};
const REJECTED: ClientVerdict = {
  ...{ ...ACCEPTED, outcome: 'rejected', failure: failureOf(error('attestation_failed')) },
};

describe('verify() of the client library', { timeout: 600_000 }, () => {
  let simulator: Simulator;
  let base: ReturnType<typeof clientOptions>;
  let opened: { close(): void }[] = [];
  /** Method and path of everything that left. */
  let sent: string[] = [];

  before(async () => {
    simulator = await startTestSimulator({ apiKey: KEY });
    base = clientOptions(simulator);
  });
  beforeEach(() => {
    for (const client of opened) client.close();
    opened = [];
    sent = [];
    simulator.faults.clear();
    simulator.recorder.clear();
  });
  after(async () => {
    for (const client of opened) client.close();
    await base.network.destroy();
    await simulator.close();
  });

  function open(more: PrivatemodeAIOptions = {}): PrivatemodeAI {
    const { network: _, fetch: below, ...options } = base;
    const deployment: PrivatemodeAIOptions = {
      ...options,
      apiKey: KEY,
      async fetch(url, init) {
        sent.push(`${init?.method ?? 'GET'} ${new URL(url).pathname}`);
        return below?.(url, init) ?? assert.fail('no network');
      },
    };
    const client = new PrivatemodeAI({ maxRetries: 0, fetch: fetchWith({ ...deployment, ...more }) });
    opened.push(client);
    return client;
  }

  /** What verify() rejects with. */
  async function refusal(client: PrivatemodeAI): Promise<VerificationError> {
    const thrown = await client.verify().then(
      () => assert.fail('verify() resolved'),
      (caught: unknown) => caught,
    );
    assert.ok(thrown instanceof VerificationError && thrown instanceof PrivatemodeError, String(thrown));
    assert.equal(thrown.verdict.failure?.code, thrown.code);
    return thrown;
  }

  it('resolves only with an accepted verdict after which nothing was wrong, and with its manifest', () => {
    const manifest = Buffer.from('{"a":1}');
    const { outcome, manifestText } = verificationOf(ACCEPTED, manifest, undefined, {});
    assert.deepEqual([outcome, manifestText], ['accepted', '{"a":1}']);
    for (const [found, bytes, wrong, expected] of [
      [ACCEPTED, undefined, undefined, ['unavailable', 'attestation_failed']],
      [ACCEPTED, manifest, error('not_ready'), ['unavailable', 'not_ready']],
      [ACCEPTED, manifest, error('evidence_malformed'), ['malformed', 'evidence_malformed']],
      [REJECTED, manifest, undefined, ['rejected', 'attestation_failed']],
      [REJECTED, manifest, error('control_api_failed'), ['rejected', 'attestation_failed']],
      [undefined, undefined, error('shutting_down'), ['unavailable', 'shutting_down']],
    ] as const)
      assert.throws(
        () => verificationOf(found, bytes, wrong, {}),
        ({ verdict, code }: VerificationError) => {
          assert.deepEqual([verdict.outcome, code], expected);
          return true;
        },
      );
  });

  it('resolves with the verdict and the manifest, parsed and as published, and again with the same', async () => {
    const text = Buffer.from(simulator.manifest).toString('utf8');
    const cdnBaseUrl = 'https://localhost:1'; // nothing is there: a pin needs no published manifest
    for (const options of [
      {},
      { manifest: text, cdnBaseUrl },
      { manifest: simulator.manifest, cdnBaseUrl },
    ]) {
      const verdicts: ClientVerdict[] = [];
      const client = open({ ...options, onVerdict: (each) => verdicts.push(each) });
      const verdict = await client.verify();
      assert.deepEqual([verdict.outcome, verdict.roots, verdict.failure], ['accepted', 'custom', null]);
      assert.equal(verdict.manifestText, text);
      assert.equal(hash('sha256', verdict.manifestText), verdict.manifestSha256);
      assert.deepEqual(verdict.manifest, JSON.parse(text));
      assert.ok(verdict.checks.some(({ id }) => id === 'secret.signature'));
      assert.equal((await client.verify()).at, verdict.at);
      const { manifest: _, manifestText: __, ...told } = verdict;
      assert.deepEqual(verdicts, [told], 'onVerdict is called once');
    }
  });

  it('rejects if another manifest is pinned, and no prompt is sent', async () => {
    const wrong = Buffer.from(`${Buffer.from(simulator.manifest).toString('utf8')}\n`);
    const verdicts: ClientVerdict[] = [];
    const client = open({ manifest: wrong, onVerdict: (verdict) => verdicts.push(verdict) });
    const { code, message, verdict } = await refusal(client);
    assert.equal(code, 'manifest_mismatch');
    assert.match(message, /^manifest\.expected: expected SHA-256 \w+; found SHA-256 \w+ \(/);
    assert.equal(verdict.outcome, 'rejected');
    assert.equal(verdict.manifestSha256, hash('sha256', wrong));
    assert.ok(verdict.checks.some(({ outcome }) => outcome === 'fail'));
    assert.deepEqual(verdicts.map(({ outcome }) => outcome).slice(0, 1), ['rejected']);
    await assert.rejects(client.chat.completions.create(ask), { status: 400, code: 'manifest_mismatch' });
    const [first, last] = [verdicts[0], verdicts.at(-1)].map((verdict) => Date.parse(verdict?.at ?? ''));
    assert.ok(Number(last) - Number(first) >= 400, 'a later verification refuses the service');
    assert.deepEqual(
      [...new Set(sent)].filter((each) => !/attest|kds|vcek|crl|collateral/i.test(each)),
      [],
    );
    assert.equal(simulator.recorder.containing(PROMPT).length, 0);
  });

  it('uses the pinned manifest as it was given, even if the caller changes the bytes afterwards', async () => {
    const bytes = Uint8Array.from(simulator.manifest);
    const client = open({ manifest: bytes });
    bytes.fill(0);
    assert.equal((await client.verify()).manifestSha256, simulator.manifestSha256);
  });

  for (const [fault, value, outcome, code] of [
    ['evidence-signature', true, 'rejected', 'attestation_failed'],
    ['secret-foreign-ca', true, 'rejected', 'attestation_failed'],
    ['attest-status', 500, 'unavailable', 'control_api_failed'],
    ['collateral-status', 503, 'unavailable', 'collateral_unavailable'],
  ] as const) {
    it(`rejects with the outcome ${outcome} under the fault ${fault}, and onVerdict gets no other`, async () => {
      simulator.faults.parse(fault, value);
      if (fault === 'collateral-status') simulator.faults.parse('evidence-no-vcek', true);
      const verdicts: ClientVerdict[] = [];
      const client = open({ onVerdict: (each) => verdicts.push(each) });
      const { verdict, code: found } = await refusal(client);
      assert.deepEqual([verdict.outcome, found, client.protection], [outcome, code, undefined]);
      if (fault === 'attest-status') return assert.deepEqual(verdicts, [], 'nothing was judged');
      assert.deepEqual([...new Set(verdicts.map((each) => each.outcome))], [outcome]);
      assert.deepEqual(verdicts.at(-1)?.failure, verdict.failure);
    });
  }

  it('rejects after a denied secret could not be replaced; client.protection is unset until the service is accepted', async () => {
    const verdicts: string[] = [];
    let onEpoch: PrivatemodeAIOptions['onEpoch'];
    const client = open({
      onVerdict: ({ outcome }) => verdicts.push(outcome),
      onEpoch: (protection) => onEpoch?.(protection),
    });
    await client.verify();
    simulator.faults.set('evidence-signature', true);
    simulator.secrets.dropAll(); // the next request forces a renewal
    await assert.rejects(client.chat.completions.create(ask));
    assert.equal(client.protection, undefined);
    const { verdict, code } = await refusal(client);
    assert.deepEqual([verdict.outcome, code], ['rejected', 'attestation_failed']);
    assert.ok(verdicts.includes('rejected'));
    await refusal(client);
    sent = [];
    await assert.rejects(client.chat.completions.create(ask), { status: 400, code });
    assert.ok(!sent.includes('POST /v1/chat/completions'), sent.join());
    const protectedAgain = new Promise((resolve) => (onEpoch = resolve));
    simulator.faults.clear();
    await eventually('acceptance', () => client.verify().catch(() => undefined));
    assert.deepEqual(await protectedAgain, client.protection);
    assert.equal((await client.verify()).outcome, 'accepted');
    const { choices } = await client.chat.completions.create(ask);
    assert.equal(choices[0]?.message.content?.trim(), PROMPT);
  });

  it('keeps rejecting a service that was rejected and then answers with errors', async () => {
    const client = open();
    simulator.faults.set('evidence-signature', true);
    await refusal(client);
    simulator.faults.clear();
    simulator.faults.set('attest-status', 500);
    const { verdict, code, message } = await refusal(client);
    assert.equal(verdict.outcome, 'rejected');
    assert.equal(verdict.failure?.id, 'snp.report.signature');
    assert.equal(code, 'attestation_failed');
    assert.match(message, /^snp\.report\.signature: expected /);
  });

  it('rejects after the replacement of a denied secret took longer than verificationTimeout, while it still runs', async () => {
    const verificationTimeout = 1_000;
    const client = open({ verificationTimeout });
    await eventually('the first verification', () => client.verify().catch(() => false));
    simulator.faults.set('attest-hang', true);
    simulator.secrets.dropAll();
    await assert.rejects(client.chat.completions.create(ask), {
      status: 503,
      code: 'not_ready',
      message: /was not verified within 1 s/,
    });
    assert.equal(client.protection, undefined);
    const { verdict, code, message } = await refusal(client);
    assert.deepEqual([verdict.outcome, code], ['unavailable', 'not_ready']);
    assert.match(message, /the service denied the secret, and is still being verified again$/);
  });

  it('rejects with an unavailable verdict if the service cannot be reached, and after close()', async () => {
    const client = open({ apiEndpoint: 'https://localhost:1' });
    const { verdict, code, remedy } = await refusal(client);
    assert.deepEqual([verdict.outcome, code], ['unavailable', 'upstream_unreachable']);
    assert.equal(remedy, 'Check the network and the options apiEndpoint, cdnBaseUrl and collateralUrls.');
    const accepted = open();
    await accepted.verify();
    accepted.close();
    const closed = await refusal(accepted);
    assert.deepEqual([closed.verdict.outcome, closed.message], ['unavailable', 'the client was closed']);
  });
});
