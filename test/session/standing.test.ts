/**
 * The states of the proxy (docs/states.md): which facts make which state, how each is reached, and what a
 * request gets in it.
 */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { describe, it } from 'node:test';
import { type ErrorCode, PrivatemodeError } from '../../lib/errors.ts';
import type { SecretState } from '../../lib/session/lifetimes.ts';
import {
  type LastOutcome,
  type SessionFacts,
  STANDINGS,
  type StateName,
  standingOf,
} from '../../lib/session/standing.ts';
import { settle } from '../support/remote/fake-clock.ts';
import { fails, type SessionScene, sessionScene } from '../support/remote/fake-remote.ts';

const MINUTE = 60_000;
const CLOCK = { now: () => 1_000, monotonic: () => 1_000 };
const TERM = { attestedAt: 0, expiresAt: 2_000, expiresMonotonic: 2_000, suspended: false };
const SECRETS: Readonly<Record<SecretState, SessionFacts['secret']>> = {
  none: undefined,
  good: TERM,
  suspended: { ...TERM, suspended: true },
  expired: { ...TERM, expiresAt: 999 },
};

/**
 * By the last outcome: the state with a good secret, and with every other one; `starting` is `awaiting-key`
 * where a key is awaited.
 */
const MATRIX: readonly (readonly [LastOutcome, confirmed: boolean, good: StateName, other: StateName])[] = [
  ['none', false, 'verified', 'starting'],
  ['ok', false, 'verified', 'starting'],
  ['silent', false, 'not-renewable', 'unreachable'],
  ['rejected', false, 'not-renewable', 'rejected-once'],
  ['rejected', true, 'not-renewable', 'rejected'],
  ['mismatch', false, 'not-renewable', 'rejected-once'],
  ['mismatch', true, 'not-renewable', 'rejected'],
  ['manifest-fault', true, 'not-renewable', 'manifest-not-understood'],
  ['key-refused', false, 'not-renewable', 'key-refused'],
  ['too-old', false, 'not-renewable', 'client-too-old'],
];

describe('the state of the proxy', () => {
  for (const [last, confirmed, good, other] of MATRIX) {
    it(`after the ${confirmed ? 'confirmed ' : ''}outcome ${last} is ${good} while the secret is good, and ${other === 'starting' ? 'starting or awaiting-key' : other} otherwise`, () => {
      for (const secret of ['none', 'good', 'suspended', 'expired'] as const) {
        for (const key of ['configured', 'kept', 'awaited'] as const) {
          const facts = { closed: false, key, secret: SECRETS[secret], last, confirmed, error: undefined };
          const waiting = other === 'starting' && key === 'awaited' ? 'awaiting-key' : other;
          const { state, verified, ready, awaitsKey } = standingOf(facts, CLOCK);
          assert.equal(state, secret === 'good' ? good : waiting, `${secret} ${key}`);
          assert.equal(verified, secret === 'good');
          assert.equal(ready, secret === 'good' || key === 'awaited', 'a probe keeps no first key away');
          assert.equal(awaitsKey, secret !== 'good' && key === 'awaited');
          const ended = standingOf({ ...facts, closed: true }, CLOCK);
          assert.deepEqual([ended.state, ended.ready, ended.verified], ['ended', false, false]);
        }
      }
    });
  }

  it('forgets that a key was refused once the secret that it could not renew ends by either clock', () => {
    const facts = { closed: false, key: 'awaited', last: 'key-refused', confirmed: false } as const;
    const error = new PrivatemodeError('api_key_rejected', 'refused');
    const stateOf = (secret: SessionFacts['secret'], monotonic: number) =>
      standingOf({ ...facts, error, until: 2_000, secret }, { now: () => 1_000, monotonic: () => monotonic });
    assert.deepEqual(
      [stateOf(SECRETS.good, 1_000).state, stateOf(SECRETS.good, 1_000).error],
      ['not-renewable', error],
    );
    // The machine slept: only the wall clock went on.
    assert.deepEqual(
      [stateOf(SECRETS.expired, 1_000).state, stateOf(SECRETS.expired, 1_000).error],
      ['awaiting-key', undefined],
    );
    assert.equal(stateOf(SECRETS.good, 2_000).state, 'awaiting-key');
  });

  it('says that requests are tried exactly where a suspended secret is, and that none leaves only where none does', () => {
    for (const [last, confirmed] of MATRIX) {
      const isTried = ['none', 'ok', 'silent', 'key-refused', 'too-old'].includes(last);
      for (const key of ['configured', 'kept', 'awaited'] as const) {
        const facts = { closed: false, key, secret: SECRETS.suspended, last, confirmed, error: undefined };
        const { meaning } = standingOf(facts, CLOCK);
        assert.equal(/^Requests are tried, encrypted/.test(meaning), isTried, last);
        assert.equal(/No request leaves this machine|Requests wait/.test(meaning), !isTried, last);
        const without = standingOf({ ...facts, secret: undefined }, CLOCK).meaning;
        assert.doesNotMatch(without, /are tried/);
      }
      const facts = { key: 'kept', secret: SECRETS.good, last, confirmed, error: undefined } as const;
      assert.match(
        standingOf({ ...facts, closed: true }, CLOCK).meaning,
        /takes requests until its port closes/,
      );
    }
  });

  it('stands in the table of docs/states.md, with its headline and its gauge', () => {
    const page = readFileSync(new URL('../../docs/states.md', import.meta.url), 'utf8');
    const rows = [...page.matchAll(/^\| `([a-z-]+)` \| ([^|]+) \| (true|false) \| ([01]) \|$/gm)];
    assert.deepEqual(
      rows.map(([, ...row]) => row),
      Object.entries(STANDINGS).map(([state, { title, verified }]) => [
        ...[state, title, String(verified), verified ? '1' : '0'],
      ]),
    );
    const conditions = [...page.matchAll(/^\| `([a-z-]+)` \| [^|]+ \| [^|]+ \| (?:204|503) \| [^|]+ \|$/gm)];
    assert.deepEqual(
      conditions.map(([, state]) => state),
      Object.keys(STANDINGS),
    );
  });
});

