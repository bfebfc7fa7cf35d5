/**
 * A secret that the service denies ("no secret for ID") is suspended where it cannot be replaced: nothing
 * says "verified" any more, and nothing is decided for good, since anybody on the way can write a denial
 * (docs/decisions.md 14).
 */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { type ErrorCode, PrivatemodeError } from '../../lib/errors.ts';
import { settle } from '../support/remote/fake-clock.ts';
import { fails, type SessionScene, sessionScene } from '../support/remote/fake-remote.ts';

const MINUTE = 60_000;
const WAIT = { timeoutMs: 30_000 };

/** A session with an epoch, and the id of its secret. */
async function verified(options: Parameters<typeof sessionScene>[0] = {}) {
  const scene = sessionScene(options);
  await settle();
  const secretId = scene.session.current()?.secretId ?? assert.fail('no epoch');
  return { ...scene, secretId };
}

const withCode = (code: ErrorCode) => (error: unknown) => {
  assert.ok(error instanceof PrivatemodeError, String(error));
  assert.equal(error.code, code, error.message);
  return true;
};

/** A request finds the secret denied; what became of it is known once it is over. */
function deny({ session }: Pick<SessionScene, 'session'>, secretId: string) {
  const seen: { error?: unknown; secretId?: string } = {};
  session.renewAfterDenial(secretId).then(
    (epoch) => (seen.secretId = epoch.secretId),
    (error: unknown) => (seen.error = error),
  );
  return seen;
}

/** What the views show: they all read these three. */
const views = ({ session }: Pick<SessionScene, 'session'>) => ({
  verified: session.current() !== undefined,
  state: session.standing().state,
  code: (session.standing().error as PrivatemodeError | undefined)?.code,
});

