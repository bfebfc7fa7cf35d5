import assert from 'node:assert/strict';
import { hash } from 'node:crypto';
import { describe, it } from 'node:test';
import { queryObjects } from 'node:v8';
import { PrivatemodeError } from '../../lib/errors.ts';
import { type Verdict, verdictText } from '../../lib/verdict/verdict.ts';
import { settle } from '../support/remote/fake-clock.ts';
import {
  fails,
  MINUTE,
  type SessionScene,
  sessionScene,
  WAIT,
  withCode,
} from '../support/remote/fake-remote.ts';

async function ready(options: Parameters<typeof sessionScene>[0] = {}): Promise<SessionScene> {
  const scene = sessionScene(options);
  await settle();
  assert.equal(scene.session.standing().state, 'verified');
  return scene;
}

describe('the start of a session', () => {
  it('fetches the manifest, attests, exchanges the secret and logs the manifest before a request gets the secret', async () => {
    const { session, remote, events, clock } = sessionScene({
      prepare: { onRecord: () => assert.equal(session.current(), undefined) },
    });
    assert.equal(session.standing().state, 'starting');
    const epoch = await session.acquire(WAIT);
    assert.deepEqual(remote.calls, ['manifest', 'attest key', 'verify A', 'secret key', 'record A']);
    assert.deepEqual(
      events.map(({ type }) => type).filter((type) => type !== 'step'),
      ['attested', 'judged', 'manifest-enforced', 'epoch'],
    );
    const verdict = session.lastVerdict() as Verdict;
    assert.equal(epoch.verdictSha256, hash('sha256', verdictText(verdict)));
    const { outcome, manifestSha256, failure } = verdict;
    assert.deepEqual([outcome, manifestSha256, failure], ['accepted', epoch.manifestSha256, null]);
    assert.equal(session.current(), epoch);
    assert.ok(Object.isFrozen(epoch));
    assert.match(epoch.key.hmacSha256('any text'), /^[0-9a-f]{64}$/);
    assert.equal(epoch.attestedAt, clock.now());
    assert.equal(epoch.renewAt - clock.now(), 45 * MINUTE);
    assert.equal(epoch.expiresAt - clock.now(), 55 * MINUTE);
    assert.equal(session.standing().error, undefined);
  });

  it('keeps the record of the exchange in the epoch; of one that is padded, the digest only', async () => {
    for (const [length, isKept] of [
      [1024 * 1024, true],
      [1024 * 1024 + 1, false],
    ] as const) {
      const text = 'x'.repeat(length);
      const { session } = await ready({
        recordExchange: (source) => ({ source, record: () => ({ sha256: 'its digest', text }) }),
      });
      const { exchangeSha256, exchange } = await session.acquire(WAIT);
      assert.deepEqual([exchangeSha256, exchange === text], ['its digest', isKept]);
    }
  });

  it('reports a static manifest as enforced once, not again at the renewal', async () => {
    const { events, clock, count } = await ready({ kind: 'static' });
    await clock.advance(46 * MINUTE);
    assert.equal(count('record A'), 2);
    assert.equal(events.filter(({ type }) => type === 'manifest-enforced').length, 1);
  });

  it('counts the lifetime of a secret from the beginning of its exchange, not from the end', async () => {
    const { session, clock, remote } = sessionScene();
    const began = clock.now();
    remote.onSecret = () => clock.jump(20_000);
    await settle();
    assert.equal(session.current()?.expiresAt, began + 55 * MINUTE);
  });

  it('gives no verdict that accepts while checks of the secret are missing; if it does not come, the verdict is unavailable, with a row for each of them', async () => {
    const before: unknown[] = [];
    const { session, clock, remote } = sessionScene({
      prepare: {
        onSecret: () => {
          before.push(session.lastVerdict()?.outcome);
          fails('control_api_failed', 'status 503')();
        },
      },
    });
    await clock.advance(10_000);
    assert.deepEqual(before.slice(0, 3), [undefined, 'unavailable', 'unavailable']);
    const { outcome, failure, checks = [] } = session.lastVerdict() ?? {};
    assert.deepEqual([outcome, failure?.found], ['unavailable', 'status 503']);
    const made = checks.map(({ id, outcome }) => [id.split('.')[0], outcome].join(' '));
    assert.deepEqual([...new Set(made)], ['some pass', 'mesh not-evaluated', 'secret not-evaluated']);
    assert.equal(checks.length, 1 + 9);
    remote.onSecret = () => {};
    await clock.advance(10_000);
    assert.equal(session.lastVerdict()?.outcome, 'accepted');
  });

  it('uses no secret until its manifest is logged', async () => {
    const { session, remote, clock } = sessionScene({
      prepare: { onRecord: fails('manifest_log_failed', 'the disk is full') },
    });
    const waiting = session.acquire(WAIT);
    waiting.catch(() => {});
    await clock.advance(20_000);
    assert.equal(session.current(), undefined);
    assert.equal(session.standing().state, 'unreachable');
    remote.onRecord = () => {};
    await clock.advance(9_000);
    assert.equal((await waiting).secretId, session.current()?.secretId);
  });

  it('fails a request with not_ready and the cause after it has waited 30 s', async () => {
    const { session, clock } = sessionScene({
      prepare: { onAttest: fails('upstream_unreachable', 'api.example refused the connection') },
    });
    const waiting = assert.rejects(
      session.acquire(WAIT),
      withCode('not_ready', /not verified within 30 s: api.example refused/),
    );
    await clock.advance(30_000);
    await waiting;
  });

  it('fails a waiting request with the reason of its abort signal, and leaves no timer', async () => {
    const { session, clock } = sessionScene({ prepare: { onAttest: () => new Promise(() => {}) } });
    const abort = new AbortController();
    const waiting = session.acquire({ ...WAIT, waiter: abort });
    abort.abort(new Error('client went away'));
    await assert.rejects(waiting, /client went away/);
    await assert.rejects(session.acquire({ ...WAIT, waiter: abort }), /client went away/);
    assert.equal(clock.timers().waiting, 0);
  });

  it('uses every nonce once', async () => {
    const { remote, clock } = await ready();
    remote.onSecret = fails('upstream_reset');
    await clock.advance(120 * MINUTE);
    assert.ok(remote.nonces.length > 20);
    assert.equal(new Set(remote.nonces).size, remote.nonces.length);
  });
});

