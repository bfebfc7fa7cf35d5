/** A session without a key of its own: the request that needs a secret attests with its own key. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { inspect } from 'node:util';
import { PrivatemodeError } from '../../lib/errors.ts';
import { settle } from '../support/remote/fake-clock.ts';
import {
  fails,
  MINUTE,
  type SessionScene,
  sessionScene,
  WAIT,
  withCode,
} from '../support/remote/fake-remote.ts';

const offering = (offeredKey: string) => ({ ...WAIT, offeredKey });
const keyless = (options: Parameters<typeof sessionScene>[0] = {}) =>
  sessionScene({ ...options, apiKey: undefined });

/** Answers 401 to every key but these. */
const accepting =
  (...keys: string[]) =>
  (key: string): void => {
    if (!keys.includes(key)) fails('api_key_rejected')();
  };
/** Answers after a second, with 401 to every key that begins with `junk`. */
const slowly =
  ({ clock }: Pick<SessionScene, 'clock'>) =>
  (key: string): Promise<void> =>
    new Promise((resolve, reject) => {
      const refusal = new PrivatemodeError('api_key_rejected', 'refused');
      clock.after(1_000, () => (key.startsWith('junk') ? reject(refusal) : resolve()));
    });
const attests = ({ remote }: SessionScene): readonly string[] =>
  remote.calls.filter((call) => call.startsWith('attest ')).map((call) => call.slice('attest '.length));

describe('session without a configured key', () => {
  it('waits for a key, and answers requests without one with api_key_missing', async () => {
    const { session, remote, clock } = keyless();
    await clock.advance(60 * MINUTE);
    assert.deepEqual([session.standing().state, remote.calls], ['awaiting-key', []]);
    await assert.rejects(session.acquire(WAIT), withCode('api_key_missing'));
    assert.equal(clock.timers().all, 0);
  });

  it('attests with the key of the request that needs it, shares the secret with all, and keeps no key', async () => {
    const scene = keyless({ prepare: { onAttest: accepting('good', 'later') } });
    const { session, clock } = scene;
    const epoch = await session.acquire(offering('good'));
    assert.equal(await session.acquire(offering('another')), epoch);
    assert.equal(await session.acquire(WAIT), epoch);
    await clock.advance(50 * MINUTE);
    assert.deepEqual([session.current(), clock.timers().all], [epoch, 0]);
    assert.equal(await session.acquire(WAIT), epoch);
    assert.equal(await session.acquire(offering('later')), epoch);
    await settle();
    assert.notEqual(session.current(), epoch);
    assert.deepEqual(attests(scene), ['good', 'later']);
  });

  it('answers a bad key with api_key_rejected, after one call and no retry; that is no state of the proxy', async () => {
    const { session, clock, count, permanent } = keyless({ prepare: { onAttest: accepting() } });
    await assert.rejects(session.acquire(offering('bad')), withCode('api_key_rejected'));
    await clock.advance(20_000);
    assert.deepEqual([count('attest'), permanent.length, session.standing().state], [1, 0, 'awaiting-key']);
    assert.equal(session.standing().error, undefined);
  });

  it('tries a rejected key again only 30 s after the rejection', async () => {
    const { session, remote, clock, count } = keyless({ prepare: { onAttest: accepting() } });
    for (let i = 0; i < 30; i++) {
      await assert.rejects(session.acquire(offering('bad')), withCode('api_key_rejected'));
      await clock.advance(1000);
    }
    assert.equal(count('attest'), 1);
    remote.onAttest = accepting('bad');
    await session.acquire(offering('bad'));
    assert.equal(count('attest'), 2);
  });

  it('tries a key once for all requests that bring it at the same time', async () => {
    const { session, count } = keyless({ prepare: { onAttest: accepting() } });
    const attempts = Array.from({ length: 50 }, () => session.acquire(offering('bad')));
    for (const attempt of attempts) await assert.rejects(attempt, withCode('api_key_rejected'));
    assert.equal(count('attest'), 1);
  });

  it('attests with a second key while the first one takes long, and gives its secret to the requests of both', async () => {
    const { session, clock, remote } = keyless();
    remote.onAttest = (key) => (key === 'slow' ? new Promise(() => {}) : undefined);
    const slow = session.acquire(offering('slow'));
    await settle();
    const epoch = await session.acquire(offering('good'));
    assert.equal(await slow, epoch);
    assert.equal(clock.timers().waiting, 0);
  });

  it('uses a single secret if attestation succeeds with two keys at once', async () => {
    const { session, clock, events, remote } = keyless();
    remote.onAttest = (key) => new Promise((resolve) => void clock.after(key === 'a' ? 10 : 20, resolve));
    const both = Promise.all([session.acquire(offering('a')), session.acquire(offering('b'))]);
    await clock.advance(100);
    const [one, two] = await both;
    assert.deepEqual([one, session.current()], [two, two]);
    assert.equal(events.filter(({ type }) => type === 'epoch').length, 1);
  });

  it('renews with the configured key once there is one', async () => {
    const scene = keyless();
    await scene.session.acquire(offering('offered'));
    scene.session.updateConfiguredKey('configured');
    await scene.clock.advance(46 * MINUTE);
    assert.deepEqual(attests(scene), ['offered', 'configured']);
  });
});

