/** The remote that cannot be verified, or has become another one. */

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { TIMES } from '../../../lib/times.ts';
import { eventually } from '../../support/processes/eventually.ts';
import { type Scenario, type Scene, scene } from '../scenario.ts';

/** Keeps secrets for five seconds, uses them for four. */
const BRIEF = {
  simulator: { secretLifetime: 5_000 },
  times: { secretRenew: 1_500, secretJitter: 0, secretUsable: 4_000 },
};

const readiness = async ({ stack }: Scene): Promise<{ status: number; words: string }> => {
  const response = await fetch(`${stack.url}/readyz`, { headers: { connection: 'close' } });
  return { status: response.status, words: await response.text() };
};

const ready = (s: Scene): Promise<unknown> => eventually('an epoch', () => s.stack.proxy.session.current());

const enforced = ({ stack }: Scene): string[] =>
  readFileSync(join(stack.directory, 'workspace/manifests/log.txt'), 'utf8').trim().split('\n');

/** The names of the faults of evidence, and the code that a request gets for each. */
const REJECTED = [
  ['evidence-debug', 'attestation_failed'],
  ['evidence-stale-nonce', 'attestation_failed'],
  ['evidence-low-tcb', 'attestation_failed'],
] as const;

const secretId = ({ stack }: Scene): string => stack.proxy.session.current()?.secretId ?? '';

/** A request that is asked while the remote cannot be verified waits, and is answered when it can. */
const waits =
  (fault: string, value: unknown): Scenario['run'] =>
  async (t) => {
    const s = await scene(t, { managedManifest: true, simulator: { faults: { [fault]: value } } });
    const { status, words } = await readiness(s);
    assert.equal(status, 503, words);
    const waiting = s.ask();
    await delay(300);
    assert.equal(s.stack.simulator.counts['inference'], 0, 'a request left before the remote was verified');
    s.stack.simulator.faults.clear();
    const response = await waiting;
    assert.equal(response.status, 200, response.body);
    assert.ok(response.terminal);
    assert.equal((await readiness(s)).status, 204);
    await s.finish({ upstream: 1 });
  };

