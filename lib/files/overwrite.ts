/** Files that get new content where they stand: a rename would leave bind mounts, group and ACL behind. */
import { open, readFile, unlink } from 'node:fs/promises';
import { dirname } from 'node:path';
import { syncDirectory, unless, writeNew } from './durable-file.ts';

/** The first byte of a file while it is written (`#`): no JSON begins with it, so nobody takes a part for the whole. */
export const UNFINISHED = 0x23;

/** Where the whole new content lies while a file is written, and stays where that was cut short. */
export const copyBeside = (path: string): string => `${path}.new`;

/**
 * Writes `content` into the file that is there; owner, group, mode and ACL stay, and so do mounts of the file. The whole content is on
 * disk beside it first. The first byte is UNFINISHED until everything behind it is on disk. `content` must not begin with it. Throws what
 * the file system throws, before anything is changed where the file cannot be written.
 */
export async function overwrite(path: string, content: Buffer): Promise<void> {
  await using file = await open(path, 'r+');
  const beside = copyBeside(path);
  await unless('ENOENT', unlink(beside)); // of an earlier one that was cut short
  await writeNew(beside, content, 0o600);
  await syncDirectory(dirname(path));
  const put = async (bytes: Uint8Array, at: number): Promise<void> => {
    for (let done = 0; done < bytes.length; )
      done += (await file.write(bytes, done, bytes.length - done, at + done)).bytesWritten;
    await file.sync();
  };
  await put(Uint8Array.of(UNFINISHED), 0);
  await file.truncate(1);
  await put(content.subarray(1), 1);
  await put(content.subarray(0, 1), 0);
  // Somebody who writes at the same time, without our lock, would leave a mixture: then the copy stays.
  if ((await readFile(path)).equals(content)) await unlink(beside);
}
