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

type Real = (...args: readonly unknown[]) => Promise<unknown>;
type Name = 'close' | 'datasync' | 'sync' | 'truncate' | 'write' | 'writeFile';
type Others = Partial<Record<Name, (real: Real, arg: never, path: string) => unknown>>;

/** Puts others in the place of functions of each file with such a path that is opened from now on. */
export function breakFiles(t: TestContext, paths: RegExp, others: Others): void {
  const realOpen = fs.open;
  breakFs(t, 'open', async (path: string, ...rest: [number, number]) => {
    const handle = await realOpen(path, ...rest);
    for (const [name, other] of paths.test(path) ? Object.entries(others) : []) {
      const real = handle[name as Name].bind(handle) as Real;
      Object.assign(handle, { [name]: (arg: never) => other(real, arg, path) });
    }
    return handle;
  });
}

/** What the file system throws. */
export const errno = (code: string): Error => Object.assign(new Error(code), { code });