describe('a session whose requests share no attempt, since an attempt ends with its request (workers of Cloudflare)', () => {
  const ALONE = { onDemand: true, shares: false } as const;

  it('attests for each request that waits, although an earlier attempt never ends', async () => {
    const { session, clock, remote, count } = sessionScene(ALONE);
    remote.onAttest = () => new Promise(() => {});
    session.acquire(WAIT).catch(() => {});
    await settle();
    clock.drop();
    remote.onAttest = () => {};
    const epoch = await session.acquire(WAIT);
    assert.deepEqual([session.current(), count('attest')], [epoch, 2]);
  });

  it('attests for a request whose secret was denied, and in the background at most once in ten seconds', async () => {
    const { session, clock, remote, count } = sessionScene(ALONE);
    const { secretId } = await session.acquire(WAIT);
    remote.onAttest = () => new Promise(() => {});
    session.renewAfterDenial(secretId).catch(() => {});
    await settle();
    clock.drop();
    remote.onAttest = () => {};
    const next = await session.renewAfterDenial(secretId);
    assert.notEqual(next.secretId, secretId);
    const before = count('attest');
    assert.equal(before, 3);
    remote.onAttest = () => new Promise(() => {});
    clock.jump(46 * MINUTE);
    for (let i = 0; i < 100; i++) await session.acquire(WAIT);
    await settle();
    assert.equal(count('attest'), before + 1);
    await clock.advance(10_000);
    await session.acquire(WAIT);
    await settle();
    assert.equal(count('attest'), before + 2);
  });
});

describe('the renewal of a session', () => {
  it('attests anew each time, without fetching the manifest again', async () => {
    const { remote, clock, count } = await ready();
    remote.onManifest = fails('manifest_unavailable');
    await clock.advance(24 * 60 * MINUTE);
    assert.equal(count('manifest'), 1);
    assert.ok(count('attest') >= 31);
    assert.equal(count('attest'), count('secret'));
  });

  it('begins at a random moment in the last two of the 45 minutes after attestation', async () => {
    for (const random of [0, 0.5, 0.999]) {
      const { session, clock } = await ready({ random: () => random });
      assert.equal((session.current()?.renewAt ?? 0) - clock.now(), 45 * MINUTE - random * 2 * MINUTE);
    }
  });

  it('begins with the first request after the machine slept past the time for it', async () => {
    const { session, clock, count } = await ready();
    const first = session.current();
    clock.jump(50 * MINUTE);
    assert.equal(await session.acquire(WAIT), first);
    await settle();
    assert.equal(count('attest'), 2);
    clock.jump(3 * 60 * MINUTE);
    assert.equal(session.current(), undefined);
    const after = await session.acquire(WAIT);
    assert.equal(after.attestedAt, clock.now());
  });

  it('is made again within 30 s after the clock was set back by a day', async () => {
    const { session, clock } = await ready();
    clock.jump(-24 * 60 * MINUTE);
    await clock.advance(30_000);
    assert.ok((session.current()?.attestedAt ?? Number.POSITIVE_INFINITY) <= clock.now());
    await clock.advance(60 * MINUTE);
    assert.ok((session.current()?.attestedAt ?? 0) > clock.now() - 46 * MINUTE);
  });
});

