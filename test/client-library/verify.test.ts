/** `verify()` resolves only where the newest judgement accepts the service; a wrong pin sends nothing. */
import assert from 'node:assert/strict';
import { hash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, beforeEach, describe, it } from 'node:test';
import { PRODUCTION_ROOTS } from '../../lib/attestation/roots/production.ts';
import {
  type ClientVerdict,
  PrivatemodeAI,
  type PrivatemodeAIOptions,
  PrivatemodeError,
  VerificationError,
} from '../../lib/client-library/index.ts';
import { toApplication } from '../../lib/client-library/remedies.ts';
import type { FaultName } from '../../simulator/faults.ts';
import type { Simulator } from '../../simulator/simulator.ts';
import { clientOptions, fetchWith } from '../support/doors/library-door.ts';
import { eventually } from '../support/processes/eventually.ts';
import { ROOT } from '../support/processes/tools.ts';
import { startTestSimulator } from '../support/remote/simulator.ts';

const KEY = 'pm-key-of-the-verify-tests';
const PROMPT = 'prompt-that-must-not-leave-8c2e';
const ask = { model: 'sim-echo', messages: [{ role: 'user' as const, content: PROMPT }] };
const OTHER_ROOTS = { snp: { Genoa: PRODUCTION_ROOTS.snp.Genoa! }, tdx: undefined };

