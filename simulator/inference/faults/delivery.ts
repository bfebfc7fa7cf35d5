/** Faults of delivery: the bytes are right, but arrive in odd pieces, late, or not completely. */
import type { Step } from '../wire.ts';
import { type Change, type FaultRow, harmless, isAt, row } from './intervention.ts';

type Delivery = { readonly delivery: Change<Buffer, Step> };

/** ms between two writes, so that they arrive as two reads. */
const APART = { wait: 1 };

/** Takes a step in the middle of the event at this index, or of a whole response. */
const inside = (event: number, step: Step): Delivery => ({
  delivery(piece, place) {
    if (!isAt(event, place)) return [piece];
    const middle = piece.length >> 1;
    return [piece.subarray(0, middle), step, piece.subarray(middle)];
  },
});

export const DELIVERY_FAULTS = {
  reset_after_headers: row('resets the connection after the head', () => ({ delivery: () => ['reset'] })),
  reset_mid_event: row('resets the connection inside event n (3)', ({ event }) => inside(event(), 'reset')),
  half_close: row('closes the sending side inside event n (3)', ({ event }) => inside(event(), 'half')),
  stall_mid: row(
    'stops inside event n (3); second argument: for this many ms (until the client leaves)',
    ({ event, number }) => inside(event(), { wait: number(1, Number.POSITIVE_INFINITY) }),
  ),
  trickle: harmless(
    row('sends every byte on its own, this many ms apart (0)', ({ number }) => {
      const step = { wait: number(0, 0) };
      return { delivery: (piece) => [...piece].flatMap((byte): Step[] => [Buffer.of(byte), step]) };
    }),
  ),
  split_events: harmless(
    row('cuts the n-th event in two after its n-th byte', () => ({
      // A long stream tries every position.
      delivery(piece, { index }) {
        const at = (index % piece.length) + 1;
        return [piece.subarray(0, at), APART, piece.subarray(at)];
      },
    })),
  ),
} satisfies Record<string, FaultRow>;