describe('the keys of clients that attest', () => {
  it('are tried eight at a time, in the order in which they came; the others share the secret of the first', async () => {
    const scene = keyless();
    scene.remote.onAttest = slowly(scene);
    const keys = Array.from({ length: 20 }, (_, i) => (i < 10 ? `junk ${i}` : `key ${i}`));
    const all = keys.map((key) => scene.session.acquire(offering(key)).catch(() => undefined));
    await settle();
    assert.deepEqual(attests(scene), keys.slice(0, 8));
    await scene.clock.advance(1_000);
    assert.deepEqual(attests(scene), keys.slice(0, 16));
    await scene.clock.advance(1_000);
    const epochs = await Promise.all(all);
    assert.equal(new Set(epochs.slice(10)).size, 1);
    assert.deepEqual(attests(scene), keys.slice(0, 18), 'and two in the place of the last junk');
  });

  it('are refused with not_ready while eight are tried and 64 wait, unless they wait already', async () => {
    const { session } = keyless({ prepare: { onAttest: () => new Promise(() => {}) } });
    let early = 0;
    const count = (): void => void early++;
    for (let i = 0; i < 8 + 64; i++) session.acquire(offering(`key ${i}`)).then(count, count);
    await assert.rejects(session.acquire(offering('one more')), withCode('not_ready'));
    session.acquire(offering('key 71')).then(count, count);
    await settle();
    assert.equal(early, 0);
  });

  it('are remembered after a refusal: the last 1,024, none after another failure, and never as text', async (t) => {
    const remembered: unknown[] = [];
    const set = Map.prototype.set;
    const { session, remote, clock, count } = keyless({ prepare: { onAttest: accepting() } });
    t.mock.method(Map.prototype, 'set', function (this: Map<unknown, unknown>, key: unknown, value: unknown) {
      if (String(value) === '[object Object]' && Object(value).at !== undefined) remembered.push(key, value);
      return set.call(this, key, value);
    });
    const ask = (i: number) => session.acquire(offering(`sk-canary ${i}`)).catch(({ code }) => code);
    for (let i = 0; i < 1_100; i++) assert.equal(await ask(i), 'api_key_rejected');
    assert.equal(count('attest'), 1_100);
    for (const i of [1_099, 76]) await ask(i);
    assert.equal(count('attest'), 1_100);
    await ask(75);
    assert.equal(count('attest'), 1_101);
    assert.ok(remembered.length >= 2_200);
    assert.doesNotMatch(inspect(remembered, { depth: 9, maxArrayLength: null }), /canary/);
    remote.onAttest = fails('client_too_old');
    assert.equal(await ask(2_000), 'client_too_old');
    await clock.advance(6_000);
    assert.equal(await ask(2_000), 'client_too_old');
    assert.equal(count('attest'), 1_103);
  });

  it('renew a secret in force one at a time, and a key that was refused begins none', async () => {
    const scene = keyless();
    const { session, clock, remote } = scene;
    const first = await session.acquire(offering('a'));
    await clock.advance(43.5 * MINUTE);
    clock.jump(1.5 * MINUTE);
    remote.onAttest = slowly(scene);
    for (const key of ['junk 1', 'junk 1', 'junk 2', 'b', 'c'])
      assert.equal(await session.acquire(offering(key)), first);
    await clock.advance(1_000);
    assert.equal(await session.acquire(offering('junk 1')), first);
    assert.equal(await session.acquire(offering('b')), first);
    await clock.advance(1_000);
    assert.notEqual(session.current(), first);
    assert.deepEqual(attests(scene), ['a', 'junk 1', 'b']);
  });

  it('renew a secret in the last fifth of its term beside the key of a stranger, if they have attested before', async () => {
    const scene = keyless();
    const { session, clock, remote } = scene;
    const first = await session.acquire(offering('a'));
    await clock.advance(46 * MINUTE);
    remote.onAttest = slowly(scene);
    for (const key of ['junk 1', 'b', 'a']) assert.equal(await session.acquire(offering(key)), first);
    await clock.advance(1_000);
    assert.notEqual(session.current(), first);
    assert.deepEqual(attests(scene), ['a', 'junk 1', 'a']);
  });
});
