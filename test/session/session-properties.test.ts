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
});
