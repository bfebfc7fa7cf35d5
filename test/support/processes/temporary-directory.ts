import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const created: string[] = [];

/**
 * A new directory of that name and six characters, gone when the process ends: when the last test of the file
 * is over.
 */
export function temporaryDirectory(name = 'privatemode-test-'): string {
  if (created.length === 0) {
    process.once('exit', () => {
      for (const path of created) rmSync(path, { recursive: true, force: true, maxRetries: 5 });
    });
  }
  const path = mkdtempSync(join(tmpdir(), name));
  created.push(path);
  return path;
}