const REAL_SERVICE = {
  apiEndpoint: new URL('https://api.privatemode.ai'),
  manifest: undefined,
  unsafeTrustRoots: undefined,
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

  /** Options of a client of this deployment. */
  function deployment(): PrivatemodeAIOptions {
    const { network: _, fetch: below, ...options } = base;
    return {
      ...options,
      apiKey: KEY,
      async fetch(url, init) {
        sent.push(`${init?.method ?? 'GET'} ${new URL(url).pathname}`);
        return below?.(url, init) ?? assert.fail('no network');
      },
    };
  }

  function open(options: PrivatemodeAIOptions = {}): PrivatemodeAI {
    const client = new PrivatemodeAI({ maxRetries: 0, fetch: fetchWith({ ...deployment(), ...options }) });
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
      assert.equal(hash('sha256', verdict.manifestText), verdict.manifestSha256);
      assert.deepEqual(verdict.manifest, JSON.parse(text));
    }
  });

  it('names in each verdict the time at which certificates were checked, and the same time when called again', async () => {
    const verdicts: ClientVerdict[] = [];
    const client = open({ onVerdict: (verdict) => verdicts.push(verdict) });
    const { at } = await client.verify();
    assert.deepEqual([verdicts.map((verdict) => verdict.at), (await client.verify()).at], [[at], at]);
  });

  it('resolves if the manifest of the service is pinned, and does not fetch the published one', async () => {
    const client = open({ manifest: simulator.manifest });
    const { manifest } = await client.verify();
    assert.ok(manifest['Policies']);
    const { choices } = await client.chat.completions.create(ask);
    assert.equal(choices[0]?.message.content?.trim(), PROMPT);
    assert.ok(sent.includes('POST /v1/chat/completions'));
    assert.ok(!sent.some((request) => request.endsWith('manifest.json')), 'a pin is not fetched');
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

  for (const [what, tee, unsafeTrustRoots, remedy] of [
    [
      'no roots',
      'snp',
      undefined,
      /^If the service is a simulator, set the option unsafeTrustRoots .* Else: Do not/,
    ],
    [
      'roots of another simulator',
      'snp',
      OTHER_ROOTS,
      /^The roots in the option unsafeTrustRoots may be those of another simulator: take those in the directory/,
    ],
    [
      'roots of Intel alone',
      'snp',
      'tdx',
      /^Genoa is missing in the option unsafeTrustRoots: add its roots\.$/,
    ],
    ['roots of AMD alone', 'tdx', 'snp', /^tdx is missing in the option unsafeTrustRoots: add its roots\.$/],
  ] as const) {
    it(`says which roots a ${tee} simulator needs if unsafeTrustRoots has ${what}`, async () => {
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

  for (const [given, manifest, remedy] of [
    [
      'how to review a manifest that differs from the pinned one',
      new Uint8Array(1),
      /^Nothing was sent\. Review the manifest .* manifestText; then set the option manifest to it/,
    ],
    [
      'to try again if the manifest does not match and none is pinned',
      undefined,
      /^Try again in a moment: a deployment is being replaced\. (?!.*option manifest)/,
    ],
  ] as const) {
    it(`says ${given}, and does not mention simulators`, () => {
      const error = new PrivatemodeError('manifest_mismatch', 'another manifest');
      const told = toApplication(error, { ...REAL_SERVICE, manifest }).remedy;
      assert.match(told, remedy);
      assert.doesNotMatch(told, /simulator|Else/);
    });
  }

  it('says not to trust a rejected service even if a name in its certificate imitates another failure', () => {
    const message =
      'snp.vcek.names: expected x; found CN=snp.roots: expected ; found no trust root for Genoa is (';
    const error = new PrivatemodeError('attestation_failed', message);
    assert.match(toApplication(error, REAL_SERVICE).remedy, /^Do not trust/);
  });

  it('uses the pinned manifest as it was given, even if the caller changes the bytes afterwards', async () => {
    const bytes = Uint8Array.from(simulator.manifest);
    const client = open({ manifest: bytes });
    bytes.fill(0);
    assert.equal((await client.verify()).manifestSha256, simulator.manifestSha256);
  });

  for (const [fault, outcome, code] of [
    ['evidence-signature', 'rejected', 'attestation_failed'],
    ['evidence-debug', 'rejected', 'attestation_failed'],
    ['secret-foreign-ca', 'rejected', 'attestation_failed'],
    ['secret-status', 'unavailable', 'control_api_failed'],
    ['attest-status', 'unavailable', 'control_api_failed'],
  ] as const) {
    it(`rejects with the outcome ${outcome} under the fault ${fault}`, async () => {
      simulator.faults.parse(fault, fault.endsWith('status') ? 500 : true);
      for (const client of [open(), fetchWith({ ...deployment(), apiEndpoint: simulator.url })]) {
        opened.push(client);
        const thrown = await refusal(client);
        assert.deepEqual([thrown.verdict.outcome, thrown.code], [outcome, code]);
        assert.equal(client instanceof PrivatemodeAI ? client.protection : client.protection(), undefined);
      }
    });
  }

  for (const fault of ['secret-workload', 'secret-signature'] as const) {
    it(`calls onVerdict with the rejection alone under the fault ${fault}`, async () => {
      simulator.faults.set(fault, true);
      const verdicts: ClientVerdict[] = [];
      const { verdict } = await refusal(open({ onVerdict: (each) => verdicts.push(each) }));
      assert.equal(verdict.outcome, 'rejected');
      const told = verdicts.map(({ outcome, failure }) => `${outcome} ${failure?.id}`);
      assert.deepEqual([...new Set(told)], [`rejected ${verdict.failure?.id}`]);
      const verifications = sent.filter((request) => request === 'POST /privatemode/v1/secret').length;
      assert.equal(verdicts.length, verifications, 'one verdict for each verification');
      assert.deepEqual(verdicts.at(-1)?.checks, verdict.checks);
    });
  }

  it('calls onVerdict once for an accepted verification, with the checks of the secret exchange', async () => {
    const verdicts: ClientVerdict[] = [];
    const { checks } = await open({ onVerdict: (each) => verdicts.push(each) }).verify();
    const ids = checks.map(({ id }) => id);
    assert.ok(ids.includes('secret.signature'));
    assert.deepEqual(
      verdicts.map((each) => each.checks.map(({ id }) => id)),
      [ids],
    );
  });

  it('rejects with an unavailable verdict, which onVerdict gets too, if a certificate of AMD cannot be fetched', async () => {
    simulator.faults.parse('evidence-no-vcek', true);
    simulator.faults.parse('collateral-status', 503);
    const outcomes: string[] = [];
    const thrown = await refusal(open({ onVerdict: ({ outcome }) => outcomes.push(outcome) }));
    assert.deepEqual([thrown.verdict.outcome, thrown.code], ['unavailable', 'collateral_unavailable']);
    assert.deepEqual([...new Set(outcomes)], ['unavailable']);
  });

  it('rejects with an error that cites a page of the package, as does a failed request', async () => {
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

  it('rejects after a denied secret could not be replaced; client.protection is unset until the service is accepted', {
    timeout: 600_000,
  }, async () => {
    const verdicts: string[] = [];
    let onEpoch: PrivatemodeAIOptions['onEpoch'];
    const client = open({
      onVerdict: ({ outcome }) => verdicts.push(outcome),
      onEpoch: (protection) => onEpoch?.(protection),
    });
    await client.verify();
    simulator.faults.set('evidence-signature' satisfies FaultName, true);
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

  it('rejects if the service denies the secret and answers the request for new evidence with 503', async () => {
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
