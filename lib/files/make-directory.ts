/** Makes directories as `mkdir -p` does. Node's own `recursive` may never return (docs/hazards.md 30). */
import { existsSync, mkdirSync, statSync } from 'node:fs';
import { mkdir, stat } from 'node:fs/promises';
import { dirname } from 'node:path';

/**
 * Makes a directory, with `mode`, and the missing ones around it. Resolves with the outermost of those that
 * were missing, or undefined if the directory was there. Throws the error of the file system; EEXIST if
 * `path` exists and is no directory.
 */
export async function makeDirectory(path: string, mode?: number): Promise<string | undefined> {
  if (await isDirectory(path)) return undefined;
  const parent = dirname(path);
  const isOrphan = parent !== path && !(await exists(parent));
  const outermost = isOrphan ? await makeDirectory(parent, mode) : undefined;
  try {
    await mkdir(path, { mode });
  } catch (thrown) {
    if (!(await isDirectory(path))) throw thrown; // else somebody made it meanwhile
  }
  return outermost ?? path;
}

/** As makeDirectory, for callers that cannot wait. */
export function makeDirectorySync(path: string, mode?: number): void {
  if (isDirectorySync(path)) return;
  const parent = dirname(path);
  if (parent !== path && !existsSync(parent)) makeDirectorySync(parent, mode);
  try {
    mkdirSync(path, { mode });
  } catch (thrown) {
    if (!isDirectorySync(path)) throw thrown;
  }
}

const exists = (path: string): Promise<boolean> =>
  stat(path).then(
    () => true,
    () => false,
  );

/** Whether `path`, or what it links to, is a directory; false if nobody can tell. */
export const isDirectory = (path: string): Promise<boolean> =>
  stat(path).then(
    (found) => found.isDirectory(),
    () => false,
  );

const isDirectorySync = (path: string): boolean =>
  statSync(path, { throwIfNoEntry: false })?.isDirectory() === true;
