/**
 * Test files in one process, each as a suite that is named by its path: starting Node, and loading what they
 * share, takes longer than most of them. A file that leaves the process other than it found it fails, since
 * those after it must not depend on it.
 */
import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { after, describe } from 'node:test';
import { isDeepStrictEqual } from 'node:util';

/** What a test could change for all that come after it. */
const state = (): unknown[] => [
  process.cwd(),
  ...Object.entries(process.env).map(([name, value]) => `${name}=${value}`),
  ...[Date, fetch, setImmediate, setInterval, setTimeout],
];

/** ms for what the last tests left open, such as a connection that is kept alive. */
const LINGER = 2_000;

/** Files by their paths below `root`. The process ends soon after the last of them, whatever is open. */
export function together(root: string, files: readonly string[]): void {
  const require = createRequire(join(root, 'package.json'));
  for (const file of files)
    describe(file, () => {
      require(join(root, file));
      const found = state();
      after(() => {
        if (file === files.at(-1)) setTimeout(() => process.exit(), LINGER).unref();
        assert.ok(isDeepStrictEqual(state(), found), 'it changed the directory, the environment or a global');
      });
    });
}