export const TRUST_SCENARIOS: readonly Scenario[] = [
  {
    name: 'CDN down at start: answers 503',
    outcome: '`/readyz` is 503; requests wait, nothing is sent; they are answered once the CDN is back',
    run: waits('manifest-status', 503),
  },
  {
    name: 'CDN down at start: answers 200 with an error page',
    outcome: '`/readyz` is 503; requests wait, nothing is sent; they are answered once the CDN is back',
    run: waits('manifest-page', true),
  },
  {
    name: 'CDN down at start: resets connections',
    outcome: '`/readyz` is 503; requests wait, nothing is sent; the proxy tries again by itself',
    run: waits('manifest-reset', 2),
  },
  {
    name: 'evidence of a machine in debug mode at start',
    outcome: '`/readyz` is 503; requests wait, nothing is sent; they are answered once the evidence is good',
    run: waits('evidence-debug', true),
  },
  {
    name: 'evidence that is rejected, for good',
    outcome:
      'after two rejections, six seconds apart, all requests, also waiting ones, get 400 with the code of the check and `x-should-retry: false`, even during an outage of the service; `/readyz` is 503; nothing is sent',
    async run(t) {
      for (const [fault, code] of REJECTED) {
        const s = await scene(t, { managedManifest: true, simulator: { faults: { [fault]: true } } });
        const [waited, later] = [await s.ask(), await s.ask()];
        s.stack.simulator.faults.set('attest-status', 503);
        await delay(1_000);
        const silent = await s.ask();
        for (const { status, error, headers } of [waited, later, silent]) {
          assert.deepEqual([status, error?.code, headers['x-should-retry']], [400, code, 'false'], fault);
          assert.equal(headers['retry-after'], undefined);
        }
        const { status, words } = await readiness(s);
        assert.equal(status, 503);
        assert.match(words, new RegExp(`rejected: ${code}`));
        await s.finish({ upstream: 0, shown: [waited.body, later.body, silent.body] });
      }
    },
  },
  {
    name: 'evidence that is bad for a moment',
    outcome: 'requests wait, nothing is sent; they are answered once the evidence is good',
    async run(t) {
      const s = await scene(t, {
        managedManifest: true,
        simulator: { faults: { 'evidence-debug': true } },
        times: { confirmAfter: TIMES.confirmAfter },
      });
      const waiting = s.ask();
      await delay(500);
      assert.equal(s.stack.simulator.counts['inference'], 0, 'a request left before the remote was verified');
      s.stack.simulator.faults.clear();
      assert.equal((await waiting).status, 200);
      await s.finish({ upstream: 1 });
    },
  },
  {
    name: 'the service runs under a manifest that the CDN does not have yet',
    outcome:
      'it may be a rollout: requests wait, then get 503 `not_ready` with `Retry-After`; nothing is sent',
    async run(t) {
      const s = await scene(t, {
        ...BRIEF,
        managedManifest: true,
        times: { ...BRIEF.times, epochWait: 8_000 },
      });
      await ready(s);
      s.stack.simulator.faults.set('manifest-stale', true);
      await s.stack.simulator.rotateManifest();
      await eventually('the end of the epoch', () => secretId(s) === '');
      const response = await s.ask();
      assert.deepEqual([response.status, response.error?.code], [503, 'not_ready']);
      assert.ok(Number(response.headers['retry-after']) > 0);
      assert.equal(response.headers['x-should-retry'], undefined);
      assert.match(response.body, /localhost was not verified within 8 s: .*the published manifest differ/);
      await s.finish({ upstream: 0, shown: [response.body] });
    },
  },
  {
    name: 'CDN down at start, for good',
    outcome: 'a request gets 503 `not_ready` with `Retry-After` after 30 s; nothing is sent',
    async run(t) {
      const faults = { 'manifest-status': 503 };
      const s = await scene(t, { managedManifest: true, simulator: { faults }, times: { epochWait: 5_000 } });
      const response = await s.ask();
      assert.equal(response.status, 503);
      assert.equal(response.error?.code, 'not_ready');
      assert.ok(Number(response.headers['retry-after']) > 0);
      assert.match((await readiness(s)).words, /manifest/);
      await s.finish({ upstream: 0, shown: [response.body] });
    },
  },
  {
    name: 'CDN down later',
    outcome: 'no effect: renewals continue with the enforced manifest',
    async run(t) {
      const s = await scene(t, { ...BRIEF, managedManifest: true });
      assert.equal((await s.ask()).status, 200);
      const first = secretId(s);
      s.stack.simulator.faults.set('manifest-status', 503);
      await eventually('a renewal', () => secretId(s) !== first);
      const response = await s.ask();
      assert.equal(response.headers['privatemode-proxy-secret-id'], secretId(s));
      assert.ok(response.terminal);
      assert.equal(enforced(s).length, 1);
      await s.finish({ upstream: 2 });
    },
  },
  {
    name: 'CDN down later, and the deployment was replaced meanwhile',
    outcome:
      'the current epoch is used to its end, then `/readyz` is 503 and nothing is sent; it recovers with the CDN',
    async run(t) {
      const s = await scene(t, { ...BRIEF, managedManifest: true });
      await ready(s);
      await s.stack.simulator.rotateManifest();
      s.stack.simulator.faults.set('manifest-status', 503);
      assert.equal((await s.ask()).status, 200, 'the epoch is still good');
      await eventually('the end of the epoch', () => secretId(s) === '');
      const { status, words } = await readiness(s);
      assert.equal(status, 503);
      assert.match(words, /^[^:]+: manifest_mismatch: .*: the manifest cannot be fetched: .* status 503$/m);
      const waiting = s.ask();
      await delay(300);
      assert.equal(s.stack.simulator.counts['inference'], 1, 'a request left without an epoch');
      s.stack.simulator.faults.clear();
      const response = await waiting;
      assert.equal(response.headers['privatemode-proxy-manifest-sha256'], s.stack.simulator.manifestSha256);
      assert.equal(enforced(s).length, 2);
      await s.finish({ upstream: 2 });
    },
  },
  {
    name: 'manifest rotation in flight',
    outcome:
      'the running stream goes on under the old manifest until the service forgets its secret: then it gets an error event `stream_unfinished` and a broken connection; the next request uses the new manifest, and says so; `/readyz` stays 204',
    async run(t) {
      const s = await scene(t, { managedManifest: true });
      await ready(s);
      const old = s.stack.simulator.manifestSha256;
      const running = s.ask({ model: 'sim-2000x30' });
      const { exchanges } = s.stack.simulator;
      const written = (): number => exchanges.all()[0]?.written ?? 0;
      await eventually('the stream', () => written() > 0);
      await s.stack.simulator.rotateManifest();
      const before = written();
      await eventually('more of the stream', () => written() > before + 3);
      s.stack.simulator.secrets.dropAll();
      const response = await running;
      assert.deepEqual(
        [response.status, response.ended, response.error?.code],
        [200, 'broken', 'stream_unfinished'],
      );
      assert.equal(response.headers['privatemode-proxy-manifest-sha256'], old);
      assert.match(response.text, /^t0 t1 t2/);
      assert.equal((await readiness(s)).status, 204);
      const next = await s.ask();
      assert.equal(next.headers['privatemode-proxy-manifest-sha256'], s.stack.simulator.manifestSha256);
      assert.ok(next.terminal);
      assert.notEqual(s.stack.simulator.manifestSha256, old);
      assert.equal(s.stack.proxy.session.standing().state, 'verified');
      assert.equal(enforced(s).length, 2);
      await s.finish({ upstream: 3, shown: [response.body] });
    },
  },
  {
    name: 'epoch change in flight',
    outcome:
      'forty streams across two renewals all end normally, each under the secret that its receipt names',
    async run(t) {
      // Each secret lives far longer than a stream, also on a slow machine.
      const s = await scene(t, {
        simulator: { secretLifetime: 120_000 },
        times: { secretRenew: 1_500, secretJitter: 0, secretUsable: 100_000 },
      });
      await ready(s);
      const response = await Promise.all(
        Array.from({ length: 40 }, async (_, i) => {
          await delay(i * 70);
          return s.ask({ model: 'sim-40x30' });
        }),
      );
      assert.deepEqual(
        new Set(response.map(({ terminal, ended }) => `${terminal} ${ended}`)),
        new Set(['true clean']),
      );
      const secrets = new Set(response.map(({ headers }) => headers['privatemode-proxy-secret-id']));
      assert.ok(secrets.size >= 2, `${secrets.size} secrets were used`);
      assert.equal(s.stack.proxy.counters.upstreamRetries.size, 0);
      await s.finish({ upstream: 40 });
    },
  },
  {
    name: 'clock skew: the service is 59 minutes ahead, or behind',
    outcome: 'no effect: its secrets expire by its own clock, and certificates allow for more',
    async run(t) {
      const s = await scene(t);
      for (const minutes of [59, -59]) {
        s.stack.simulator.setClockSkew(minutes * 60_000);
        assert.ok((await s.ask()).terminal);
        const { session } = s.stack.proxy;
        if (minutes > 0) await session.renewAfterDenial(secretId(s));
        assert.ok((await s.ask()).terminal);
      }
      await s.finish({ upstream: 4 });
    },
  },
  {
    name: 'clock skew: the clock of the service jumps ahead, beyond the life of the secret',
    outcome: 'the service no longer knows the secret: one renewal, one retry, and the whole answer',
    async run(t) {
      const s = await scene(t, { simulator: { secretLifetime: 600_000 } });
      await ready(s);
      s.stack.simulator.setClockSkew(900_000);
      const response = await s.ask();
      assert.ok(response.terminal, response.body);
      assert.equal(s.stack.proxy.counters.upstreamRetries.get('no_secret'), 1);
      await s.finish({ upstream: 2 });
    },
  },
  {
    name: 'somebody on the way denies the secret once, and answers with the evidence of another machine',
    outcome:
      'nothing says "verified" while he is there, and nothing is left of him: the proxy goes on, and the next request after the service is back gets the whole answer',
    async run(t) {
      const s = await scene(t);
      await ready(s);
      const { simulator, proxy } = s.stack;
      simulator.faults.set('evidence-debug', true);
      const denied = s.ask({ model: 'sim-echo+fault-once=no_secret' });
      await eventually('the suspension', () => proxy.session.current() === undefined);
      assert.equal((await readiness(s)).status, 503);
      simulator.faults.clear();
      assert.ok((await denied).terminal, 'the request that he denied is answered once he has gone');
      assert.ok((await s.ask()).terminal);
      assert.equal((await readiness(s)).status, 204);
      await s.finish({ upstream: 3 });
    },
  },
  {
    name: 'somebody on the way denies the secret, and answers with the evidence of another machine twice, six seconds apart',
    outcome:
      '400 `attestation_failed` while he is there, `/readyz` is 503, and the proxy does not end; six seconds after he has gone each request gets the whole answer',
    async run(t) {
      const s = await scene(t);
      await ready(s);
      const { simulator, proxy } = s.stack;
      simulator.faults.set('evidence-signature', true);
      const denied = await s.ask({ model: 'sim-echo+fault-once=no_secret' });
      assert.deepEqual([denied.status, denied.error?.code], [400, 'attestation_failed']);
      assert.equal((await readiness(s)).status, 503);
      assert.equal(proxy.session.standing().state, 'rejected');
      simulator.faults.clear();
      await delay(6_000);
      for (let i = 0; i < 3; i++) assert.ok((await s.ask()).terminal);
      assert.equal((await readiness(s)).status, 204);
      await s.finish({ upstream: 4, shown: [denied.body] });
    },
  },
  {
    name: 'somebody on the way denies the secret, and keeps the proxy from verifying again',
    outcome:
      '503 `not_ready` while he denies; then the secret is tried, since an accepted verdict made it, and the answer that authenticates under it puts it in force again',
    async run(t) {
      const s = await scene(t);
      await ready(s);
      const { simulator, proxy } = s.stack;
      const before = secretId(s);
      simulator.faults.set('attest-status', 503);
      const denied = await s.ask({ model: 'sim-echo+fault-once=no_secret' });
      assert.deepEqual([denied.status, denied.error?.code], [503, 'not_ready']);
      assert.equal((await readiness(s)).status, 503);
      assert.ok((await s.ask()).terminal);
      assert.equal(secretId(s), before);
      assert.equal((await readiness(s)).status, 204);
      assert.notEqual(proxy.session.standing().error, undefined, 'the renewal goes on failing');
      await s.finish({ upstream: 2, shown: [denied.body] });
    },
  },
  {
    name: 'clock skew: the service is a day ahead',
    outcome:
      'its certificates are not valid yet: the proxy accepts no new secret, and after two rejections, six seconds apart, the client gets 400 `attestation_failed`; `/readyz` is 503',
    async run(t) {
      const s = await scene(t);
      await ready(s);
      s.stack.simulator.setClockSkew(26 * 3_600_000);
      const response = await s.ask();
      assert.deepEqual([response.status, response.error?.code], [400, 'attestation_failed']);
      assert.match(s.stack.proxy.session.standing().error?.message ?? '', /mesh\.certificate\.validity/);
      assert.equal((await readiness(s)).status, 503);
      await s.finish({ upstream: 1, shown: [response.body] });
    },
  },
];
