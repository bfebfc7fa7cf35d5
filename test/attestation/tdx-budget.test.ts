/** What a TDX verdict may cost. The least of several runs is judged, so that a busy machine does not decide. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { encodeQuoteV4 } from '../../lib/attestation/tdx/message.ts';
import { TDX } from '../../lib/attestation/tdx/verify.ts';
import { verify } from '../../lib/attestation/verify.ts';
import { tdxPlatform } from '../support/tdx-platform.ts';
import { syntheticInput } from '../support/tdx-vectors.ts';

const RUNS = 5;

/** CPU milliseconds of a run, and the longest time in which no other work could run. */
async function cost(work: () => Promise<unknown>): Promise<{ readonly cpu: number; readonly held: number }> {
  const runs: { cpu: number; held: number }[] = [];
  for (let i = 0; i < RUNS; i++) {
    let held = 0;
    let last = performance.now();
    let running = true;
    const tick = (): void => {
      const now = performance.now();
      held = Math.max(held, now - last);
      last = now;
      if (running) setImmediate(tick);
    };
    tick();
    const before = process.cpuUsage();
    await work();
    const { user, system } = process.cpuUsage(before);
    running = false;
    tick();
    runs.push({ cpu: (user + system) / 1000, held });
  }
  return {
    cpu: Math.min(...runs.map(({ cpu }) => cpu)),
    held: Math.min(...runs.map(({ held }) => held)),
  };
}

describe('a TDX verdict', () => {
  it('costs less than 50 ms of CPU and never holds the event loop for 10 ms', async () => {
    const input = syntheticInput();
    const { cpu, held } = await cost(() => verify(input));
    assert.ok(cpu < 50, `${cpu} ms`);
    assert.ok(held < 10, `${held} ms`);
  });

  const MEGABYTE = 1 << 20;
  const garbage: readonly (readonly [string, Uint8Array])[] = [
    ['zeros', new Uint8Array(MEGABYTE)],
    ['numbers of unknown fields', new Uint8Array(MEGABYTE).fill(0x78)],
    ['noise', Uint8Array.from({ length: MEGABYTE }, (_, i) => (i * 2654435761) >>> 13)],
  ];
  for (const [name, raw] of garbage) {
    it(`on a megabyte of ${name} is a refusal within 50 ms`, async () => {
      const { cpu } = await cost(async () => {
        assert.throws(() => TDX.decode(raw), { code: 'evidence_malformed' });
      });
      assert.ok(cpu < 50, `${cpu} ms`);
    });
  }

  it('is not given on a message with a megabyte in an unsigned field', () => {
    const message = encodeQuoteV4({ ...tdxPlatform().quote, extraBytes: new Uint8Array(MEGABYTE) });
    const before = performance.now();
    assert.throws(() => TDX.decode(message), { code: 'evidence_malformed' });
    assert.ok(performance.now() - before < 50);
  });
});