/** What a request that comes now is told within a minute: an error code, or `sent`. */
async function told({ session, clock }: SessionScene, offeredKey?: string): Promise<ErrorCode | 'sent'> {
  let answer: ErrorCode | 'sent' | undefined;
  session.acquire({ timeoutMs: 30_000, offeredKey }).then(
    () => {
      answer = 'sent';
    },
    (error: unknown) => {
      answer = error instanceof PrivatemodeError ? error.code : 'internal';
    },
  );
  for (let waited = 0; answer === undefined && waited < MINUTE; waited += 100) await clock.advance(100);
  return answer ?? assert.fail('a request waits for ever');
}

async function deny({ session, clock }: SessionScene): Promise<void> {
  session.renewAfterDenial(session.current()?.secretId ?? assert.fail('no epoch')).catch(() => {});
  await clock.advance(5_000);
}

type Scene = Parameters<typeof sessionScene>[0];
const withVerdict = (code: ErrorCode): Scene => ({ prepare: { verdictCode: code } });
const withoutEvidence = (code: ErrorCode): Scene => ({ prepare: { onAttest: fails(code) } });

/** Each state as events lead to it, and what a request gets. `permanent`: what ends the proxy there. */
const REACHED: readonly (readonly [
  StateName,
  how: string,
  options: Scene,
  lead: (scene: SessionScene) => unknown,
  request: ErrorCode | 'sent',
  permanent?: ErrorCode,
])[] = [
  [
    'ended',
    'the end of the session',
    withoutEvidence('upstream_unreachable'),
    ({ session }) => session.close(),
    'shutting_down',
  ],
  ['verified', 'the first verdict', {}, () => {}, 'sent'],
  [
    'not-renewable',
    'a renewal that hears nothing',
    {},
    async ({ remote, clock }) => {
      remote.onAttest = fails('upstream_unreachable');
      await clock.advance(50 * MINUTE);
    },
    'sent',
  ],
  [
    'manifest-not-understood',
    'a manifest of a later generation',
    withVerdict('manifest_unsupported'),
    () => {},
    'manifest_unsupported',
    'manifest_unsupported',
  ],
  [
    'rejected',
    'two rejections, six seconds apart',
    withVerdict('attestation_failed'),
    ({ clock }) => clock.advance(6_100),
    'attestation_failed',
  ],
  [
    'rejected',
    'two mismatches with a given manifest',
    { kind: 'static', ...withVerdict('manifest_mismatch') },
    ({ clock }) => clock.advance(6_100),
    'manifest_mismatch',
    'manifest_mismatch',
  ],
  ['rejected-once', 'one rejection', withVerdict('attestation_failed'), () => {}, 'attestation_failed'],
  [
    'rejected-once',
    'any number of mismatches with a fetched manifest',
    withVerdict('manifest_mismatch'),
    ({ clock }) => clock.advance(MINUTE),
    'not_ready',
  ],
  [
    'key-refused',
    '401 for the configured key',
    withoutEvidence('api_key_rejected'),
    () => {},
    'api_key_rejected',
    'api_key_rejected',
  ],
  [
    'key-refused',
    '401 for the configured key under a secret that the service denies',
    {},
    async (scene) => {
      scene.remote.onAttest = fails('api_key_rejected');
      await deny(scene);
    },
    'sent',
  ],
  [
    'client-too-old',
    'a service that wants a newer client',
    withoutEvidence('client_too_old'),
    () => {},
    'client_too_old',
  ],
  [
    'unreachable',
    'silence',
    withoutEvidence('upstream_unreachable'),
    ({ clock }) => clock.advance(4_000),
    'not_ready',
  ],
  [
    'unreachable',
    'silence after a denial',
    {},
    async (scene) => {
      scene.remote.onAttest = fails('control_api_failed');
      await deny(scene);
    },
    'sent',
  ],
  ['awaiting-key', 'a start without a key', { apiKey: undefined }, () => {}, 'api_key_missing'],
  [
    'starting',
    'a start',
    { prepare: { onAttest: () => new Promise<void>(() => {}) } },
    () => {},
    'not_ready',
  ],
];

