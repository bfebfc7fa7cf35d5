import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { type ErrorCode, PrivatemodeError } from '../../lib/errors.ts';
import type { Epoch } from '../../lib/session/session.ts';
import { settle } from '../support/remote/fake-clock.ts';
import { fails, type SessionScene, sessionScene } from '../support/remote/fake-remote.ts';

const CODES: readonly (ErrorCode | 'none' | 'slow')[] = [
  'none',
  'none',
  'slow',
  'upstream_unreachable',
  'api_key_rejected',
  'attestation_failed',
];

const operation = fc.oneof(
  fc.record({ op: fc.constant('advance' as const), ms: fc.integer({ min: 0, max: 20 * 60_000 }) }),
  fc.record({ op: fc.constant('jump' as const), ms: fc.integer({ min: -3_600_000, max: 7_200_000 }) }),
  fc.record({ op: fc.constant('remote' as const), code: fc.constantFrom(...CODES) }),
  fc.record({ op: fc.constant('acquire' as const), key: fc.constantFrom(undefined, 'a', 'b') }),
  fc.record({ op: fc.constant('force' as const) }),
  fc.record({ op: fc.constant('key' as const), key: fc.constantFrom('c', 'd') }),
);
type Operation = typeof operation extends fc.Arbitrary<infer T> ? T : never;

interface Watch extends SessionScene {
  readonly running: { now: number; most: number };
  readonly pending: Promise<unknown>[];
}

function watch(apiKey: string | undefined): Watch {
  return { ...sessionScene({ apiKey }), running: { now: 0, most: 0 }, pending: [] };
}

function behave({ remote, clock, running }: Watch, code: (typeof CODES)[number]): void {
  remote.onAttest = async () => {
    running.most = Math.max(running.most, ++running.now);
    try {
      await new Promise<void>((resolve) => void clock.after(code === 'slow' ? 20_000 : 5, resolve));
      if (code !== 'none' && code !== 'slow') fails(code)();
    } finally {
      running.now--;
    }
  };
}

/** Whatever an operation ends with: an epoch that is good at that very moment, or one of our errors. */
function follow({ clock, pending, remote }: Watch, result: Promise<Epoch>): void {
  pending.push(
    result.then(
      (epoch) => {
        assert.ok(clock.now() < epoch.expiresAt, 'an expired epoch was handed out');
        assert.ok(remote.calls.includes('record A'), 'an epoch came before the line in the log');
      },
      (error: unknown) => assert.ok(error instanceof PrivatemodeError, String(error)),
    ),
  );
}

async function perform(scene: Watch, step: Operation): Promise<void> {
  const { session, clock } = scene;
  if (step.op === 'advance') await clock.advance(step.ms);
  if (step.op === 'jump') clock.jump(step.ms);
  if (step.op === 'remote') behave(scene, step.code);
  if (step.op === 'acquire') follow(scene, session.acquire({ timeoutMs: 30_000, offeredKey: step.key }));
  if (step.op === 'force') follow(scene, session.renewAfterDenial(session.current()?.secretId ?? ''));
  if (step.op === 'key') session.updateConfiguredKey(step.key);
  assert.ok(clock.now() < (session.current()?.expiresAt ?? Number.POSITIVE_INFINITY));
  assert.equal(session.standing().verified, session.current() !== undefined);
}

