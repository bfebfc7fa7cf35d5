/**
 * The states of the proxy (docs/states.md): how each is reached, and what a request gets in it.
 */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { describe, it } from 'node:test';
import { type ErrorCode, PrivatemodeError } from '../../lib/errors.ts';
import { isVerified, STANDINGS, type StateName, standingOf } from '../../lib/session/standing.ts';
import { newState, type SessionState } from '../../lib/session/state.ts';
import { settle } from '../support/remote/fake-clock.ts';
import { fails, type SessionScene, sessionScene } from '../support/remote/fake-remote.ts';

const MINUTE = 60_000;
const NOW = { now: 1_000, monotonic: 1_000 };
const TERM = {
  ...{ secretId: 'id', manifestSha256: '', verdictSha256: '', attestedAt: 0, renewAt: 1_500 },
  ...{ expiresAt: 2_000, expiresMonotonic: 2_000 },
};
const error = (code: ErrorCode) => new PrivatemodeError(code, 'why');
const rejection = (code: ErrorCode, counts: boolean): Partial<SessionState> => ({
  rejection: { part: 'evidence', error: error(code), first: 0, counts },
  error: error('upstream_unreachable'), // silence after a rejection takes nothing back
});

/** What was heard last, and the state while no secret is in force; then it is verified, or not renewable. */
const HEARD: readonly (readonly [heard: string, Partial<SessionState>, state: StateName])[] = [
  ['nothing', {}, 'starting'],
  ['silence', { error: error('upstream_unreachable') }, 'unreachable'],
  ['401 for the key', { error: error('api_key_rejected') }, 'key-refused'],
  ['a wish for a newer client', { error: error('client_too_old') }, 'client-too-old'],
  ['a rejection', rejection('attestation_failed', false), 'rejected-once'],
  ['a rejection that counts', rejection('attestation_failed', true), 'rejected'],
  ['a mismatch', rejection('manifest_mismatch', false), 'rejected-once'],
  ['a mismatch that counts', rejection('manifest_mismatch', true), 'rejected'],
  ['a manifest of a later generation', rejection('manifest_unsupported', true), 'manifest-not-understood'],
];

describe('the state of the proxy', () => {
  for (const [heard, facts, state] of HEARD) {
    it(`after ${heard} is ${state} unless a secret is in force`, () => {
      for (const hasKey of [true, false]) {
        for (const isDenied of [true, false]) {
          const known = { ...newState(false), ...facts, hasKey };
          const wanted = state === 'starting' && !hasKey ? 'awaiting-key' : state;
          for (const term of [undefined, { ...TERM, expiresAt: 999 }, { ...TERM, attestedAt: 1_001 }]) {
            const none = standingOf({ ...known, term, isDenied: isDenied && term !== undefined }, NOW);
            assert.deepEqual([none.state, none.verified], [wanted, false]);
            assert.equal(none.ready, !hasKey, 'a probe keeps no first key away');
            assert.equal(none.awaitsKey, !hasKey);
            assert.doesNotMatch(none.meaning, /denies a secret/);
          }
          const held = standingOf({ ...known, term: TERM, isDenied }, NOW);
          const good = heard === 'nothing' ? 'verified' : 'not-renewable';
          assert.deepEqual([held.state, held.verified], isDenied ? [wanted, false] : [good, true]);
          assert.equal(/^The service denies a secret/.test(held.meaning), isDenied);
          const ended = standingOf({ ...known, term: TERM, isDenied, isEnding: true }, NOW);
          assert.deepEqual([ended.state, ended.ready, ended.verified], ['ended', false, false]);
          assert.match(ended.meaning, /takes requests until its port closes/);
        }
      }
    });
  }

  it('takes a broken rule for a fault of the manifest only where the operator gave it', () => {
    const facts = { ...rejection('manifest_invalid', false) };
    assert.equal(standingOf({ ...newState(false), ...facts }, NOW).state, 'rejected-once');
    assert.equal(standingOf({ ...newState(true), ...facts }, NOW).state, 'manifest-not-understood');
  });

  it('stands in the table of docs/states.md, with its headline and its gauge', () => {
    const page = readFileSync(new URL('../../docs/states.md', import.meta.url), 'utf8');
    const rows = [...page.matchAll(/^\| `([a-z-]+)` \| ([^|]+) \| (true|false) \| ([01]) \|$/gm)];
    assert.deepEqual(
      rows.map(([, ...row]) => row),
      Object.entries(STANDINGS).map(([state, row]) => [
        ...[state, row.title, String(isVerified(row)), isVerified(row) ? '1' : '0'],
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

  it('is verified at the next accepted answer after the service wanted a newer client', async () => {
    const scene = sessionScene(withoutEvidence('client_too_old'));
    await settle();
    scene.remote.onAttest = () => {};
    await scene.clock.advance(2_000);
    assert.equal(scene.session.standing().state, 'verified');
  });
});