describe('a session that renews on demand', () => {
  it('has no timer', async () => {
    const { session, clock, count } = await ready({ onDemand: true });
    await session.acquire(WAIT);
    assert.deepEqual(clock.timers(), { all: 0, waiting: 0 });
    await clock.advance(180 * MINUTE);
    assert.equal(count('attest'), 1);
  });

  it('tries again while a request waits, and rests after that', async () => {
    const prepare = { onAttest: fails('upstream_reset') };
    const { session, clock, remote, count } = sessionScene({ onDemand: true, prepare });
    const waiting = assert.rejects(session.acquire(WAIT), withCode('not_ready'));
    await clock.advance(30_000);
    await waiting;
    const before = count('attest');
    assert.ok(before >= 5, String(before));
    await clock.advance(60 * MINUTE);
    assert.equal(count('attest'), before);
    remote.onAttest = () => {};
    assert.equal(await session.acquire(WAIT), session.current());
  });

  const ALONE = { onDemand: true, shares: false } as const;
  /** What a request gets in a runtime that ends the timers of each request with it. */
  async function untilItsEnd({ session, clock }: SessionScene, signal?: AbortSignal): Promise<string> {
    let outcome: string | undefined;
    session
      .acquire({ ...WAIT, waiter: signal && { signal } })
      .then(() => 'served')
      .catch(({ code, name }) => (typeof code === 'string' ? code : name)) // an AbortError has a number
      .then((what) => {
        outcome = what;
      });
    while (outcome === undefined) await clock.advance(100);
    clock.drop();
    return outcome;
  }

  it('serves a request after the service was refused, where the renewal ends with each request', async () => {
    const scene = sessionScene({ ...ALONE, prepare: { verdictCode: 'attestation_failed' } });
    assert.equal(await untilItsEnd(scene), 'attestation_failed');
    scene.remote.verdictCode = undefined;
    scene.remote.onAttest = () => new Promise((resolve) => void scene.clock.after(2_500, resolve));
    await scene.clock.advance(MINUTE);
    const leaving = new AbortController();
    scene.clock.after(1_000, () => leaving.abort());
    assert.equal(await untilItsEnd(scene, leaving.signal), 'AbortError');
    await scene.clock.advance(MINUTE);
    assert.equal(await untilItsEnd(scene), 'served');
  });
});

describe('a session without a key', () => {
  for (const [name, offeredKey] of [
    ['no key', undefined],
    ['a key that the service refuses', 'wrong'],
  ] as const) {
    it(`keeps nothing of requests that bring ${name}`, async () => {
      const prepare = { onAttest: fails('api_key_rejected') };
      const { session, events } = sessionScene({ apiKey: undefined, prepare });
      const objectsAfter = async (requests: number): Promise<number> => {
        for (let i = 0; i < requests; i++) {
          const outcome = await session.acquire({ ...WAIT, offeredKey }).catch(() => 'refused');
          assert.equal(outcome, 'refused');
        }
        events.length = 0;
        return queryObjects(Object, { format: 'count' });
      };
      const first = await objectsAfter(500);
      const more = (await objectsAfter(1_000)) - first;
      assert.ok(more < 500, `${more} objects for 1,000 requests`);
    });
  }
});

describe('an attested secret', () => {
  /** From here on no update succeeds, so that the current epoch is the only one. */
  const alone = async (): Promise<SessionScene> => {
    const scene = await ready();
    scene.remote.onAttest = () => new Promise(() => {});
    return scene;
  };

  it('expires by the monotonic clock, even if the wall clock is set back meanwhile', async () => {
    const { session, clock } = await alone();
    const epoch = session.current();
    await clock.advance(40 * MINUTE);
    clock.jump(-30 * MINUTE);
    await clock.advance(15 * MINUTE - 1);
    assert.equal(session.current(), epoch);
    await clock.advance(1);
    assert.equal(session.current(), undefined);
    assert.ok(clock.now() < (epoch?.expiresAt ?? 0));
  });

  it('is not used while the wall clock shows a time before its attestation', async () => {
    const { session, clock } = await alone();
    const epoch = session.current();
    assert.equal(epoch?.attestedAt, clock.now());
    clock.jump(-MINUTE);
    assert.equal(session.current(), undefined);
    await assert.rejects(Promise.race([session.acquire(WAIT), clock.advance(30_000)]), withCode('not_ready'));
  });
});