describe('session under any sequence of events', () => {
  for (const apiKey of ['key', undefined]) {
    it(`hands out valid secrets only, recovers, and leaves no timers, ${apiKey === undefined ? 'without' : 'with'} a configured key`, async () => {
      await fc.assert(
        fc.asyncProperty(fc.array(operation, { maxLength: 25 }), async (steps) => {
          const scene = watch(apiKey);
          behave(scene, 'none');
          for (const step of steps) await perform(scene, step);
          // However it went: when the remote is well again, a request with a key gets its epoch.
          behave(scene, 'none');
          await scene.clock.advance(31_000);
          const last = scene.session.acquire({ timeoutMs: 30_000, offeredKey: 'fresh' });
          await scene.clock.advance(31_000);
          assert.ok((await last).expiresAt > scene.clock.now() - 31_000);
          scene.session.close();
          await scene.clock.advance(31_000);
          await Promise.all(scene.pending);
          await settle();
          assert.deepEqual(scene.clock.timers(), { all: 0, waiting: 0 });
        }),
        { seed: 20261121, numRuns: 20 },
      );
    });
  }

  it('runs at most one attestation at a time with a configured key', async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(operation, { maxLength: 25 }), async (steps) => {
        const scene = watch('key');
        behave(scene, 'none');
        await settle();
        for (const step of steps.filter(({ op }) => op !== 'key')) await perform(scene, step);
        assert.ok(scene.running.most <= 1, `${scene.running.most} at a time`);
        scene.session.close();
        await scene.clock.advance(31_000);
      }),
      { seed: 20261121, numRuns: 20 },
    );
  });

  it('loses no secret, and no request with a good key, to strangers who deny it with wrong keys or none', async () => {
    const stranger = fc.record({
      op: fc.constantFrom('deny', 'acquire', 'advance'),
      key: fc.constantFrom(undefined, 'wrong', 'bad', 'junk'),
      ms: fc.integer({ min: 0, max: 40_000 }),
    });
    await fc.assert(
      fc.asyncProperty(fc.array(stranger, { maxLength: 40 }), async (steps) => {
        const { session, clock, remote } = sessionScene({ apiKey: undefined });
        remote.onAttest = (key) => (key === 'good' ? undefined : fails('api_key_rejected')());
        const good = { timeoutMs: 30_000, offeredKey: 'good' };
        const { secretId, expiresAt } = await session.acquire(good);
        for (const { op, key, ms } of steps) {
          if (op === 'advance') await clock.advance(ms);
          if (op === 'deny') session.renewAfterDenial(secretId, undefined, key).catch(() => {});
          if (op === 'acquire') session.acquire({ timeoutMs: 30_000, offeredKey: key }).catch(() => {});
          assert.equal(session.standing().verified, session.current() !== undefined);
        }
        await settle();
        session.authenticated(secretId);
        if (clock.now() < expiresAt) assert.equal(session.current()?.secretId, secretId, 'it was dropped');
        session.renewAfterDenial(secretId, undefined, 'junk').catch(() => {});
        const served = await session.acquire(good);
        assert.ok(clock.now() < served.expiresAt);
        session.close();
        await clock.advance(31_000);
        assert.deepEqual(clock.timers(), { all: 0, waiting: 0 });
      }),
      { seed: 20261121, numRuns: 40 },
    );
  });

  it('serves a good key in its turn, however many strangers send one wrong key after another', async () => {
    const setting = fc.record({
      strangers: fc.integer({ min: 1, max: 24 }),
      latency: fc.integer({ min: 200, max: 2_000 }),
      before: fc.integer({ min: 0, max: 5_000 }),
      isExpired: fc.boolean(),
    });
    await fc.assert(
      fc.asyncProperty(setting, async ({ strangers, latency, before, isExpired }) => {
        const { session, clock, remote } = sessionScene({ apiKey: undefined });
        const good = { timeoutMs: 30_000, offeredKey: 'good' };
        if (isExpired) await session.acquire(good);
        await clock.advance(isExpired ? 56 * 60_000 : 0);
        remote.onAttest = async (key) => {
          await new Promise<void>((resolve) => void clock.after(latency, resolve));
          if (key !== 'good') fails('api_key_rejected')();
        };
        let keys = 0;
        let isOver = false;
        for (let i = 0; i < strangers; i++)
          void (async () => {
            while (!isOver)
              await session.acquire({ timeoutMs: 30_000, offeredKey: `junk ${keys++}` }).catch(() => {});
          })();
        await clock.advance(before);
        const served = session.acquire(good).finally(() => {
          isOver = true;
        });
        await clock.advance(latency * (Math.ceil(strangers / 8) + 1) + 100);
        assert.ok(isOver, 'it waits for longer than its turn');
        assert.equal(await served, session.current());
        session.close();
        await clock.advance(31_000);
      }),
      { seed: 20261121, numRuns: 10 },
    );
  });
});