describe('a session with a denied secret or API key', () => {
  it('replaces the denied secret, without suspending it, if the service verifies again', async () => {
    const scene = await verified();
    const seen = deny(scene, scene.secretId);
    await settle();
    assert.notEqual(seen.secretId, scene.secretId);
    assert.deepEqual(views(scene), { verified: true, state: 'verified', code: undefined });
    assert.equal(scene.events.filter(({ type }) => type === 'secret-suspended').length, 0);
  });

  it('suspends the secret at the first rejection; requests get attestation_failed at the second one, after six seconds', async () => {
    const scene = await verified();
    scene.remote.verdictCode = 'attestation_failed';
    const seen = deny(scene, scene.secretId);
    await settle();
    assert.deepEqual(views(scene), { verified: false, state: 'rejected-once', code: 'attestation_failed' });
    assert.equal(seen.error, undefined, 'one rejection may be a moment of a rollout: the request waits');
    await scene.clock.advance(7_000);
    withCode('attestation_failed')(seen.error);
    await assert.rejects(scene.session.acquire(WAIT), withCode('attestation_failed'));
    assert.equal(scene.events.filter(({ type }) => type === 'secret-suspended').length, 1);
  });

  it('says manifest_mismatch after two mismatches with a pinned manifest; the proxy ends when the secret expires', async () => {
    const scene = await verified({ kind: 'static' });
    scene.remote.verdictCode = 'manifest_mismatch';
    const seen = deny(scene, scene.secretId);
    await settle();
    assert.deepEqual(views(scene), { verified: false, state: 'rejected-once', code: 'manifest_mismatch' });
    assert.equal(seen.error, undefined);
    await scene.clock.advance(6_100);
    withCode('manifest_mismatch')(seen.error);
    assert.deepEqual(views(scene), { verified: false, state: 'rejected', code: 'manifest_mismatch' });
    await scene.clock.advance(50 * MINUTE);
    assert.deepEqual(scene.permanent, []);
    await scene.clock.advance(10 * MINUTE);
    assert.deepEqual(
      scene.permanent.map(({ code }) => code),
      ['manifest_mismatch'],
    );
  });

  it('fails requests with not_ready until the published manifest is that of the service; then it has a new secret', async () => {
    const scene = await verified();
    scene.remote.deployed = 'B';
    const seen = deny(scene, scene.secretId);
    await scene.clock.advance(30_000);
    withCode('not_ready')(seen.error);
    assert.equal(views(scene).verified, false);
    scene.remote.published = 'B';
    const next = scene.session.acquire(WAIT);
    await scene.clock.advance(6_000);
    assert.notEqual((await next).secretId, scene.secretId);
  });

  for (const [what, code] of [
    ['does not answer the renewal', 'control_api_failed'],
    ['answers 401, which any intermediary could forge', 'api_key_rejected'],
  ] as const) {
    it(`lets later requests try the denied secret if the service ${what}, but is not verified meanwhile`, async () => {
      const scene = await verified();
      scene.remote.onAttest = fails(code);
      const seen = deny(scene, scene.secretId);
      await scene.clock.advance(5_000);
      withCode('not_ready')(seen.error);
      const state = code === 'api_key_rejected' ? 'key-refused' : 'unreachable';
      assert.deepEqual(views(scene), { verified: false, state, code });
      assert.equal((await scene.session.acquire(WAIT)).secretId, scene.secretId);
      assert.equal(views(scene).verified, false);
      assert.deepEqual(scene.permanent, [], 'one denial and one 401 end no proxy');
    });
  }

  it('keeps failing with attestation_failed if the renewals after a rejecting verdict get no evidence', async () => {
    const scene = await verified();
    scene.remote.verdictCode = 'attestation_failed';
    deny(scene, scene.secretId);
    await scene.clock.advance(7_000);
    scene.remote.onAttest = fails('control_api_failed');
    await scene.clock.advance(20_000);
    const asking = assert.rejects(scene.session.acquire(WAIT), withCode('attestation_failed'));
    await scene.clock.advance(6_000);
    await asking;
    assert.equal(views(scene).code, 'attestation_failed');
  });

  it('keeps the secret suspended after a rejecting verdict, even if an earlier response authenticates', async () => {
    const scene = await verified();
    scene.remote.verdictCode = 'attestation_failed';
    deny(scene, scene.secretId);
    await settle();
    scene.session.authenticated(scene.secretId);
    assert.equal(views(scene).verified, false);
  });

  it('uses the denied secret again after a response that authenticates under it, not under another secret', async () => {
    const scene = await verified();
    scene.remote.onAttest = fails('control_api_failed');
    deny(scene, scene.secretId);
    await scene.clock.advance(5_000);
    scene.session.authenticated('another');
    assert.equal(views(scene).verified, false);
    scene.session.authenticated(scene.secretId);
    assert.equal(scene.session.current()?.secretId, scene.secretId);
    assert.equal(views(scene).state, 'not-renewable', 'the last renewal failed, and that is still said');
  });

  it('replaces the secret at the next accepted verdict, and keeps no trace of earlier rejections', async () => {
    const scene = await verified({ kind: 'static' });
    scene.remote.verdictCode = 'manifest_mismatch'; // the evidence of a machine that somebody rents
    deny(scene, scene.secretId);
    await scene.clock.advance(7_000);
    assert.equal(views(scene).code, 'manifest_mismatch');
    scene.remote.verdictCode = undefined;
    await scene.clock.advance(5_000);
    const next = scene.session.acquire(WAIT);
    await scene.clock.advance(1_000);
    assert.notEqual((await next).secretId, scene.secretId);
    assert.deepEqual(views(scene), { verified: true, state: 'verified', code: undefined });
    assert.deepEqual(scene.permanent, []);
  });

  it('suspends the secret if the renewal takes longer than requests wait', async () => {
    const scene = await verified();
    scene.remote.onAttest = () => new Promise(() => {});
    const seen = deny(scene, scene.secretId);
    await scene.clock.advance(30_000);
    withCode('not_ready')(seen.error);
    assert.equal(views(scene).verified, false);
    assert.equal(
      (await scene.session.acquire(WAIT)).secretId,
      scene.secretId,
      'no verdict speaks against it',
    );
  });

  it('suspends the secret once per denial, even if the renewal fails after the requests stopped waiting', async () => {
    const scene = await verified();
    const hanging = Promise.withResolvers<void>();
    scene.remote.onAttest = () => hanging.promise;
    deny(scene, scene.secretId);
    await scene.clock.advance(30_000);
    scene.session.authenticated(scene.secretId);
    scene.remote.onAttest = fails('control_api_failed');
    hanging.reject(new PrivatemodeError('control_api_failed', 'at last'));
    await scene.clock.advance(5_000);
    assert.equal(scene.session.current()?.secretId, scene.secretId);
  });

  it('does not suspend the secret when it is closed, nor if the renewal goes on with another API key', async () => {
    const scene = await verified();
    scene.remote.onAttest = (key) => (key === 'key' ? new Promise(() => {}) : undefined);
    const seen = deny(scene, scene.secretId);
    await settle();
    scene.session.updateConfiguredKey('another');
    await settle();
    assert.notEqual(seen.secretId ?? scene.secretId, scene.secretId);
    scene.remote.onAttest = () => new Promise(() => {});
    await scene.clock.advance(11_000);
    const last = deny(scene, scene.session.current()?.secretId ?? '');
    await settle();
    scene.session.close();
    await settle();
    withCode('shutting_down')(last.error);
    assert.equal(scene.events.filter(({ type }) => type === 'secret-suspended').length, 0);
  });

  it('answers secret_denied for a secret made a moment ago, and keeps it: a worker of the service may lag', async () => {
    const scene = await verified();
    deny(scene, scene.secretId);
    await settle();
    const renewed = scene.session.current()?.secretId ?? '';
    await assert.rejects(scene.session.renewAfterDenial(renewed), withCode('secret_denied'));
    assert.equal(scene.session.current()?.secretId, renewed);
  });

  it('keeps its secret until it expires if a renewal is rejected without a denial of the secret', async () => {
    const scene = await verified();
    scene.remote.verdictCode = 'attestation_failed';
    await scene.clock.advance(50 * MINUTE);
    assert.equal(scene.session.current()?.secretId, scene.secretId);
    await scene.clock.advance(6 * MINUTE);
    assert.equal(scene.session.current(), undefined);
  });

  it('renews the denied secret with the API key of the next client if the kept key was rejected', async () => {
    const scene = sessionScene({ apiKey: undefined });
    const { secretId } = await scene.session.acquire({ ...WAIT, offeredKey: 'first' });
    scene.remote.onAttest = fails('api_key_rejected');
    const seen = deny(scene, secretId);
    await settle();
    withCode('not_ready')(seen.error); // the rejected key is that of another client
    assert.equal(scene.session.standing().state, 'awaiting-key');
    scene.remote.onAttest = () => {};
    const tried = await scene.session.acquire({ ...WAIT, offeredKey: 'second' });
    assert.equal(
      tried.secretId,
      secretId,
      'a 401 on the way may be forged, so the secret is tried meanwhile',
    );
    await settle();
    const next = await scene.session.acquire({ ...WAIT, offeredKey: 'second' });
    assert.notEqual(next.secretId, secretId);
    assert.equal(scene.session.standing().state, 'verified');
  });

  it('tells the next clients client_too_old, not that the API key of an earlier client was rejected', async () => {
    const scene = sessionScene({ apiKey: undefined });
    await scene.session.acquire({ ...WAIT, offeredKey: 'a' });
    scene.remote.onAttest = fails('api_key_rejected');
    await scene.clock.advance(56 * MINUTE);
    scene.remote.onAttest = fails('client_too_old');
    for (const offeredKey of ['b', 'c'])
      await assert.rejects(scene.session.acquire({ ...WAIT, offeredKey }), withCode('client_too_old'));
    const { state, error } = scene.session.standing();
    assert.deepEqual([state, error?.code], ['client-too-old', 'client_too_old']);
  });

  it('stays verified if one API key fails after another one has attested', async () => {
    const scene = sessionScene({ apiKey: undefined });
    const late = Promise.withResolvers<void>();
    scene.remote.onAttest = async (key) => {
      if (key !== 'b') return;
      await late.promise;
      fails('control_api_failed')();
    };
    const slow = scene.session.acquire({ ...WAIT, offeredKey: 'b' });
    await scene.session.acquire({ ...WAIT, offeredKey: 'a' });
    await slow;
    late.resolve();
    await scene.clock.advance(5_000);
    assert.ok(scene.events.some(({ type }) => type === 'offer-failed'));
    assert.equal(scene.session.standing().state, 'verified');
  });
});

