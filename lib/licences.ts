import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { getAsset, isSea } from 'node:sea';

/** Where LICENSE lies, seen from lib/ and from dist/lib/. */
const BESIDE = ['..', '../..'];

/**
 * The licences of the program and of everything that is part of it (`--licenses`). The single executable carries them all
 * (scripts/build-binary.ts); an installation from npm has each dependency's own beside its code.
 */
export function licences(): string {
  if (isSea()) return getAsset('licences', 'utf8');
  const note = 'The licences of the packages it uses lie beside them, in node_modules.';
  return `privatemode-proxy\n\n${ownLicence()}\n${note}\n`;
}

function ownLicence(): string {
  for (const directory of BESIDE) {
    try {
      return readFileSync(join(import.meta.dirname, directory, 'LICENSE'), 'utf8');
    } catch {
      // the other layout, then
    }
  }
  return 'SPDX-License-Identifier: MIT\n';
}