describe('a session that fails', () => {
  it('attests again after 1, 2, 4 … 60 s, of which up to a half is left out at random', async () => {
    const { clock, count } = sessionScene({ prepare: { onAttest: fails('upstream_unreachable') } });
    await settle();
    let attests = 1;
    for (const pause of [500, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000]) {
      assert.equal(count('attest'), attests);
      await clock.advance(pause - 1);
      assert.equal(count('attest'), attests);
      await clock.advance(1);
      attests++;
    }
    assert.equal(count('attest'), attests);
  });

  it('keeps the pause that a host wants; but while a request waits, it asks again after six seconds', async () => {
    const onAttest = (): never => {
      throw new PrivatemodeError('control_api_failed', 'status 429', { detail: { pause: 20 } });
    };
    const { session, clock, count } = sessionScene({ prepare: { onAttest } });
    await clock.advance(19_999);
    assert.equal(count('attest'), 1);
    await clock.advance(1);
    assert.equal(count('attest'), 2);
    session.acquire({ timeoutMs: MINUTE }).catch(() => {});
    await clock.advance(5_999);
    assert.equal(count('attest'), 2);
    await clock.advance(1);
    assert.equal(count('attest'), 3);
  });

  it('does not delay its next attempt because a request waits', async () => {
    const { session, clock, count } = sessionScene({ prepare: { onAttest: fails('upstream_unreachable') } });
    await clock.advance(1_500);
    assert.equal(count('attest'), 3);
    session.acquire(WAIT).catch(() => {});
    // Two seconds by the back-off; six seconds after the last attempt by what a waiting request may ask for.
    await clock.advance(1_999);
    assert.equal(count('attest'), 3);
    await clock.advance(1);
    assert.equal(count('attest'), 4);
  });

  it('does not try more often because requests come while the secret is good', async () => {
    const counts: number[] = [];
    for (const isBusy of [false, true]) {
      const { session, remote, clock, count } = sessionScene();
      await clock.advance(44 * MINUTE);
      remote.onAttest = fails('api_key_rejected');
      for (let second = 0; second < 600; second++) {
        await clock.advance(1000);
        if (isBusy) await session.acquire(WAIT);
      }
      counts.push(count('attest'));
    }
    assert.equal(counts[1], counts[0]);
  });
});

describe('session with a managed manifest', () => {
  it('fetches the newest manifest if verification fails, and enforces it once the service is verified under it', async () => {
    const { session, remote, clock } = await ready();
    remote.deployed = remote.published = 'B';
    remote.calls.length = 0;
    await clock.advance(46 * MINUTE);
    assert.deepEqual(remote.calls, [
      'attest key',
      'verify A',
      'manifest',
      'attest key',
      'verify B',
      'secret key',
      'record B',
    ]);
    assert.equal(session.current()?.manifestSha256, Buffer.from('sha of B').toString('hex'));
    assert.equal(remote.distrusted, 1);
    remote.calls.length = 0;
    await clock.advance(46 * MINUTE);
    assert.deepEqual(remote.calls, ['attest key', 'verify B', 'secret key', 'record B']);
  });

  for (const code of ['attestation_failed', 'manifest_mismatch', 'manifest_invalid'] as const) {
    it(`fetches the newest manifest once per attempt that fails with ${code}, and tries until it is verified`, async () => {
      const { session, remote, clock, permanent, count } = await ready();
      remote.verdictCode = code;
      remote.calls.length = 0;
      await clock.advance(45 * MINUTE);
      assert.deepEqual(remote.calls, ['attest key', 'verify A', 'manifest', 'attest key', 'verify A']);
      await clock.advance(60 * MINUTE);
      assert.equal(count('manifest') * 2, count('attest'));
      assert.deepEqual(permanent, []);
      assert.equal(session.standing().state, code === 'manifest_mismatch' ? 'rejected-once' : 'rejected');
      assert.equal(session.lastVerdict()?.outcome, 'rejected');
      remote.verdictCode = undefined;
      await clock.advance(MINUTE);
      assert.equal(session.standing().state, 'verified');
    });
  }

  it('reports manifest_mismatch with the error of the CDN, if the newest manifest cannot be fetched', async () => {
    const { session, remote, clock } = await ready();
    remote.deployed = 'B';
    remote.onManifest = fails('manifest_unavailable', 'the CDN has gone');
    await clock.advance(56 * MINUTE);
    withCode('manifest_mismatch', /; .* is unknown: the CDN has gone$/)(session.standing().error);
    assert.match(session.standing().error?.remedy ?? '', /^Check that the manifest host can be reached\./);
    remote.onManifest = () => {};
    await clock.advance(MINUTE);
    withCode('manifest_mismatch', /^((?!is unknown).)*$/)(session.standing().error);
  });
});

