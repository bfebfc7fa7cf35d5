import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { inspect } from 'node:util';
import { type ErrorCode, PrivatemodeError } from '../../lib/errors.ts';
import { createClientKeys } from '../../lib/session/client-keys.ts';
import type { Epoch } from '../../lib/session/session.ts';
import { createFakeClock, settle } from '../support/remote/fake-clock.ts';
import { fails, sessionScene } from '../support/remote/fake-remote.ts';

const MINUTE = 60_000;
const WAIT = { timeoutMs: 30_000 };
const offering = (offeredKey: string) => ({ ...WAIT, offeredKey });

const withCode = (code: ErrorCode) => (error: unknown) => {
  assert.ok(error instanceof PrivatemodeError, String(error));
  assert.equal(error.code, code, error.message);
  return true;
};

/** Answers 401 to every key but these. */
const accepting =
  (...keys: string[]) =>
  (key: string): void => {
    if (!keys.includes(key)) fails('api_key_rejected')();
  };

describe('session without a configured key', () => {
  it('waits for a key, and answers requests without one with api_key_missing', async () => {
    const { session, remote, clock } = sessionScene({ apiKey: undefined });
    await clock.advance(60 * MINUTE);
    assert.deepEqual([session.standing().state, remote.calls], ['awaiting-key', []]);
    await assert.rejects(session.acquire(WAIT), withCode('api_key_missing'));
    assert.equal(clock.timers().all, 0);
  });

  it('reports a permanent failure only after the secret has expired', async () => {
    const scene = sessionScene({ apiKey: undefined });
    const { session, remote, clock, permanent, count } = scene;
    const epoch = await session.acquire(offering('first'));
    remote.onAttest = fails('api_key_rejected');
    await clock.advance(46 * 60_000);
    assert.equal(session.current(), epoch, 'the kept key was dropped, its epoch goes on');
    remote.onAttest = () => {};
    remote.verdictCode = 'manifest_unsupported';
    const before = count('attest');
    await session.acquire(offering('second'));
    await settle();
    assert.ok(count('attest') > before);
    assert.deepEqual(permanent, []);
    await clock.advance(10 * 60_000);
    assert.equal(session.current(), undefined);
    await assert.rejects(session.acquire(offering('third')), { code: 'manifest_unsupported' });
    assert.equal(permanent.length, 1);
  });

  it('attests and renews with the key of the first request, and shares the secret with all requests', async () => {
    const { session, remote, clock } = sessionScene({
      apiKey: undefined,
      prepare: { onAttest: accepting('good') },
    });
    const epoch = await session.acquire(offering('good'));
    assert.equal(session.standing().state, 'verified');
    assert.equal(await session.acquire(offering('another')), epoch);
    assert.equal(await session.acquire(WAIT), epoch);
    await clock.advance(46 * MINUTE);
    assert.notEqual(session.current(), epoch);
    assert.deepEqual(
      remote.calls.filter((call) => call.startsWith('attest')),
      ['attest good', 'attest good'],
    );
  });

  it('answers a bad key with api_key_rejected, after one call and no retry', async () => {
    const { session, clock, count, permanent } = sessionScene({
      apiKey: undefined,
      prepare: { onAttest: accepting() },
    });
    await assert.rejects(session.acquire(offering('bad')), withCode('api_key_rejected'));
    await clock.advance(20_000);
    assert.deepEqual([count('attest'), permanent.length, session.standing().state], [1, 0, 'awaiting-key']);
  });

  it('tells a client that sends the key "placeholder" that the proxy has no key of its own', async () => {
    const { session } = sessionScene({ apiKey: undefined, prepare: { onAttest: accepting() } });
    await assert.rejects(session.acquire(offering('placeholder')), withCode('api_key_rejected'));
    const words = /a moment ago \(it is "placeholder", and the proxy has none of its own: --api-key\)$/;
    await assert.rejects(session.acquire(offering('placeholder')), words);
  });

  it('tries a rejected key again only 30 s after the rejection', async () => {
    const { session, remote, clock, count } = sessionScene({
      apiKey: undefined,
      prepare: { onAttest: accepting() },
    });
    for (let i = 0; i < 29; i++) {
      await assert.rejects(session.acquire(offering('bad')), withCode('api_key_rejected'));
      await clock.advance(1000);
    }
    assert.equal(count('attest'), 1);
    await clock.advance(1000);
    remote.onAttest = accepting('bad');
    await session.acquire(offering('bad'));
    assert.equal(count('attest'), 2);
  });

  it('tries a key once for all requests that bring it at the same time', async () => {
    const { session, count } = sessionScene({ apiKey: undefined, prepare: { onAttest: accepting() } });
    const attempts = Array.from({ length: 50 }, () => session.acquire(offering('bad')));
    for (const attempt of attempts) await assert.rejects(attempt, withCode('api_key_rejected'));
    assert.equal(count('attest'), 1);
  });

  it('attests with a second key while the first one takes long, and gives its secret to the requests of both', async () => {
    const { session, remote, clock } = sessionScene({
      apiKey: undefined,
      prepare: { onAttest: (key) => (key === 'slow' ? new Promise(() => {}) : undefined) },
    });
    const slow = session.acquire(offering('slow'));
    await settle();
    const epoch = await session.acquire(offering('good'));
    // And the one who waited gets what the other one's key has brought.
    assert.equal(await slow, epoch);
    assert.equal(remote.calls.at(-1), 'record A');
    assert.equal(clock.timers().waiting, 0);
  });

  it('does not attest with a queued key once another key has brought a secret', async () => {
    const { session, clock, count } = sessionScene({
      apiKey: undefined,
      prepare: { onAttest: () => new Promise((resolve) => void clock.after(1000, resolve)) },
    });
    const all = Array.from({ length: 12 }, (_, i) => session.acquire(offering(`key ${i}`)));
    await clock.advance(10_000);
    assert.equal(new Set(await Promise.all(all)).size, 1);
    assert.equal(count('attest'), 8);
  });

  it('does not use a secret whose attestation ends after the session was closed', async () => {
    const { session, remote, clock, events } = sessionScene({ apiKey: undefined });
    remote.onRecord = () => session.close();
    await assert.rejects(session.acquire(offering('good')), withCode('shutting_down'));
    await settle();
    assert.equal(session.current(), undefined);
    assert.ok(!events.some(({ type }) => type === 'epoch' || type === 'key-kept'));
    assert.equal(clock.timers().all, 0);
  });

  it('uses a single secret if attestation succeeds with two keys at once', async () => {
    const { session, clock, events } = sessionScene({
      apiKey: undefined,
      prepare: {
        onAttest: (key) => new Promise((resolve) => void clock.after(key === 'a' ? 10 : 20, resolve)),
      },
    });
    const both = Promise.all([session.acquire(offering('a')), session.acquire(offering('b'))]);
    await clock.advance(100);
    const [one, two] = await both;
    assert.equal(one, two);
    assert.equal(session.current(), one);
    assert.equal(events.filter(({ type }) => type === 'key-kept').length, 1);
    assert.equal(events.filter(({ type }) => type === 'epoch').length, 1);
  });

  it('fails a request with upstream_unreachable if the service is down, and tries its key again for the next one', async () => {
    const { session, remote, clock, count } = sessionScene({
      apiKey: undefined,
      prepare: { onAttest: fails('upstream_unreachable') },
    });
    const failing = assert.rejects(session.acquire(offering('good')), withCode('upstream_unreachable'));
    await clock.advance(4_000);
    await failing;
    assert.equal(count('attest'), 3);
    remote.onAttest = () => {};
    await session.acquire(offering('good'));
  });

  it('reports manifest_mismatch, found with a good key, as permanent, but not the rejection of a bad key', async () => {
    const { session, remote, permanent, clock } = sessionScene({ apiKey: undefined, kind: 'static' });
    remote.deployed = 'B';
    const refused = assert.rejects(session.acquire(offering('good')), withCode('manifest_mismatch'));
    await clock.advance(6_100);
    await refused;
    assert.deepEqual(
      permanent.map(({ code }) => code),
      ['manifest_mismatch'],
    );
    remote.onAttest = accepting();
    await assert.rejects(session.acquire(offering('bad')), withCode('api_key_rejected'));
    assert.equal(permanent.length, 1);
  });

  it('shows with the error of a mismatch, found with the key of a client, that the newest manifest could not be fetched', async () => {
    const { session, remote, clock } = sessionScene({ apiKey: undefined });
    await session.acquire(offering('old'));
    remote.onAttest = accepting('new');
    await clock.advance(56 * MINUTE);
    remote.deployed = 'B';
    remote.onManifest = fails('manifest_unavailable', 'the CDN has gone');
    const refused = assert.rejects(session.acquire(offering('new')), {
      code: 'not_ready',
      message: /the CDN has gone$/,
    });
    await clock.advance(30_000);
    await refused;
    const { code, message = '' } = session.standing().error ?? {};
    assert.deepEqual([code, message.endsWith('the CDN has gone')], ['manifest_mismatch', true]);
  });

  it('drops a kept key that the service no longer accepts, and renews with the key of the next request', async () => {
    const { session, remote, clock, events, permanent } = sessionScene({ apiKey: undefined });
    const first = await session.acquire(offering('old'));
    remote.onAttest = accepting('new');
    await clock.advance(46 * MINUTE);
    assert.ok(events.some(({ type }) => type === 'key-dropped'));
    // The epoch is still good, and whoever brings a key renews it on the side.
    assert.equal(await session.acquire(WAIT), first);
    assert.equal(await session.acquire(offering('new')), first);
    await settle();
    assert.notEqual(session.current(), first);
    await clock.advance(46 * MINUTE);
    assert.equal(remote.calls.at(-2), 'secret new');
    assert.equal(permanent.length, 0);
  });

  it('fails to renew a denied secret with not_ready if the kept key was dropped, and says that there is no key', async () => {
    const { session, remote, clock } = sessionScene({ apiKey: undefined });
    const { secretId } = await session.acquire(offering('old'));
    remote.onAttest = fails('api_key_rejected');
    await clock.advance(46 * MINUTE);
    await assert.rejects(session.renewAfterDenial(secretId), {
      code: 'not_ready',
      message: 'no API key to attest with',
    });
  });

  it('waits for a key again when the kept key was dropped and its secret has expired', async () => {
    const { session, remote, clock } = sessionScene({ apiKey: undefined });
    await session.acquire(offering('old'));
    remote.onAttest = accepting('new');
    await clock.advance(56 * MINUTE);
    assert.equal(session.standing().state, 'awaiting-key');
    await assert.rejects(session.acquire(WAIT), withCode('api_key_missing'));
    await session.acquire(offering('new'));
    assert.equal(session.standing().state, 'verified');
  });

  it('attests with the key of a waiting request when the kept key fails', async () => {
    const { session, remote, clock } = sessionScene({ apiKey: undefined });
    await session.acquire(offering('old'));
    remote.onAttest = accepting('new');
    clock.jump(2 * 60 * MINUTE);
    await session.acquire(offering('new'));
    assert.deepEqual(
      remote.calls.filter((call) => call.startsWith('attest')),
      ['attest old', 'attest old', 'attest new'],
    );
  });

  it('renews with the configured key, not with the kept one, once a key is configured', async () => {
    const { session, remote, clock } = sessionScene({ apiKey: undefined });
    await session.acquire(offering('offered'));
    session.updateConfiguredKey('configured');
    await clock.advance(46 * MINUTE);
    assert.equal(remote.calls.at(-2), 'secret configured');
  });

  it('renews with a key that was configured while it attested with the key of a request', async () => {
    const { session, remote, clock, events } = sessionScene({
      apiKey: undefined,
      prepare: {
        onAttest: (key) => new Promise((done) => void clock.after(key === 'offered' ? 1_000 : 5_000, done)),
      },
    });
    const offered = session.acquire(offering('offered'));
    await clock.advance(100);
    session.updateConfiguredKey('configured');
    await clock.advance(1_000);
    assert.equal(session.current(), await offered);
    assert.ok(!events.some(({ type }) => type === 'key-kept'));
    await clock.advance(10_000);
    remote.calls.length = 0;
    await clock.advance(46 * MINUTE);
    const keys = remote.calls.filter((call) => call.startsWith('secret '));
    assert.deepEqual([...new Set(keys)], ['secret configured']);
  });
});

