/** `verify()` resolves only where the newest judgement accepts the service; a wrong pin sends nothing. */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, beforeEach, describe, it } from 'node:test';
import { PRODUCTION_ROOTS } from '../../lib/attestation/roots/production.ts';
import { createPrivatemodeFetch } from '../../lib/client/fetch.ts';
import {
  type ClientVerdict,
  PrivatemodeAI,
  type PrivatemodeAIOptions,
  PrivatemodeError,
  VerificationError,
} from '../../lib/client/index.ts';
import { toApplication } from '../../lib/client/remedies.ts';
import type { FaultName } from '../../simulator/faults.ts';
import type { Simulator } from '../../simulator/simulator.ts';
import { clientOptions } from '../support/doors/library-door.ts';
import { ROOT } from '../support/processes/tools.ts';
import { startTestSimulator } from '../support/remote/simulator.ts';

const KEY = 'pm-key-of-the-verify-tests';
const PROMPT = 'prompt-that-must-not-leave-8c2e';
const ask = { model: 'sim-echo', messages: [{ role: 'user' as const, content: PROMPT }] };
const OTHER_ROOTS = { snp: { Genoa: PRODUCTION_ROOTS.snp.Genoa! }, tdx: undefined };
const sha256 = (text: string): string => createHash('sha256').update(text).digest('hex');

