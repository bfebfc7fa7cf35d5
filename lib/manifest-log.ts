/**
 * The log of enforced manifests, for people to audit (docs/protocol/inference.md 12). The file
 * `<workspace>/manifests/<n>.json` has the exact bytes of one manifest. In the same directory, `log.txt` has
 * one line for each change: `<RFC 3339 local time> <workspace>/manifests/<n>.json`.
 */
import { readdir, readFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { PrivatemodeError } from './errors.ts';
import {
  inTime,
  makeDirectory,
  openToAppend,
  publish,
  syncDirectory,
  unless,
  writeAll,
} from './files/durable-file.ts';

export type ManifestLog = ReturnType<typeof createManifestLog>;

/** `appended`: whether a line was added, because the last manifest in the log was another manifest. */
export type ManifestRecord = Readonly<{ appended: boolean; path: string }>;

/** The time, and the name of the manifest's file. The file is beside the log, whatever its path says. */
const LOG_LINE = /^(\d{4}-\d\d-\d\dT\S+) (?:.*[/\\])?(\d+\.json)[ \t\r]*$/;

/**
 * Two processes may share a workspace without a lock. Each manifest is stored whole, under a number that no
 * other file has. Each line is added in one write. In a race, both processes may log the same manifest.
 */
export function createManifestLog(workspace: string) {
  const directory = join(workspace, 'manifests');
  const logPath = join(directory, 'log.txt');
  let queue: Promise<unknown> = Promise.resolve();
  /** The last manifest that this process recorded. If the disk fails, this manifest needs no new record. */
  let own: { readonly manifest: Buffer; readonly path: string } | undefined;

  async function append(manifest: Uint8Array, at: number): Promise<ManifestRecord> {
    const text = await readLog(directory);
    const lines = (text ?? '').split('\n').filter((line) => line.trim() !== '');
    const last = LOG_LINE.exec(lines.at(-1) ?? '')?.[2]; // undefined if a crash cut off the line
    const logged = last === undefined ? last : await unless('ENOENT', readFile(join(directory, last)));
    const appended = last === undefined || !logged?.equals(manifest);
    if (appended) own = undefined; // another process may have logged another manifest meanwhile
    const path = appended ? await appendLine(text, lines.length, manifest, at) : join(directory, last);
    own = { manifest: Buffer.from(manifest), path };
    return { appended, path };
  }

  /** Adds the manifest and its line to the log. `text` is the log so far, and `lines` counts its lines. */
  async function appendLine(text: string | undefined, lines: number, manifest: Uint8Array, at: number) {
    const created = await makeDirectory(directory);
    if (created !== undefined) await syncDirectory(dirname(created));
    // The log is created before its first manifest, or else a crash in between would look like a deleted log.
    if (text === undefined) await appendDurably(logPath, '');
    const pathOf = (number: number): string => join(directory, `${number}.json`);
    let number = lines + 1;
    while (!(await publish(pathOf(number), manifest, 0o644))) number += 1;
    await syncDirectory(directory);
    const separator = text && !text.endsWith('\n') ? '\n' : ''; // ends a line that a crash cut off
    await appendDurably(logPath, `${separator}${localTime(at)} ${pathOf(number)}\n`);
    await syncDirectory(directory);
    return pathOf(number);
  }

  return {
    /**
     * Records that `manifest` is enforced from `at` (ms since 1970) on, unless the last line already says so.
     * Resolves once the record is on disk. Throws manifest_log_failed, also if the disk does not respond
     * within 10 s. After an error, the manifest must not be enforced.
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

/** Returns the text of the log, or undefined if there is no log yet. */
async function readLog(directory: string): Promise<string | undefined> {
  const text = await unless('ENOENT', readFile(join(directory, 'log.txt'), 'utf8'));
  if (text !== undefined) return text;
  const names = (await unless('ENOENT', readdir(directory))) ?? [];
  if (!names.some((name) => /^\d+\.json$/.test(name))) return undefined;
  // The manifests are the only record of what was trusted when, and receipts refer to the manifests.
  const remedy = 'Put log.txt back, or create it empty; keep the manifests.';
  throw new PrivatemodeError('manifest_log_failed', `${directory} has manifests but no log.txt`, { remedy });
}

/** Appends the text in one write, and makes a missing file. Throws unless the whole text was written. */
async function appendDurably(path: string, text: string): Promise<void> {
  await using file = await openToAppend(path, 0o644);
  await writeAll(file, Buffer.from(text));
  await file.sync();
}

/** RFC 3339 in the machine's time zone, in whole seconds, with `Z` if the time zone is UTC. */
function localTime(ms: number): string {
  const offset = -new Date(ms).getTimezoneOffset(); // in minutes
  const shifted = new Date(ms + offset * 60_000).toISOString().slice(0, 19);
  if (offset === 0) return `${shifted}Z`;
  const hoursAndMinutes = new Date(Math.abs(offset) * 60_000).toISOString().slice(11, 16);
  return `${shifted}${offset < 0 ? '-' : '+'}${hoursAndMinutes}`;
}
