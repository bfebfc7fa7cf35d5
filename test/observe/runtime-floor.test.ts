import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { runtimeDefect } from '../../lib/observe/runtime-floor.ts';
import { RUNTIME_VERSION } from '../../scripts/node-runtime.ts';

describe('the Node that runs the program', () => {
  for (const [version, defect] of [
    ['24.11.0', 'Node 24.11.0 is older than 24.14.1'],
    ['24.14.0', 'Node 24.14.0 is older than 24.14.1'],
    ['24.14.1', undefined],
    ['24.21.0', undefined],
    ['26.9.1', 'Node 26.9.1 is older than 26.10.0'],
    ['26.10.0', undefined],
    ['27.0.0', 'Node 27.0.0 is of a line that this program is not tested with'],
    ['25.8.2', 'Node 25.8.2 is of a line that this program is not tested with'],
  ] as const)
    it(`has a version that is judged by its line: ${version}`, () =>
      assert.equal(runtimeDefect(version), defect));

  it('is recent enough where it is the one that is built in', () =>
    assert.equal(runtimeDefect(RUNTIME_VERSION), undefined));
});
