/** Writes new content into a file in place. A rename would leave bind mounts, group and ACL behind. */
import { open, readFile, unlink } from 'node:fs/promises';
import { dirname } from 'node:path';
import { syncDirectory, unless, writeNew } from './durable-file.ts';

/**
 * The first byte (`#`) of a file while it is being written. No JSON begins with it, so no reader takes a part
 * of the content for the whole.
 */
export const UNFINISHED = 0x23;

/**
 * The path of the copy that holds the whole new content while a file is being written. The copy stays if the
 * write was cut short. Nobody gives a file of his own that name, because the next write deletes it.
 */
export const copyBeside = (path: string): string => `${path}.privatemode-proxy-new`;

/**
 * Writes `content` into an existing file. Owner, group, mode and ACL stay, and so do mounts of the file.
 * Before that, the whole content is on disk beside it. The first byte of the file is UNFINISHED until
 * everything behind it is on disk, so `content` must not begin with that byte. Throws what the file system
 * throws. If the file cannot be written, it throws before anything is changed.
 */
export async function overwrite(path: string, content: Buffer): Promise<void> {
  await using file = await open(path, 'r+');
  const beside = copyBeside(path);
  await unless('ENOENT', unlink(beside)); // the copy of an earlier write that was cut short
  try {
    await writeNew(beside, content, 0o600);
    await syncDirectory(dirname(path));
  } catch (error) {
    await unlink(beside).catch(() => {}); // nobody needs a part, and the file is whole
    throw error;
  }
  const put = async (bytes: Uint8Array, at: number): Promise<void> => {
    for (let done = 0; done < bytes.length; )
      done += (await file.write(bytes, done, bytes.length - done, at + done)).bytesWritten;
    await file.sync();
  };
  await put(Uint8Array.of(UNFINISHED), 0);
  await file.truncate(1);
  await put(content.subarray(1), 1);
  await put(content.subarray(0, 1), 0);
  // A program that writes at the same time, without our lock, would leave a mixture: then the copy stays.
  if ((await readFile(path)).equals(content)) await unlink(beside);
}
