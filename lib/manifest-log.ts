/**
 * The log of enforced manifests, for people to audit (docs/protocol/inference.md 12).
 * `<workspace>/manifests/<n>.json` holds each manifest byte for byte, and `log.txt` beside them one line per
 * change, `<RFC 3339 local time> <workspace>/manifests/<n>.json`.
 */
import { open, readdir, readFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { PrivatemodeError } from './errors.ts';
import { inTime, makeDirectory, publish, syncDirectory, unless, writeAll } from './files/durable-file.ts';

export type ManifestLog = ReturnType<typeof createManifestLog>;

/** `appended`: whether a line was added; not if this manifest was the last one in the log already. */
export type ManifestRecord = Readonly<{ appended: boolean; path: string }>;

/** Time, and name of the file, which lies beside the log, wherever the line says it was. */
const LOG_LINE = /^(\d{4}-\d\d-\d\dT\S+) (?:.*[/\\])?(\d+\.json)[ \t\r]*$/;

/**
 * Two processes may share a workspace, without a lock. A manifest appears as a whole, under a number that no
 * other file has, and a line is one write to the end of the log. In a race both may log the same manifest.
 */
export function createManifestLog(workspace: string) {
  const directory = join(workspace, 'manifests');
  const logPath = join(directory, 'log.txt');
  let queue: Promise<unknown> = Promise.resolve();
  /** The last one that this process recorded. It needs no other record if the disk fails. */
  let own: { readonly manifest: Buffer; readonly path: string } | undefined;

  async function append(manifest: Uint8Array, at: number): Promise<ManifestRecord> {
    const text = await readLog(directory);
    const lines = (text ?? '').split('\n').filter((line) => line.trim() !== '');
    const last = LOG_LINE.exec(lines.at(-1) ?? '')?.[2]; // undefined if the line is cut off
    const logged = last === undefined ? last : await unless('ENOENT', readFile(join(directory, last)));
    const appended = last === undefined || !logged?.equals(manifest);
    if (appended) own = undefined; // another process may have logged since, so this one must log anew
    const path = appended ? await appendLine(text, lines.length, manifest, at) : join(directory, last);
    own = { manifest: Buffer.from(manifest), path };
    return { appended, path };
  }

  /** Adds the manifest and its line to the log, which has this text with so many lines. */
  async function appendLine(text: string | undefined, lines: number, manifest: Uint8Array, at: number) {
    const created = await makeDirectory(directory);
    if (created !== undefined) await syncDirectory(dirname(created));
    // The log exists before its first manifest: a crash in between must not look like a log that was deleted.
    if (text === undefined) await appendDurably(logPath, '');
    const pathOf = (number: number): string => join(directory, `${number}.json`);
    let number = lines + 1;
    while (!(await publish(pathOf(number), manifest, 0o644))) number += 1;
    await syncDirectory(directory);
    const separator = text && !text.endsWith('\n') ? '\n' : ''; // ends a line that was cut off
    await appendDurably(logPath, `${separator}${localTime(at)} ${pathOf(number)}\n`);
    await syncDirectory(directory);
    return pathOf(number);
  }

  return {
    /**
     * Records that `manifest` is enforced from `at` (ms since 1970) on, unless the last line says so already.
     * Resolves when that is on disk, or was before. Throws manifest_log_failed, after 10 s if the disk does
     * not answer; then the manifest must not be enforced.
     */
    record(manifest: Uint8Array, at: number): Promise<ManifestRecord> {
      const appended = queue.then(() => append(manifest, at));
      queue = appended.catch(() => {});
      return inTime(appended).catch((cause: NodeJS.ErrnoException) => {
        if (own?.manifest.equals(manifest)) return { appended: false, path: own.path };
        if (cause instanceof PrivatemodeError) throw cause;
        const message = `the manifest cannot be logged in ${directory} (${cause.code ?? 'unknown cause'})`;
        throw new PrivatemodeError('manifest_log_failed', message, { cause });
      });
    },
  };
}

/** The text of the log; undefined where there is none yet. */
async function readLog(directory: string): Promise<string | undefined> {
  const text = await unless('ENOENT', readFile(join(directory, 'log.txt'), 'utf8'));
  if (text !== undefined) return text;
  const names = (await unless('ENOENT', readdir(directory))) ?? [];
  if (!names.some((name) => /^\d+\.json$/.test(name))) return undefined;
  // They are the only record of what was trusted when, and receipts refer to them.
  const remedy = 'Put log.txt back, or create it empty; keep the manifests.';
  throw new PrivatemodeError('manifest_log_failed', `${directory} has manifests but no log.txt`, { remedy });
}

/** Adds the text in one write, and makes the file if needed. Throws unless all was written. */
async function appendDurably(path: string, text: string): Promise<void> {
  await using file = await open(path, 'a', 0o644);
  await writeAll(file, Buffer.from(text));
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
