/** The shares that a benchmark reads from a CPU profile. */
import assert from 'node:assert/strict';
import { it } from 'node:test';
import { stagesIn } from '../../bench/stages.ts';

const node = (id: number, functionName: string, url: string, children: readonly number[] = []) => ({
  id,
  callFrame: { functionName, url },
  children,
});

const PROFILE = {
  nodes: [
    node(1, '(root)', '', [2, 3, 4, 5, 9]),
    node(2, '(idle)', ''),
    node(3, '(garbage collector)', ''),
    node(4, 'later', 'node:internal/timers'),
    node(5, 'feed', 'file:///x/lib/pipeline/decrypt-events.ts', [6, 7]),
    node(6, 'update', '', [8]),
    node(7, 'read', 'file:///x/lib/pipeline/sse/read-event.ts'),
    node(8, 'open', 'file:///x/lib/envelope/message-cipher.ts', [10]),
    node(9, 'onStreamRead', 'node:internal/stream_base_commons', [11]),
    node(10, 'toString', ''),
    node(11, 'writev', 'node:internal/stream_base_commons'),
  ],
  // The first lies before the part that counts.
  samples: [4, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11],
  timeDeltas: [900, 100, 10, 10, 10, 10, 10, 10, 10, 10, 10],
};

it('a profile of the benchmark counts each sample for the stage of its nearest known caller, and leaves out idle time', () => {
  const shares = stagesIn(PROFILE, 0.19);
  const ninths = Object.fromEntries(
    Object.entries(shares).map(([stage, share]) => [stage, Math.round(9 * share)]),
  );
  assert.deepEqual(ninths, {
    'garbage collection': 1,
    'timers, streams between, rest': 1,
    frame: 2,
    parse: 1,
    decrypt: 2,
    read: 1,
    write: 1,
  });
});
