/** Faults of delivery: the bytes are right, but arrive in odd pieces, late, or not completely. */
import type { Framed, Step, Steps } from '../wire.ts';
import type { FaultRow } from './intervention.ts';

const DEFAULT_EVENT = 3;

/** ms between two writes, so that they arrive as two reads. */
const APART_MS = 1;

const write = (bytes: Buffer): Step => ({ do: 'write', bytes });
const wait = (ms: number): Step => ({ do: 'wait', ms });

/**
 * Inserts a step in the middle of event `position` (for a unary response: in the middle of its body). A cut
 * ends the delivery there.
 */
async function* inside(steps: Steps, { streaming }: Framed, position: number, inserted: Step): Steps {
  let left = streaming ? position : 0;
  for await (const step of steps) {
    if (step.do !== 'write' || left-- !== 0) {
      yield step;
      continue;
    }
    const middle = step.bytes.length >> 1;
    yield write(step.bytes.subarray(0, middle));
    yield inserted;
    if (inserted.do === 'cut') return;
    yield write(step.bytes.subarray(middle));
  }
}

/** Cuts the n-th event in two after its n-th byte, so that a long stream tries every position. */
async function* split(steps: Steps): Steps {
  let position = 0;
  for await (const step of steps) {
    if (step.do !== 'write') {
      yield step;
      continue;
    }
    const at = (position++ % step.bytes.length) + 1;
    yield write(step.bytes.subarray(0, at));
    yield wait(APART_MS);
    if (at < step.bytes.length) yield write(step.bytes.subarray(at));
  }
}

async function* byteByByte(steps: Steps, ms: number): Steps {
  for await (const step of steps) {
    if (step.do !== 'write') {
      yield step;
      continue;
    }
    for (let at = 0; at < step.bytes.length; at++) {
      yield write(step.bytes.subarray(at, at + 1));
      yield wait(ms);
    }
  }
}

async function* cutAtOnce(): Steps {
  yield { do: 'cut', how: 'reset' };
}

export const DELIVERY_FAULTS = {
  reset_after_headers: {
    does: 'resets the connection after the head',
    applies: 'any',
    arm: () => ({ steps: cutAtOnce }),
  },
  reset_mid_event: {
    does: 'resets the connection inside event n (3)',
    applies: 'any',
    arm: (args) => ({
      steps: (steps, framed) =>
        inside(steps, framed, args.number(0, DEFAULT_EVENT), { do: 'cut', how: 'reset' }),
    }),
  },
  half_close: {
    does: 'closes the sending side inside event n (3)',
    applies: 'any',
    arm: (args) => ({
      steps: (steps, framed) =>
        inside(steps, framed, args.number(0, DEFAULT_EVENT), { do: 'cut', how: 'half' }),
    }),
  },
  stall_mid: {
    does: 'stops inside event n (3); second argument: for this many ms (until the client leaves)',
    applies: 'any',
    arm: (args) => ({
      steps: (steps, framed) =>
        inside(steps, framed, args.number(0, DEFAULT_EVENT), wait(args.number(1, Number.POSITIVE_INFINITY))),
    }),
  },
  trickle: {
    does: 'sends every byte on its own, this many ms apart (0)',
    applies: 'any',
    harmless: true,
    arm: (args) => ({ steps: (steps) => byteByByte(steps, args.number(0, 0)) }),
  },
  split_events: {
    does: 'cuts the n-th event in two after its n-th byte',
    applies: 'any',
    harmless: true,
    arm: () => ({ steps: split }),
  },
} satisfies Record<string, FaultRow>;