describe('a 401, which any intermediary could forge,', () => {
  it('neither ends the proxy nor replaces attestation_failed after a rejecting verdict', async () => {
    const scene = sessionScene({ prepare: { verdictCode: 'attestation_failed' } });
    await settle();
    scene.remote.onAttest = fails('api_key_rejected');
    await scene.clock.advance(5_000);
    assert.deepEqual(
      [scene.permanent, views(scene).state, views(scene).code],
      [[], 'rejected-once', 'attestation_failed'],
    );
  });

  it('fails requests with api_key_rejected while it is the last answer; once the service is silent, with not_ready', async () => {
    const scene = sessionScene({ prepare: { onAttest: fails('api_key_rejected') } });
    await settle();
    await assert.rejects(scene.session.acquire(WAIT), withCode('api_key_rejected'));
    scene.remote.onAttest = fails('upstream_unreachable');
    await scene.clock.advance(10_000);
    assert.equal(views(scene).state, 'unreachable');
    const waiting = assert.rejects(scene.session.acquire(WAIT), withCode('not_ready'));
    await scene.clock.advance(31_000);
    await waiting;
    assert.equal(scene.permanent.length, 1, 'reported once');
  });

  it('does not keep later requests from attesting: the service is verified six seconds after the last failure', async () => {
    const scene = sessionScene({ random: () => 0.99, prepare: { onAttest: fails('api_key_rejected') } });
    await settle();
    assert.equal(scene.permanent.length, 1);
    scene.remote.onAttest = fails('control_api_failed');
    await scene.clock.advance(1_000);
    scene.remote.onAttest = () => {};
    let answered = false;
    for (let i = 0; i < 12 && !answered; i++) {
      scene.session.acquire(WAIT).then(
        () => {
          answered = true;
        },
        () => {},
      );
      await scene.clock.advance(500);
    }
    assert.ok(answered);
  });
});

describe('a renewal that was given up', () => {
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
    assert.equal(views(scene).state, 'verified');
    late();
    await settle();
    assert.equal(views(scene).state, 'verified');
  });
});