describe('permanent causes of failure', () => {
  for (const [what, kind, code, attests] of [
    ['a static manifest that is invalid', 'static', 'manifest_invalid', 1],
    ['a static manifest that is not understood', 'static', 'manifest_unsupported', 1],
    ['a managed manifest that is not understood', 'managed', 'manifest_unsupported', 2],
  ] as const) {
    it(`${what} is reported once, and fails requests at once`, async () => {
      const { session, permanent, count, clock } = sessionScene({ kind, prepare: { verdictCode: code } });
      await assert.rejects(session.acquire(WAIT), withCode(code, /some.check: expected what is right/));
      assert.deepEqual([count('attest'), count('manifest')], [attests, attests]);
      assert.deepEqual([permanent.length, permanent[0]?.code], [1, code]);
      await assert.rejects(session.acquire(WAIT), withCode(code));
      assert.equal(session.standing().state, 'manifest-not-understood');
      // What waiting will not cure is asked for rarely.
      await clock.advance(29_000);
      assert.equal(count('attest'), attests);
      await clock.advance(60 * MINUTE);
      assert.equal(permanent.length, 1);
      assert.ok(count('attest') <= attests * 130);
    });
  }

  it('a rejected key is tried once and reported, and a newly configured key is used', async () => {
    const { session, remote, permanent, count, clock } = sessionScene({
      prepare: { onAttest: (key) => (key === 'key' ? fails('api_key_rejected')() : undefined) },
    });
    await settle();
    assert.deepEqual([count('attest'), permanent.length, permanent[0]?.code], [1, 1, 'api_key_rejected']);
    await assert.rejects(session.acquire(WAIT), withCode('api_key_rejected'));
    session.updateConfiguredKey('better');
    const epoch = await session.acquire(WAIT);
    assert.equal(session.current(), epoch);
    assert.equal(remote.calls.at(-2), 'secret better');
    await clock.advance(46 * MINUTE);
    assert.equal(remote.calls.at(-2), 'secret better');
  });

  for (const [what, kind, failing] of [
    ['a rejected key', 'managed', { onAttest: fails('api_key_rejected') }],
    ['another manifest of the service', 'static', { deployed: 'B' }],
  ] as const) {
    it(`${what} is never reported once the process has had a secret: it stays, not ready, and recovers by itself`, async () => {
      const scene = await ready({ kind });
      Object.assign(scene.remote, failing);
      await scene.clock.advance(180 * MINUTE);
      assert.deepEqual([scene.permanent, scene.session.standing().ready], [[], false]);
      // The key is accepted again, and the operator gives another manifest.
      Object.assign(scene.remote, { onAttest: () => {}, published: scene.remote.deployed });
      await scene.clock.advance(MINUTE);
      assert.equal(scene.session.standing().state, 'verified');
    });
  }

  it('a mismatch with a static manifest is reported when hardware has vouched for it twice, six seconds apart', async () => {
    const { session, permanent, count, clock } = sessionScene({ kind: 'static', prepare: { deployed: 'B' } });
    const early = assert.rejects(session.acquire(WAIT), withCode('manifest_mismatch'));
    await clock.advance(5_900);
    assert.deepEqual([permanent.length, session.standing().state], [0, 'rejected-once']);
    await clock.advance(200);
    await early;
    assert.deepEqual([permanent.length, session.standing().state], [1, 'rejected']);
    const asked = count('attest');
    // once more for the request that was told; then what waiting will not cure is asked for rarely
    await clock.advance(29_000);
    assert.ok(count('attest') <= asked + 1);
    await clock.advance(60 * MINUTE);
    assert.equal(permanent.length, 1);
  });

  it('a new key is tried at once if renewal with the old one failed, even before the secret expires', async () => {
    const { session, remote, clock } = await ready();
    remote.onAttest = (key) => (key === 'key' ? fails('api_key_rejected')() : undefined);
    await clock.advance(46 * MINUTE);
    const old = session.current();
    assert.notEqual(old, undefined);
    session.updateConfiguredKey('better');
    await settle();
    assert.equal(remote.calls.at(-2), 'secret better');
    assert.notEqual(session.current(), old);
  });

  it('a working session does not attest at once when its key is replaced, but renews with the new key', async () => {
    const { session, remote, clock, count } = await ready();
    session.updateConfiguredKey('next');
    await settle();
    assert.equal(count('attest'), 1);
    await clock.advance(46 * MINUTE);
    assert.equal(remote.calls.at(-2), 'secret next');
  });
});

