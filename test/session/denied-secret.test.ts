/**
 * A secret that the service denies ("no secret for ID") is marked: nothing says "verified" any more. It is
 * not dropped, since anybody on the way can write a denial (docs/architecture.md D14).
 */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
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

/** A session with an epoch, and the id of its secret. `key`: of the request where the session has none. */
async function verified(options: Parameters<typeof sessionScene>[0] = {}, key = 'first') {
  const scene = sessionScene(options);
  const { secretId } = await scene.session.acquire({ ...WAIT, offeredKey: key });
  return { ...scene, secretId };
}

interface Seen {
  code?: string;
  secretId?: string;
}

function watch(asked: Promise<{ readonly secretId: string }>): Seen {
  const seen: Seen = {};
  asked.then(
    ({ secretId }) => (seen.secretId = secretId),
    ({ code }: PrivatemodeError) => (seen.code = code),
  );
  return seen;
}

/** A request finds the secret denied, or another one comes; what becomes of it is known once it is over. */
const deny = ({ session }: SessionScene, secretId: string, key?: string): Seen =>
  watch(session.renewAfterDenial(secretId, undefined, key));
const ask = ({ session }: SessionScene, key?: string): Seen =>
  watch(session.acquire({ ...WAIT, offeredKey: key }));

/** What the views show: they all read these. */
const views = ({ session }: SessionScene) => {
  const { state, ready, error } = session.standing();
  return [session.current() !== undefined || ready, state, error?.code];
};

