/** What the packaging run has built before its checks (npm run test:packaging). */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import type { Architecture } from '../../../scripts/node-runtime.ts';
import { ROOT } from '../../support/processes/tools.ts';

export const HOST: Architecture = process.arch === 'arm64' ? 'arm64' : 'amd64';

/** Path of the single executable. */
export function binary(architecture: Architecture): string {
  const path = join(ROOT, `dist/binary/privatemode-proxy-linux-${architecture}`);
  if (!existsSync(path)) throw new Error(`${path} is missing: npm run test:packaging builds it`);
  return path;
}