describe('a service that is rejected', () => {
  const REJECTED: Parameters<typeof sessionScene>[0] = { prepare: { verdictCode: 'attestation_failed' } };
  /** What a request that comes now is told, and after how long. */
  async function told({ session, clock }: SessionScene, offeredKey?: string): Promise<[string, number]> {
    const asked = clock.now();
    let answer: [string, number] | undefined;
    const answered = (what: string): void => {
      answer = [what, clock.now() - asked];
    };
    session.acquire({ ...WAIT, offeredKey }).then(
      () => answered('epoch'),
      ({ code }) => answered(code),
    );
    for (let tenths = 0; answer === undefined && tenths < 600; tenths++) await clock.advance(100);
    return answer ?? ['nothing', clock.now() - asked];
  }

  for (const random of [0, 0.5, 0.999]) {
    for (const kind of ['managed', 'static'] as const) {
      it(`is reported to waiting requests six seconds after the first rejection: ${kind} manifest, random ${random}`, async () => {
        const scene = sessionScene({ ...REJECTED, kind, random: () => random });
        assert.deepEqual(await told(scene), ['attestation_failed', 6_000]);
        const { message } = scene.session.standing().error as PrivatemodeError;
        assert.match(message, /^some.check: expected what is right; found what is there/);
        assert.deepEqual(await told(scene), ['attestation_failed', 0]);
        assert.equal(scene.session.standing().state, 'rejected');
        assert.equal(scene.permanent.length, 0);
      });
    }
  }

  it('serves waiting requests if its evidence is good four seconds later', async () => {
    const scene = sessionScene(REJECTED);
    const waiting = scene.session.acquire(WAIT);
    await scene.clock.advance(4_000);
    scene.remote.verdictCode = undefined;
    await scene.clock.advance(2_500);
    assert.equal(await waiting, scene.session.current());
  });

  it('is not called rejected while the newest manifest cannot be fetched: requests get not_ready', async () => {
    const scene = await ready();
    const { remote, clock, session } = scene;
    remote.verdictCode = 'attestation_failed';
    remote.onManifest = fails('manifest_unavailable');
    await clock.advance(56 * MINUTE);
    assert.equal(session.current(), undefined);
    assert.equal((await told(scene))[0], 'not_ready');
    remote.onManifest = () => {};
    await clock.advance(MINUTE);
    assert.deepEqual(await told(scene), ['attestation_failed', 0]);
  });

  it('stays rejected if it does not answer under the newest manifest', async () => {
    const scene = sessionScene(REJECTED);
    const { remote, session, clock, count } = scene;
    remote.onAttest = () => (count('attest') % 2 === 0 ? fails('upstream_reset')() : undefined);
    await clock.advance(100);
    assert.equal(session.standing().state, 'rejected-once');
    assert.equal(session.lastVerdict()?.outcome, 'rejected');
    await clock.advance(7_000);
    assert.equal(session.standing().error?.code, 'attestation_failed');
  });

  it('stays refused with attestation_failed while it is silent or answers with errors, until it is accepted', async () => {
    const scene = sessionScene(REJECTED);
    const { remote, clock, session } = scene;
    await clock.advance(7_000);
    remote.verdictCode = undefined;
    for (const code of [
      'upstream_unreachable',
      'upstream_connect_timeout',
      'control_api_failed',
      'evidence_malformed',
    ] as const) {
      remote.onAttest = fails(code);
      await clock.advance(2 * MINUTE);
      const [error, after] = await told(scene);
      assert.equal(error, 'attestation_failed', code);
      assert.ok(after <= 5_000, `${after} ms`);
      assert.equal((session.standing().error as PrivatemodeError).code, 'attestation_failed');
    }
    const silence = Promise.withResolvers<void>();
    remote.onAttest = () => silence.promise;
    await clock.advance(2 * MINUTE);
    assert.deepEqual(await told(scene), ['attestation_failed', 5_000]);
    remote.onAttest = () => {};
    silence.reject(new PrivatemodeError('upstream_connect_timeout', 'no answer'));
    await clock.advance(MINUTE);
    assert.deepEqual(await told(scene), ['epoch', 0]);
    assert.equal(session.standing().error, undefined);
  });

  it('has its rejections counted anew after an accepted verdict', async () => {
    const { session, remote, clock } = sessionScene(REJECTED);
    await clock.advance(3_000);
    remote.verdictCode = undefined;
    remote.onSecret = fails('upstream_unreachable');
    await clock.advance(3_000);
    remote.verdictCode = 'attestation_failed';
    const waiting = session.acquire(WAIT);
    waiting.catch(() => {});
    await clock.advance(3_000);
    assert.equal((session.standing().error as PrivatemodeError).code, 'attestation_failed');
    remote.verdictCode = undefined;
    remote.onSecret = () => {};
    await clock.advance(6_000);
    assert.equal(await waiting, session.current());
  });

  it('is taken for a rollout if it differs from a fetched manifest: requests wait, then get not_ready', async () => {
    const scene = sessionScene({ prepare: { deployed: 'B' } });
    const refused = assert.rejects(scene.session.acquire(WAIT), (error: PrivatemodeError) => {
      assert.deepEqual([error.code, error.status], ['not_ready', 503]);
      assert.match(error.message, /the remote was not verified within 30 s: some.check/);
      return true;
    });
    await scene.clock.advance(30_000);
    await refused;
  });

  it('is refused with evidence_malformed for unreadable evidence; without collateral, requests get not_ready', async () => {
    const malformed = sessionScene({ prepare: { verdictCode: 'evidence_malformed' } });
    const [code, after] = await told(malformed);
    assert.equal(code, 'evidence_malformed');
    assert.ok(after < 9_000, `${after} ms`);
    const later = await ready(); // has a manifest that it enforced, and fetches the newest one for this too
    later.remote.verdictCode = 'evidence_malformed';
    await later.clock.advance(56 * MINUTE);
    assert.equal((await told(later))[0], 'evidence_malformed');
    const unavailable = sessionScene({ prepare: { verdictCode: 'collateral_unavailable' } });
    assert.deepEqual(await told(unavailable), ['not_ready', 30_000]);
  });

  /** The states that follow, each once, looked at twenty times a second. */
  async function statesFor({ session, clock }: SessionScene, ms: number): Promise<string[]> {
    const states: string[] = [];
    for (let waited = 0; waited < ms; waited += 100) {
      await clock.advance(100);
      const { state } = session.standing();
      if (states.at(-1) !== state) states.push(state);
    }
    return states;
  }

  /** Makes the answer to the request for a secret take that long. */
  const slowSecret = ({ remote, clock }: SessionScene, ms: number): void => {
    remote.onSecret = () => new Promise<void>((answer) => void clock.after(ms, answer));
  };

  it('stays rejected while somebody relays its genuine evidence with a secret that it did not sign, also once he is silent', async () => {
    const scene = sessionScene({ prepare: { secretAccepted: false } });
    slowSecret(scene, 200);
    assert.deepEqual(await statesFor(scene, 5 * MINUTE), ['starting', 'rejected-once', 'rejected']);
    scene.remote.onSecret = fails('upstream_unreachable');
    assert.deepEqual(await statesFor(scene, 5 * MINUTE), ['rejected']);
    assert.equal((await told(scene))[0], 'attestation_failed');
    scene.remote.secretAccepted = true;
    slowSecret(scene, 2_000);
    assert.deepEqual(await statesFor(scene, 2 * MINUTE), ['rejected', 'verified']);
  });

  it('stays rejected if collateral cannot be fetched after a rejection', async () => {
    const { session, remote, clock } = sessionScene({ prepare: { verdictCode: 'attestation_failed' } });
    await clock.advance(MINUTE);
    remote.verdictCode = 'collateral_unavailable';
    await clock.advance(5 * MINUTE);
    assert.equal(session.lastVerdict()?.failure?.code, 'attestation_failed');
    assert.equal(session.standing().state, 'rejected');
  });

  it('stays verified if an attempt with another key that began before the secret was made is rejected afterwards', async () => {
    const { session, remote, clock, events } = sessionScene({ apiKey: undefined });
    const answers = new Map<string, () => void>();
    remote.onAttest = (apiKey) => new Promise<void>((answer) => void answers.set(apiKey, answer));
    for (const offeredKey of ['one', 'another']) session.acquire({ ...WAIT, offeredKey }).catch(() => {});
    await clock.advance(10);
    answers.get('one')?.();
    await clock.advance(100);
    assert.equal(session.standing().state, 'verified');
    remote.verdictCode = 'attestation_failed';
    remote.onAttest = () => {};
    answers.get('another')?.();
    await clock.advance(100);
    assert.ok(events.some(({ type }) => type === 'offer-failed'));
    assert.equal(session.standing().state, 'verified');
    assert.equal(session.lastVerdict()?.outcome, 'accepted');
    assert.equal(session.standing().error, undefined);
  });

  it('fails requests with attestation_failed also for clients that bring their own keys', async () => {
    const scene = sessionScene({ ...REJECTED, apiKey: undefined });
    const first = await told(scene, 'one');
    assert.deepEqual(first, ['attestation_failed', 6_000]);
    assert.deepEqual(await told(scene, 'another'), ['attestation_failed', 0]);
    scene.remote.onAttest = fails('upstream_reset');
    assert.deepEqual(await told(scene, 'one'), ['attestation_failed', 0]);
    await scene.clock.advance(6_000);
    scene.remote.onAttest = () => new Promise(() => {});
    assert.deepEqual(await told(scene, 'slow'), ['attestation_failed', 5_000]);
    scene.remote.onAttest = fails('api_key_rejected');
    assert.equal((await told(scene, 'third'))[0], 'api_key_rejected');
    scene.remote.onAttest = () => {};
    scene.remote.verdictCode = undefined;
    assert.equal((await told(scene, 'one'))[0], 'epoch');
  });
});

