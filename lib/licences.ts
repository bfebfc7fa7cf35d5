import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { getAsset, isSea } from 'node:sea';

/**
 * The licences of the program and of everything that is part of it (`--licenses`). The single executable carries them in it,
 * the built program beside it (scripts/build.ts); run from source, each dependency has its own beside its code.
 */
export function licences(): string {
  if (isSea()) return getAsset('licences', 'utf8');
  return textAt('licences.txt') ?? `privatemode-proxy\n\n${textAt('../LICENSE') ?? SPDX}\n${NOTE}\n`;
}

const SPDX = 'SPDX-License-Identifier: MIT\n';
const NOTE = 'The licences of the packages it uses lie beside them, in node_modules.';

function textAt(path: string): string | undefined {
  try {
    return readFileSync(join(import.meta.dirname, path), 'utf8');
  } catch {
    return undefined;
  }
}