describe('a denied secret', () => {
  it('is marked at once, so that nothing says verified, and replaced if the service verifies again', async () => {
    const scene = await verified();
    const seen = deny(scene, scene.secretId);
    assert.deepEqual(views(scene), [false, 'starting', undefined]);
    assert.match(scene.session.standing().meaning, /^The service says that it does not know the secret/);
    await settle();
    assert.notEqual(seen.secretId, scene.secretId);
    assert.deepEqual(views(scene), [true, 'verified', undefined]);
  });

  for (const [what, fail, state] of [
    ['does not answer', fails('upstream_unreachable'), 'unreachable'],
    ['answers with 5xx or 429', fails('control_api_failed'), 'unreachable'],
    ['lets the time run out', fails('upstream_connect_timeout'), 'unreachable'],
    ['answers with 401, which any intermediary could forge', fails('api_key_rejected'), 'key-refused'],
  ] as const) {
    it(`is tried by one request at a time, and kept, while the service ${what}`, async () => {
      const scene = await verified();
      scene.remote.onAttest = fail;
      const denied = deny(scene, scene.secretId);
      await settle();
      const [one, two, three] = [ask(scene), ask(scene), ask(scene)];
      await scene.clock.advance(5_900);
      assert.deepEqual([one, two, three], [{ secretId: scene.secretId }, {}, {}]);
      await scene.clock.advance(200);
      assert.deepEqual([two, three], [{ secretId: scene.secretId }, {}], 'the next one, after six seconds');
      assert.equal(views(scene)[1], state);
      assert.equal(views(scene)[0], false);
      scene.session.authenticated(scene.secretId);
      await settle();
      assert.deepEqual([three, denied], [{ secretId: scene.secretId }, { secretId: scene.secretId }]);
      assert.equal(scene.events.filter(({ type }) => type === 'secret-known').length, 1);
      assert.equal(views(scene)[1], 'not-renewable', 'the renewal failed, and that is still said');
      assert.deepEqual(scene.permanent, [], 'one denial and one 401 end no proxy');
    });
  }

  it('stays marked while no response authenticates under it: requests get not_ready after 30 s', async () => {
    const scene = await verified();
    scene.remote.onAttest = fails('control_api_failed');
    const denied = deny(scene, scene.secretId);
    await scene.clock.advance(20_000);
    scene.session.authenticated('another');
    assert.equal(views(scene)[0], false);
    await scene.clock.advance(10_000);
    assert.deepEqual(denied, { code: 'not_ready' });
    scene.remote.onAttest = () => {};
    await scene.clock.advance(MINUTE);
    assert.deepEqual(views(scene), [true, 'verified', undefined]);
    assert.notEqual(scene.session.current()?.secretId, scene.secretId);
  });

  it('is dropped by a verdict that rejects; requests are refused at the second one, after six seconds', async () => {
    const scene = await verified();
    scene.remote.verdictCode = 'attestation_failed';
    const denied = deny(scene, scene.secretId);
    await settle();
    assert.deepEqual(views(scene), [false, 'rejected-once', 'attestation_failed']);
    scene.session.authenticated(scene.secretId); // of a response that was on its way
    const asked = ask(scene);
    await scene.clock.advance(5_900);
    assert.deepEqual([denied, asked, views(scene)[0]], [{}, {}, false], 'it may be a moment of a rollout');
    await scene.clock.advance(200);
    assert.deepEqual([denied, asked], [{ code: 'attestation_failed' }, { code: 'attestation_failed' }]);
    scene.remote.onAttest = fails('control_api_failed');
    await scene.clock.advance(20_000);
    assert.deepEqual(views(scene), [false, 'rejected', 'attestation_failed'], 'silence takes nothing back');
  });

  it('is dropped when it is denied after a verdict that rejected its renewal; without a denial it stays', async () => {
    const scene = await verified();
    scene.remote.verdictCode = 'attestation_failed';
    await scene.clock.advance(50 * MINUTE);
    assert.equal(scene.session.current()?.secretId, scene.secretId);
    deny(scene, scene.secretId);
    scene.session.authenticated(scene.secretId);
    assert.equal(scene.session.current(), undefined);
    const asked = ask(scene);
    await scene.clock.advance(6_000);
    assert.deepEqual(asked, { code: 'attestation_failed' });
  });

  for (const [whose, key, isDropped] of [
    ['the configured key', undefined, true],
    ['a key that has worked before', 'first', true],
    ['the key of another client', 'another', false],
  ] as const) {
    it(`is ${isDropped ? 'dropped' : 'kept'} when the secret service refuses ${whose}`, async () => {
      const scene = await verified(key === undefined ? {} : { apiKey: undefined });
      scene.remote.onSecret = fails('api_key_rejected');
      const denied = deny(scene, scene.secretId, key);
      await settle();
      assert.deepEqual(denied, { code: key === undefined ? 'api_key_rejected' : 'secret_denied' });
      scene.session.authenticated(scene.secretId);
      assert.equal(scene.session.current()?.secretId, isDropped ? undefined : scene.secretId);
    });
  }

  it('is answered with secret_denied if it was made a moment ago, and not marked: a worker of the service may lag', async () => {
    const scene = await verified();
    deny(scene, scene.secretId);
    await settle();
    const renewed = scene.session.current()?.secretId ?? '';
    await assert.rejects(scene.session.renewAfterDenial(renewed), withCode('secret_denied'));
    assert.equal(scene.session.current()?.secretId, renewed);
  });

  it('is replaced with another key of the operator', async () => {
    const scene = await verified();
    scene.remote.onAttest = (key) => (key === 'key' ? new Promise(() => {}) : undefined);
    const seen = deny(scene, scene.secretId);
    await settle();
    scene.session.updateConfiguredKey('another');
    await settle();
    assert.ok(seen.secretId !== undefined && seen.secretId !== scene.secretId);
  });
});

describe('the turn to try a denied secret', () => {
  it('is not for requests that only begin, or that are not encrypted', async () => {
    const scene = await verified();
    scene.remote.onAttest = () => new Promise(() => {});
    deny(scene, scene.secretId);
    await settle();
    const { session } = scene;
    const early = await session.acquire({ ...WAIT, trial: 'early' });
    assert.equal(early.secretId, scene.secretId);
    session.acquire({ ...WAIT, trial: 'never' }).catch(() => {});
    await settle();
    assert.equal((await session.acquire(WAIT)).secretId, scene.secretId, 'the turn is still there');
    session.close();
  });
});