describe('the renewal that a rejected secret forces', () => {
  it('replaces the rejected secret once for 20 requests that saw it rejected', async () => {
    const { session, count, events } = await ready();
    const old = session.current()?.secretId ?? '';
    const renewed = await Promise.all(Array.from({ length: 20 }, () => session.renewAfterDenial(old)));
    assert.equal(new Set(renewed).size, 1);
    assert.notEqual(renewed[0]?.secretId, old);
    assert.equal(count('attest'), 2);
    assert.equal(events.filter(({ type }) => type === 'secret-denied').length, 1);
  });

  it('happens at most once in ten seconds, whatever the wall clock does', async () => {
    const { session, clock, count } = await ready();
    const reject = () => session.renewAfterDenial(session.current()?.secretId ?? '');
    await reject();
    for (const jump of [0, 5_000, 20_000, -25_000, 1, 2, 3, 4, 5]) {
      clock.jump(jump);
      await assert.rejects(reject(), withCode('secret_denied', /given a moment ago/));
      await clock.advance(1000);
    }
    assert.equal(count('attest'), 2);
    clock.jump(-9_000);
    await clock.advance(1000);
    await reject();
    assert.equal(count('attest'), 3);
  });

  it('fails the request with not_ready after the time that its caller has', async () => {
    const { session, remote, clock } = await ready();
    remote.onAttest = () => new Promise(() => {});
    const denied = assert.rejects(
      session.renewAfterDenial(session.current()?.secretId ?? '', 5_000),
      withCode('not_ready', /within 5 s/),
    );
    await clock.advance(5_000);
    await denied;
  });
});

