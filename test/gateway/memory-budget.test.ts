/** The memory that all uploads share: what is reserved of it, who waits, and that nothing stays reserved. */

import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { clockWith } from '../../lib/clock.ts';
import { PrivatemodeError } from '../../lib/errors.ts';
import { createUploadBudget, type Reservation } from '../../lib/gateway/memory-budget.ts';
import { TIMES } from '../../lib/times.ts';

const MIB = 1024 * 1024;
const never = new AbortController().signal;
const withCode = (code: string) => (thrown: unknown) =>
  thrown instanceof PrivatemodeError && thrown.code === code;

function budgetOf(limit: number, wait = 60_000) {
  const counters = { bufferedBytes: 0 };
  const budget = createUploadBudget(limit, {
    counters,
    clock: clockWith({ ...TIMES, memoryWait: wait }),
  });
  /** One that has its bytes. */
  const holding = async (bytes: number): Promise<Reservation> => {
    const reservation = budget.open();
    await reservation.reserve(bytes, never);
    return reservation;
  };
  return { ...budget, holding, reserved: () => counters.bufferedBytes };
}

/** The names of those whose promise has resolved, in that order. */
function admissions(): { readonly names: string[]; note(name: string, waiting: Promise<void>): void } {
  const names: string[] = [];
  return {
    names,
    note: (name, waiting) =>
      void waiting.then(
        () => names.push(name),
        () => {},
      ),
  };
}

const turn = (): Promise<void> => new Promise((done) => setImmediate(done));

describe('the memory of uploads', () => {
  it('is given to waiting bodies in their order when other bodies release theirs', async () => {
    const { open, holding, reserved } = budgetOf(80 * MIB);
    const [first, second] = [await holding(40 * MIB), await holding(30 * MIB)];
    const { names, note } = admissions();
    const [a, b, c] = [open(), open(), open()];
    note('a', a.reserve(35 * MIB, never));
    note('b', b.reserve(10 * MIB, never));
    await turn();
    assert.deepEqual([names, reserved()], [[], 70 * MIB]);
    second.release();
    await turn();
    assert.deepEqual(names, [], 'b overtook a');
    note('c', c.reserve(2 * MIB, never));
    first.release();
    await turn();
    assert.deepEqual([names, reserved()], [['a', 'b', 'c'], 47 * MIB]);
    for (const each of [a, b, c]) each.release();
    assert.equal(reserved(), 0);
  });

  it('has an eighth reserved for small bodies, which do not wait behind large ones', async () => {
    const { open, holding, reserved } = budgetOf(80 * MIB);
    const large = await holding(70 * MIB);
    const { names, note } = admissions();
    const another = open();
    note('large', another.reserve(5 * MIB, never));
    const small = await holding(MIB);
    await turn();
    assert.deepEqual([names, reserved()], [[], 71 * MIB]);
    for (const each of [large, small, another]) each.release();
    await turn();
    assert.deepEqual([names, reserved()], [['large'], 0]);
  });

  it('can be given to one body as a whole', async () => {
    const { holding, open, reserved } = budgetOf(80 * MIB);
    (await holding(80 * MIB)).release();
    const growing = open();
    for (let i = 0; i < 80; i++) growing.grow(MIB);
    assert.equal(reserved(), 80 * MIB);
    growing.release();
  });

  it('is refused at once to a body that is larger than all of it', async () => {
    const { open, reserved } = budgetOf(100);
    await assert.rejects(open().reserve(101, never), withCode('body_too_large'));
    const growing = open();
    growing.grow(100);
    assert.throws(() => growing.grow(1), withCode('body_too_large'));
    growing.release();
    assert.equal(reserved(), 0);
  });

  it('is refused at once to a body of unknown length if not enough is free', async () => {
    const { open, holding, reserved } = budgetOf(100);
    const held = await holding(60);
    const growing = open();
    growing.grow(40);
    assert.throws(() => growing.grow(1), withCode('too_many_uploads'));
    growing.release();
    held.release();
    assert.equal(reserved(), 0);
  });

  it('is refused to a body that has waited too long, and given to the bodies behind it', async () => {
    const { open, holding, reserved } = budgetOf(100, 20);
    const held = await holding(90);
    const waiting = open();
    const given = assert.rejects(waiting.reserve(50, never), withCode('too_many_uploads'));
    const behind = open().reserve(10, never);
    await given;
    await behind;
    assert.equal(reserved(), 100);
    held.release();
    waiting.release();
    assert.equal(reserved(), 10);
  });

  it('is refused to a body whose request has ended, with the reason of that end', async () => {
    const { open, holding, reserved } = budgetOf(100);
    const held = await holding(90);
    const control = new AbortController();
    const waiting = assert.rejects(open().reserve(50, control.signal), /the client went away/);
    control.abort(new Error('the client went away'));
    await waiting;
    await assert.rejects(open().reserve(50, control.signal), /the client went away/);
    const released = open();
    const dropped = assert.rejects(released.reserve(50, never), withCode('too_many_uploads'));
    released.release();
    await dropped;
    await assert.rejects(released.reserve(1, never), withCode('too_many_uploads'));
    assert.throws(() => released.grow(1), withCode('too_many_uploads'));
    held.release();
    assert.equal(reserved(), 0);
  });

  it('is never exceeded, and none of it stays reserved, in whatever order things happen', async () => {
    const LIMIT = 3 * MIB;
    const bytes = fc.oneof(fc.nat({ max: 20 }), fc.nat({ max: LIMIT + 10 }));
    const steps = fc.array(
      fc.record({
        who: fc.nat({ max: 5 }),
        what: fc.constantFrom('reserve', 'grow', 'grow', 'abort', 'release', 'turn'),
        bytes,
      }),
      { maxLength: 60 },
    );
    /** The property once failed for these. */
    const EXCEEDED = [
      { who: 5, what: 'reserve', bytes: 472_208 },
      { who: 4, what: 'reserve', bytes: 2_280_305 },
      { who: 4, what: 'reserve', bytes: 1_048_577 },
    ];
    await fc.assert(
      fc.asyncProperty(steps, async (script) => {
        const { open, reserved } = budgetOf(LIMIT);
        const requests = Array.from({ length: 6 }, () => ({
          reservation: open(),
          control: new AbortController(),
          own: 0,
          reserves: false, // a body of known length is reserved once
          over: false,
        }));
        const outcomes: Promise<unknown>[] = [];
        for (const step of script) {
          const request = requests[step.who]!;
          const { reservation, control } = request;
          if (step.what === 'reserve') {
            if (request.reserves) continue;
            request.reserves = true;
            outcomes.push(
              reservation.reserve(step.bytes, control.signal).then(
                () => {
                  if (!request.over) request.own += step.bytes;
                },
                () => {},
              ),
            );
          } else if (step.what === 'grow') {
            try {
              reservation.grow(step.bytes);
              request.own += step.bytes;
            } catch {}
          } else if (step.what === 'abort') control.abort(new Error('gone'));
          else if (step.what === 'release') {
            request.over = true;
            request.own = 0;
            reservation.release();
          } else {
            await turn();
            assert.equal(
              reserved(),
              requests.reduce((sum, { own }) => sum + own, 0),
            );
          }
          assert.ok(reserved() >= 0 && reserved() <= LIMIT, `${reserved()} bytes`);
        }
        for (const { reservation } of requests) reservation.release();
        await Promise.all(outcomes); // none of them is left waiting
        assert.equal(reserved(), 0);
      }),
      { seed: 20261122, numRuns: 300, examples: [[EXCEEDED]] },
    );
  });
});