describe('a proxy', () => {
  for (const [state, how, options, lead, request, permanent] of REACHED) {
    it(`is ${state} after ${how}: a request gets ${request}${permanent === undefined ? '' : ', and the proxy ends'}`, async () => {
      const scene = sessionScene(options);
      await settle();
      await lead(scene);
      assert.equal(scene.session.standing().state, state);
      assert.equal(await told(scene), request);
      assert.deepEqual(
        [...new Set(scene.permanent.map(({ code }) => code))],
        permanent === undefined ? [] : [permanent],
      );
      scene.session.close();
      await settle();
    });
  }

  it('has the state rejected while it awaits a key, and is still ready for the next key', async () => {
    const scene = sessionScene({ apiKey: undefined, ...withVerdict('attestation_failed') });
    assert.equal(await told(scene, 'offered'), 'attestation_failed');
    const { state, ready, awaitsKey } = scene.session.standing();
    assert.deepEqual([state, ready, awaitsKey], ['rejected', true, true]);
  });

  it('awaits a key again ten minutes after the key of a client brought no verdict, as nobody tries again', async () => {
    const scene = sessionScene({ apiKey: undefined, ...withoutEvidence('upstream_unreachable') });
    assert.equal(await told(scene, 'offered'), 'upstream_unreachable');
    const { error, state } = scene.session.standing();
    assert.deepEqual([state, error?.code], ['unreachable', 'upstream_unreachable']);
    await scene.clock.advance(9 * MINUTE);
    assert.equal(scene.session.standing().state, 'unreachable');
    await scene.clock.advance(MINUTE);
    assert.deepEqual(
      [scene.session.standing().state, scene.session.standing().error],
      ['awaiting-key', undefined],
    );
  });

  it('is not renewable after the key that it kept was refused, and awaits a key once the secret has ended', async () => {
    const scene = sessionScene({ apiKey: undefined });
    const state = () => scene.session.standing().state;
    assert.equal(await told(scene, 'offered'), 'sent');
    scene.remote.onAttest = fails('api_key_rejected');
    await scene.clock.advance(46 * MINUTE);
    assert.deepEqual([state(), scene.session.standing().error?.code], ['not-renewable', 'api_key_rejected']);
    await scene.clock.advance(20 * MINUTE);
    assert.equal(state(), 'awaiting-key');
  });

  it('is verified again once another client renews the secret after the kept key was refused', async () => {
    const scene = sessionScene({ apiKey: undefined });
    assert.equal(await told(scene, 'offered'), 'sent');
    scene.remote.onAttest = (key) => {
      if (key === 'offered') fails('api_key_rejected')();
    };
    await scene.clock.advance(46 * MINUTE);
    assert.equal(await told(scene, 'another'), 'sent');
    await scene.clock.advance(1_000);
    assert.equal(scene.session.standing().state, 'verified');
  });

  it('is verified at the next accepted answer after the service wanted a newer client', async () => {
    const scene = sessionScene(withoutEvidence('client_too_old'));
    await settle();
    scene.remote.onAttest = () => {};
    await scene.clock.advance(2_000);
    assert.equal(scene.session.standing().state, 'verified');
  });
});
