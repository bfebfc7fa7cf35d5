/** The manifests that were enforced, as the manifest log has them, and what changed from each to the next. */
import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type ManifestChange, manifestChanges } from './manifest-changes.ts';
import { LOG_LINE } from './manifest-log.ts';

/** A manifest that was enforced, with what changed against the one before it in the log. */
export interface EnforcedManifest {
  /** RFC 3339, as it stands in the log. */
  readonly since: string;
  /** Null where the file cannot be read. */
  readonly sha256: string | null;
  /** Name of the file below `<workspace>/manifests`. */
  readonly file: string;
  /** Undefined for the first one, and where one of the two cannot be read. */
  readonly changes?: readonly ManifestChange[] | undefined;
}

/** The last `most` entries of the log, newest first; empty where there is no log that can be read. */
export async function manifestHistory(workspace: string, most = 50): Promise<readonly EnforcedManifest[]> {
  const directory = join(workspace, 'manifests');
  const text = await readFile(join(directory, 'log.txt'), 'utf8').catch(() => '');
  const entries = text.split('\n').flatMap((line) => {
    const [, since, file] = LOG_LINE.exec(line.trimEnd()) ?? [];
    return since === undefined || file === undefined ? [] : [{ since, file }];
  });
  const read = entries.slice(-most - 1).map(async (entry) => {
    const bytes = await readFile(join(directory, entry.file)).catch(() => undefined);
    return { ...entry, bytes, json: bytes && parsed(bytes) };
  });
  const manifests = (await Promise.all(read)).map(({ bytes, json, ...entry }, i, all) => {
    const sha256 = bytes === undefined ? null : createHash('sha256').update(bytes).digest('hex');
    const before = all[i - 1]?.json;
    const changes = before === undefined || json === undefined ? undefined : manifestChanges(before, json);
    return { ...entry, sha256, changes };
  });
  return manifests.toReversed().slice(0, most);
}

function parsed(bytes: Uint8Array): unknown {
  try {
    return JSON.parse(Buffer.from(bytes).toString());
  } catch {
    return undefined;
  }
}