describe('an attempt of somebody who has left', () => {
  it('leaves its place to others: honest keys get through while strangers come and go', async () => {
    const scene = await verified({ apiKey: undefined });
    await scene.clock.advance(61 * MINUTE);
    const refused = new PrivatemodeError('api_key_rejected', 'no such key');
    scene.remote.onAttest = (key) =>
      key === 'good'
        ? undefined
        : new Promise((_, reject) => void scene.clock.after(2_000, () => reject(refused)));
    for (let i = 0; i < 200; i++) {
      const leaving = new AbortController();
      scene.session.acquire({ ...WAIT, offeredKey: `junk ${i}`, waiter: leaving }).catch(() => {});
      await settle();
      leaving.abort(new Error('gone'));
      await settle();
    }
    const good = ask(scene, 'good');
    await scene.clock.advance(3_000);
    assert.ok(good.secretId !== undefined);
    scene.session.close();
  });
});

describe('a denied secret where clients bring the keys', () => {
  for (const [whom, key] of [
    ['a stranger with a wrong key', 'junk'],
    ['a client without a key', undefined],
  ] as const) {
    it(`concerns ${whom} alone, who gets secret_denied: the next good key replaces it`, async () => {
      const scene = await verified({ apiKey: undefined });
      scene.remote.onAttest = (each) => (each === 'junk' ? fails('api_key_rejected')() : undefined);
      const denied = deny(scene, scene.secretId, key);
      await settle();
      assert.deepEqual(denied, { code: 'secret_denied' });
      const { state, ready, error, meaning } = scene.session.standing();
      assert.deepEqual(
        [scene.session.current(), state, ready, error],
        [undefined, 'awaiting-key', true, undefined],
      );
      assert.match(meaning, /^The service says that it does not know the secret/);
      const [tried, waiting] = [ask(scene), ask(scene)];
      await settle();
      const keyless = { code: 'api_key_missing' };
      assert.deepEqual([tried, waiting], [keyless, keyless], 'they bring no key to attest with');
      const good = ask(scene, 'good');
      await settle();
      assert.equal(good.secretId, scene.secretId, 'it tries the secret while its key attests');
      assert.notEqual(scene.session.current()?.secretId, scene.secretId);
      assert.equal(scene.session.standing().state, 'verified');
    });
  }
});

describe('a 401, which any intermediary could forge,', () => {
  it('neither ends the proxy nor replaces attestation_failed after a rejecting verdict', async () => {
    const scene = sessionScene({ prepare: { verdictCode: 'attestation_failed' } });
    await settle();
    scene.remote.onAttest = fails('api_key_rejected');
    await scene.clock.advance(5_000);
    assert.deepEqual([scene.permanent, views(scene)], [[], [false, 'rejected-once', 'attestation_failed']]);
  });

  it('fails requests with api_key_rejected while it is the last answer; once the service is silent, with not_ready', async () => {
    const scene = sessionScene({ prepare: { onAttest: fails('api_key_rejected') } });
    await settle();
    await assert.rejects(scene.session.acquire(WAIT), withCode('api_key_rejected'));
    scene.remote.onAttest = fails('upstream_unreachable');
    await scene.clock.advance(MINUTE);
    assert.equal(scene.session.standing().state, 'unreachable');
    const asked = ask(scene);
    await scene.clock.advance(31_000);
    assert.deepEqual([asked, scene.permanent.length], [{ code: 'not_ready' }, 1], 'reported once');
  });
});

describe('an attempt that was given up', () => {
  it('cannot reject the secret of its successor with a late verdict', async () => {
    const scene = sessionScene({ apiKey: 'old' });
    let late = (): void => {};
    scene.remote.onVerify = async (code) => {
      if (code === undefined) return;
      await new Promise<void>((resolve) => {
        late = resolve;
      });
    };
    scene.remote.verdictCode = 'attestation_failed';
    await settle();
    scene.remote.verdictCode = undefined;
    scene.session.updateConfiguredKey('new');
    await settle();
    late();
    await settle();
    assert.deepEqual(views(scene), [true, 'verified', undefined]);
  });

  it('is one that was held back for six seconds while the service is refused: a request begins another', async () => {
    const scene = sessionScene({ prepare: { verdictCode: 'attestation_failed' } });
    await scene.clock.advance(7_000);
    scene.remote.onAttest = () => new Promise(() => {});
    await scene.clock.advance(20_000);
    Object.assign(scene.remote, { onAttest: () => {}, verdictCode: undefined });
    const asked = ask(scene);
    await settle();
    assert.notEqual(asked.secretId, undefined);
  });
});