describe('the end of a session', () => {
  it('fails waiting requests with shutting_down, and leaves no timer', async () => {
    const { session, clock } = sessionScene({ prepare: { onAttest: () => new Promise(() => {}) } });
    const waiting = assert.rejects(session.acquire(WAIT), withCode('shutting_down'));
    await settle();
    session.close();
    await waiting;
    await assert.rejects(session.acquire(WAIT), withCode('shutting_down'));
    await settle();
    assert.deepEqual(clock.timers(), { all: 0, waiting: 0 });
  });

  it('leaves the secret to later requests, but does not renew it', async () => {
    const { session, clock, count } = await ready();
    const epoch = session.current();
    session.close();
    assert.equal(await session.acquire(WAIT), epoch);
    await clock.advance(50 * MINUTE);
    assert.equal(await session.acquire({ ...WAIT, offeredKey: 'x' }), epoch);
    await assert.rejects(session.renewAfterDenial(epoch?.secretId ?? ''), withCode('shutting_down'));
    assert.equal(count('attest'), 1);
    assert.equal(clock.timers().all, 0);
  });

  it('keeps a secret out of use whose attestation ends afterwards', async () => {
    const { session, remote, clock } = sessionScene();
    remote.onRecord = () => session.close();
    await settle();
    assert.equal(session.current(), undefined);
    assert.equal(clock.timers().all, 0);
  });
});
