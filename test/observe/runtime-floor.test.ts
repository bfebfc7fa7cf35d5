import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { NODE_FLOORS, runtimeDefect } from '../../lib/observe/runtime-floor.ts';
import { RUNTIME_VERSION } from '../../scripts/node-runtime.ts';

describe('the check of the Node that runs the program', () => {
  for (const [version, defect] of [
    ['24.22.2', 'Node 24.22.2 is older than 24.22.3 and lacks security fixes: SECURITY.md says what to do'],
    ['24.22.3', undefined],
    ['24.100.0', undefined],
    ['27.0.0', 'Node 27.0.0 is of a line that this program is not tested with'],
  ] as const)
    it(`says of ${version}: ${defect}`, () => assert.equal(runtimeDefect(version), defect));

  it('knows the line of the Node that is built into the program, which is not the newest of it', () => {
    // Once this fails, the advice can go, here and in SECURITY.md.
    assert.match(runtimeDefect(RUNTIME_VERSION) ?? '', /is older than/);
    assert.ok(NODE_FLOORS[RUNTIME_VERSION.slice(0, 2)]);
  });
});