describe('verify() of the client library', { timeout: 120_000 }, () => {
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

  /** Options of a client of this deployment. */
  function deployment(): PrivatemodeAIOptions {
    const { network: _, fetch: below, ...options } = base;
    return {
      ...options,
      apiKey: KEY,
      fetch: (async (input, init) => {
        sent.push(`${init?.method ?? 'GET'} ${new URL(String(input)).pathname}`);
        return below?.(input, init);
      }) as typeof fetch,
    };
  }

  function open(options: PrivatemodeAIOptions = {}): PrivatemodeAI {
    const client = new PrivatemodeAI({
      ...deployment(),
      maxRetries: 0,
      ...options,
    });
    opened.push(client);
    return client;
  }

  /** What verify() rejects with. */
  async function refusal(client: { verify(): Promise<unknown> }): Promise<VerificationError> {
    const thrown = await client.verify().then(
      () => assert.fail('verify() resolved'),
      (error: unknown) => error,
    );
    assert.ok(thrown instanceof VerificationError && thrown instanceof PrivatemodeError, String(thrown));
    assert.equal(thrown.verdict.failure?.code, thrown.code);
    return thrown;
  }

  it('resolves with the verdict and the manifest, parsed and as published', async () => {
    const text = Buffer.from(simulator.manifest).toString('utf8');
    const cdnBaseUrl = 'https://localhost:1'; // nothing is there: a pin needs no published manifest
    for (const options of [
      {},
      { manifest: text, cdnBaseUrl },
      { manifest: simulator.manifest, cdnBaseUrl },
    ]) {
      const verdict = await open(options).verify();
      assert.deepEqual([verdict.outcome, verdict.roots], ['accepted', 'custom']);
      assert.equal(verdict.failure, null);
      assert.ok(verdict.checks.length > 20);
      assert.equal(verdict.manifestText, text);
      assert.equal(sha256(verdict.manifestText), verdict.manifestSha256);
      assert.deepEqual(verdict.manifest, JSON.parse(text));
    }
  });

  it('has the moment by which dates were judged in each of its verdicts, however much later it is asked', async () => {
    const verdicts: ClientVerdict[] = [];
    const client = open({ onVerdict: (verdict) => verdicts.push(verdict) });
    const { at } = await client.verify();
    assert.deepEqual([verdicts.map((verdict) => verdict.at), (await client.verify()).at], [[at], at]);
  });

  it('resolves where a manifest is pinned, and does not fetch the published one', async () => {
    const client = open({ manifest: simulator.manifest });
    const { manifest } = await client.verify();
    assert.ok(manifest['Policies']);
    const { choices } = await client.chat.completions.create(ask);
    assert.equal(choices[0]?.message.content?.trim(), PROMPT);
    assert.ok(sent.includes('POST /v1/chat/completions'));
    assert.ok(!sent.some((request) => request.endsWith('manifest.json')), 'a pin is not fetched');
  });

  it('rejects where another manifest is pinned, and no prompt is sent', async () => {
    const wrong = Buffer.from(`${Buffer.from(simulator.manifest).toString('utf8')}\n`);
    const verdicts: ClientVerdict[] = [];
    const client = open({ manifest: wrong, onVerdict: (verdict) => verdicts.push(verdict) });
    const { code, message, verdict } = await refusal(client);
    assert.equal(code, 'manifest_mismatch');
    assert.match(message, /^manifest\.expected: expected SHA-256 \w+; found SHA-256 \w+ \(/);
    assert.equal(verdict.outcome, 'rejected');
    assert.equal(verdict.manifestSha256, createHash('sha256').update(wrong).digest('hex'));
    assert.ok(verdict.checks.some(({ outcome }) => outcome === 'fail'));
    assert.deepEqual(verdicts.map(({ outcome }) => outcome).slice(0, 1), ['rejected']);
    await assert.rejects(client.chat.completions.create(ask), { status: 400, code: 'manifest_mismatch' });
    assert.deepEqual(
      [...new Set(sent)].filter((each) => !/attest|kds|vcek|crl|collateral/i.test(each)),
      [],
    );
    assert.equal(simulator.recorder.containing(PROMPT).length, 0);
  });

  for (const [what, tee, unsafeTrustRoots, remedy] of [
    [
      'none',
      'snp',
      undefined,
      /^If the service is a simulator, set the option unsafeTrustRoots .* Else: Do not/,
    ],
    [
      'those of another one',
      'snp',
      OTHER_ROOTS,
      /^If the service is a simulator, set the option unsafeTrustRoots/,
    ],
    [
      'those of Intel alone',
      'snp',
      'tdx',
      /^Genoa is missing in the option unsafeTrustRoots: add its roots\.$/,
    ],
    ['those of AMD alone', 'tdx', 'snp', /^tdx is missing in the option unsafeTrustRoots: add its roots\.$/],
  ] as const) {
    it(`says which roots of a ${tee} simulator are missing where the option has ${what}`, async () => {
      const other = tee === 'tdx' ? await startTestSimulator({ apiKey: KEY, tee }) : simulator;
      const { ark, ask: askRoot, intel } = other.roots;
      const snp = unsafeTrustRoots === 'snp' ? { Genoa: { ark, ask: askRoot } } : {};
      const tdx = unsafeTrustRoots === 'tdx' ? { root: intel } : undefined;
      const { network, ...options } = clientOptions(other);
      const client = open({
        ...options,
        apiKey: KEY,
        manifest: other.manifest,
        unsafeTrustRoots: typeof unsafeTrustRoots === 'string' ? { snp, tdx } : unsafeTrustRoots,
      });
      try {
        assert.match((await refusal(client)).remedy, remedy);
        if (unsafeTrustRoots !== 'tdx') return;
        const { source } = remedy;
        const said = new RegExp(source.replace('^', '\\. ').replace('$', ' '));
        await assert.rejects(client.chat.completions.create(ask), { status: 400, message: said });
      } finally {
        client.close();
        await network.destroy();
        if (other !== simulator) await other.close();
      }
    });
  }

  it('says not to trust a service that is refused, whatever the names in its certificates look like', () => {
    const message =
      'snp.vcek.names: expected x; found CN=snp.roots: expected ; found no trust root for Genoa is (';
    const error = new PrivatemodeError('attestation_failed', message);
    assert.match(toApplication(error, new URL('https://api.privatemode.ai')).remedy, /^Do not trust/);
  });

  it('goes by the pinned manifest that it was given, even where its bytes change afterwards', async () => {
    const bytes = Uint8Array.from(simulator.manifest);
    const client = open({ manifest: bytes });
    bytes.fill(0);
    assert.equal((await client.verify()).manifestSha256, simulator.manifestSha256);
  });

  for (const [fault, outcome, code] of [
    ['evidence-signature', 'rejected', 'attestation_failed'],
    ['evidence-debug', 'rejected', 'attestation_failed'],
    ['secret-foreign-ca', 'rejected', 'secret_exchange_failed'],
    ['secret-status', 'unavailable', 'control_api_failed'],
    ['attest-status', 'unavailable', 'control_api_failed'],
  ] as const) {
    it(`rejects with the outcome ${outcome} at the fault ${fault}`, async () => {
      simulator.faults.parse(fault, fault.endsWith('status') ? 500 : true);
      for (const client of [
        open(),
        createPrivatemodeFetch({ ...fetchOptions(), apiEndpoint: simulator.url }),
      ]) {
        opened.push(client);
        const thrown = await refusal(client);
        assert.deepEqual([thrown.verdict.outcome, thrown.code], [outcome, code]);
        assert.equal(client instanceof PrivatemodeAI ? client.protection : client.protection(), undefined);
      }
    });
  }

  it('cites in its error a page that the package has, and so does the error of a request', async () => {
    simulator.faults.set('evidence-signature', true);
    const client = open();
    const { message } = await refusal(client);
    const asked = await client.chat.completions.create(ask).catch((thrown: Error) => thrown.message);
    const pages = readFileSync(join(ROOT, 'scripts/build-client.ts'), 'utf8');
    for (const told of [message, String(asked)]) {
      const [, page] = /snp\.report\.signature: .* \((\S+\.md) 7[^)]*\)/.exec(told) ?? [];
      assert.ok(pages.includes(`['${page}', '${page}']`), told);
    }
  });

  function fetchOptions() {
    const { fetch: below, ...options } = deployment();
    return { ...options, fetch: below } as Parameters<typeof createPrivatemodeFetch>[0];
  }

  it('rejects where a denied secret cannot be replaced, and nothing protects requests until the service is accepted again', async () => {
    const verdicts: string[] = [];
    const client = open({ onVerdict: ({ outcome }) => verdicts.push(outcome) });
    await client.verify();
    simulator.faults.set('evidence-signature' satisfies FaultName, true);
    simulator.secrets.dropAll(); // the next request forces a renewal
    await assert.rejects(client.chat.completions.create(ask));
    assert.equal(client.protection, undefined);
    const { verdict, code } = await refusal(client);
    assert.deepEqual([verdict.outcome, code], ['rejected', 'attestation_failed']);
    assert.ok(verdicts.includes('rejected'));
    await refusal(client);
  });

  it('keeps rejecting a service that was rejected and then fails to answer', async () => {
    const client = open({ verificationTimeout: 5_000 });
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

  it('rejects where the service denies the secret and says nothing when it is asked to prove itself', async () => {
    const client = open(deployment());
    await client.verify();
    simulator.secrets.dropAll();
    simulator.faults.set('attest-status', 503);
    await assert.rejects(client.chat.completions.create(ask, { maxRetries: 0 }), {
      status: 503,
      code: 'not_ready',
    });
    assert.equal(client.protection, undefined);
    await assert.rejects(client.verify(), VerificationError);
  });

  it('rejects with a verdict where nothing could be judged, and after close()', async () => {
    // Longer than the three rounds of a renewal, after which the session knows a cause.
    const client = open({ apiEndpoint: 'https://localhost:1', verificationTimeout: 6_000 });
    const { verdict, code, message, remedy } = await refusal(client);
    assert.deepEqual(
      [verdict.outcome, verdict.manifestSha256, code],
      ['unavailable', null, 'upstream_unreachable'],
    );
    assert.match(message, /localhost:1 cannot be reached$/);
    assert.equal(remedy, 'Check the network and the options apiEndpoint, cdnBaseUrl and collateralUrls.');
    client.close();
    assert.equal((await refusal(client)).code, 'shutting_down');

    const accepted = open();
    await accepted.verify();
    accepted.close();
    const closed = await refusal(accepted);
    assert.deepEqual([closed.verdict.outcome, closed.message], ['unavailable', 'the client was closed']);
  });
});
