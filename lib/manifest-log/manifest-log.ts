/** Writes the manifest log: every manifest that was enforced, and since when. */
import { open, readdir, readFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { PrivatemodeError } from '../errors.ts';
import { inTime, makeDirectory, publish, syncDirectory, unless } from '../files/durable-file.ts';

/**
 * The log of enforced manifests, for people to audit (docs/protocol/inference.md 12):
 * `<workspace>/manifests/<n>.json` holds each manifest byte for byte, and `log.txt` beside them one line per
 * change, `<RFC 3339 local time> <workspace>/manifests/<n>.json`.
 */
export interface ManifestLog {
  /**
   * Records that `manifest` is enforced from `at` (wall clock, ms since 1970) on. Writes nothing if the last
   * line of the log says so already, even if another process with the same workspace wrote that line.
   * Resolves when the record is on disk. Throws manifest_log_failed, after 10 s if the disk does not answer;
   * then the manifest must not be enforced.
   */
  record(manifest: Uint8Array, at: number): Promise<ManifestRecord>;
}

export interface ManifestRecord {
  /** False: this manifest was the last one in the log already. */
  readonly appended: boolean;
  /** The path as it stands in the log. */
  readonly path: string;
}

/**
 * A line of the log; its groups are the time and the name of the file. The name holds no separator, because
 * readers look up the file beside the log, wherever the line says it was.
 */
export const LOG_LINE = /^(\d{4}-\d\d-\d\dT\S+) (?:.*[/\\])?(\d+\.json)$/;
/** The name of a file with a manifest. */
export const MANIFEST_NAME = /^\d+\.json$/;
/** The manifests are the only record of what was trusted when, and receipts refer to them. */
const NO_LOG_REMEDY = 'Put log.txt back, or create it empty; keep the manifests.';

/**
 * Two processes may share a workspace, without a lock. A manifest file appears as a whole, under a number
 * that no other file has: link() fails on an existing name. A line of the log is one write to its end. In a
 * race both processes may log the same manifest, each with a true line of its own. Nothing is ever lost or
 * replaced.
 */
export function createManifestLog(workspace: string): ManifestLog {
  const directory = join(workspace, 'manifests');
  const logPath = join(directory, 'log.txt');
  let queue: Promise<unknown> = Promise.resolve();
  /** The last manifest that this process recorded. It counts only if the log itself can no longer be read. */
  let own: { readonly manifest: Uint8Array; readonly path: string } | undefined;

  const known = (manifest: Uint8Array): ManifestRecord | undefined =>
    own !== undefined && same(own.manifest, manifest) ? { appended: false, path: own.path } : undefined;

  async function append(manifest: Uint8Array, at: number): Promise<ManifestRecord> {
    const before = known(manifest);
    const text = await readLog(directory, logPath).catch((error: unknown) => {
      if (before === undefined) throw error;
      return undefined;
    });
    // The workspace went away while the proxy runs. A manifest that was recorded on disk needs no other
    // record.
    if (text === undefined && before !== undefined) return before;
    const logged = await lastLogged(directory, text ?? '');
    const appended = logged === undefined || !same(logged.manifest, manifest);
    const path = appended ? await appendLine(text, manifest, at) : logged.path;
    own = { manifest, path };
    return { appended, path };
  }

  /**
   * Stores the manifest and adds its line to the log, which holds `text` so far; resolves with the path in
   * the line.
   */
  async function appendLine(text: string | undefined, manifest: Uint8Array, at: number): Promise<string> {
    const created = await makeDirectory(directory);
    if (created !== undefined) await syncDirectory(dirname(created));
    // The log exists before its first manifest does: a crash in between must not look like a log that was
    // deleted.
    if (text === undefined) await appendDurably(logPath, '');
    const path = await storeManifest(directory, linesOf(text ?? '').length + 1, manifest);
    // If a crash or a full disk cut off the last line, this ends it, so that the new line does not join it.
    const separator = text === undefined || text === '' || text.endsWith('\n') ? '' : '\n';
    await appendDurably(logPath, `${separator}${localTime(at)} ${path}\n`);
    await syncDirectory(directory);
    return path;
  }

  function fail(cause: NodeJS.ErrnoException): never {
    if (cause instanceof PrivatemodeError) throw cause;
    const message = `the manifest cannot be logged in ${directory} (${cause.code ?? 'unknown cause'})`;
    throw new PrivatemodeError('manifest_log_failed', message, { cause });
  }

  return {
    record(manifest, at) {
      const appended = queue.then(() => append(manifest, at));
      queue = appended.catch(() => {});
      return inTime(appended).catch(
        (error: NodeJS.ErrnoException) =>
          (error.code === 'ETIMEDOUT' ? known(manifest) : undefined) ?? fail(error),
      );
    },
  };
}

const same = (a: Uint8Array, b: Uint8Array): boolean => Buffer.compare(a, b) === 0;
const linesOf = (text: string): string[] => text.split('\n').filter((line) => line.trim() !== '');

/** The text of the log; undefined where there is none yet. */
async function readLog(directory: string, logPath: string): Promise<string | undefined> {
  const text = await unless('ENOENT', readFile(logPath, 'utf8'));
  if (text !== undefined) return text;
  const names = (await unless('ENOENT', readdir(directory))) ?? [];
  if (!names.some((name) => MANIFEST_NAME.test(name))) return undefined;
  const message = `${directory} has manifests but no log.txt`;
  throw new PrivatemodeError('manifest_log_failed', message, { remedy: NO_LOG_REMEDY });
}

/** The manifest of the last line; undefined if that line is cut off or its file is gone. */
async function lastLogged(directory: string, text: string) {
  const name = LOG_LINE.exec(linesOf(text).at(-1)?.trimEnd() ?? '')?.[2];
  if (name === undefined) return undefined;
  const path = join(directory, name);
  const manifest = await unless('ENOENT', readFile(path));
  return manifest === undefined ? undefined : { manifest, path };
}

/**
 * Stores the manifest under the first number from `number` on that is free, or whose file already holds these
 * bytes (left by a crash before its line was written). Resolves with the path of the file.
 */
async function storeManifest(directory: string, number: number, manifest: Uint8Array): Promise<string> {
  for (let n = number; ; n++) {
    const path = join(directory, `${n}.json`);
    const stored = (await publish(path, manifest, 0o644)) || same(await readFile(path), manifest);
    if (!stored) continue;
    await syncDirectory(directory);
    return path;
  }
}

/**
 * Adds the text to the end of the file in one write, and makes the file if needed. Throws unless all was
 * written.
 */
async function appendDurably(path: string, text: string): Promise<void> {
  await using file = await open(path, 'a', 0o644);
  const bytes = Buffer.from(text);
  const { bytesWritten } = await file.write(bytes);
  if (bytesWritten !== bytes.length) throw Object.assign(new Error('short write'), { code: 'ENOSPC' });
  await file.sync();
}

/** RFC 3339 in the machine's own time zone, to the second; `Z` where that is UTC. */
function localTime(ms: number): string {
  const offset = -new Date(ms).getTimezoneOffset(); // minutes
  const shifted = new Date(ms + offset * 60_000).toISOString().slice(0, 19);
  if (offset === 0) return `${shifted}Z`;
  const hoursAndMinutes = new Date(Math.abs(offset) * 60_000).toISOString().slice(11, 16);
  return `${shifted}${offset < 0 ? '-' : '+'}${hoursAndMinutes}`;
}
