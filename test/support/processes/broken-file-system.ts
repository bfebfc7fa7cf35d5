/** Functions of the file system that fail as a test says, until its end. */
import fs from 'node:fs/promises';
import { syncBuiltinESMExports } from 'node:module';
import type { TestContext } from 'node:test';

/** Puts another function in the place of one of node:fs/promises, for all who import it. */
export function breakFs(
  t: TestContext,
  name: 'link' | 'open' | 'readdir' | 'readFile' | 'rm',
  replacement: (...args: never[]) => unknown,
): void {
  t.mock.method(fs, name, replacement as never);
  syncBuiltinESMExports();
  t.after(() => {
    t.mock.restoreAll();
    syncBuiltinESMExports();
  });
}

/** What the file system throws. */
export const errno = (code: string): Error => Object.assign(new Error(code), { code });