describe('the queue of client keys', () => {
  const offersOf = (attest: (key: string) => Promise<Epoch>) => {
    const clock = createFakeClock();
    return { clock, offers: { offer: createClientKeys({ attest, clock }) } };
  };

  it('tries eight keys at a time, in the order in which they came', async () => {
    const started: string[] = [];
    let release = (): void => {};
    const { offers } = offersOf(async (key) => {
      started.push(key);
      await new Promise<void>((resolve) => {
        release = resolve;
      });
      return {} as Epoch;
    });
    const keys = Array.from({ length: 12 }, (_, i) => `key ${i}`);
    const all = keys.map((key) => offers.offer(key));
    await settle();
    assert.deepEqual(started, keys.slice(0, 8));
    release();
    await settle();
    assert.deepEqual(started, keys.slice(0, 9));
    all.length = 0;
  });

  it('refuses a new key while eight keys are tried and 64 wait, but not a key that waits already', async () => {
    const { offers } = offersOf(() => new Promise(() => {}));
    for (let i = 0; i < 8 + 64; i++) offers.offer(`key ${i}`).catch(() => assert.fail('refused too early'));
    await settle();
    await assert.rejects(offers.offer('one more'), withCode('not_ready'));
    // Somebody who waits already is joined, not refused.
    const joined = offers.offer('key 71');
    assert.equal(joined, offers.offer('key 71'));
  });

  it('remembers the last 1,024 rejections', async () => {
    let calls = 0;
    const { offers } = offersOf(async () => {
      calls++;
      return fails('api_key_rejected')();
    });
    for (let i = 0; i < 2000; i++) await assert.rejects(offers.offer(`key ${i}`));
    assert.equal(calls, 2000);
    await assert.rejects(offers.offer('key 1999'));
    await assert.rejects(offers.offer('key 976'));
    assert.equal(calls, 2000);
    await assert.rejects(offers.offer('key 975'));
    assert.equal(calls, 2001);
  });

  it('forgets rejections when the clock is turned back', async () => {
    let calls = 0;
    const { offers, clock } = offersOf(async () => {
      calls++;
      return fails('api_key_rejected')();
    });
    await assert.rejects(offers.offer('key'));
    clock.jump(-MINUTE);
    await assert.rejects(offers.offer('key'));
    assert.equal(calls, 2);
  });

  it('remembers rejections only, no failure such as attestation_failed', async () => {
    let calls = 0;
    const { offers } = offersOf(async () => {
      calls++;
      return fails('attestation_failed')();
    });
    for (let i = 0; i < 3; i++) await assert.rejects(offers.offer('key'), withCode('attestation_failed'));
    assert.equal(calls, 3);
  });

  it('remembers a rejection without the text of the key', async (t) => {
    const remembered: unknown[] = [];
    const set = Map.prototype.set;
    t.mock.method(Map.prototype, 'set', function (this: Map<unknown, unknown>, key: unknown, value: unknown) {
      remembered.push(key, value);
      return set.call(this, key, value);
    });
    const { offers } = offersOf(async () => fails('api_key_rejected')());
    await assert.rejects(offers.offer('sk-canary'));
    assert.ok(remembered.length >= 4);
    assert.doesNotMatch(inspect(remembered), /canary/);
  });
});
