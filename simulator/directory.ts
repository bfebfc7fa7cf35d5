/** The directory of a simulator: files that its clients need, and the hardware of the next start. */
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { PrivatemodeError } from '../lib/errors.ts';
import { createHardware, type Hardware, loadHardware, readIfThere, saveHardware } from './hardware.ts';
import { toPem } from './pki/certificate.ts';

const REVISION_FILE = 'revision';

/** File names of the roots, after the common names of their subjects; their loader reads the content only. */
const ROOT_FILES = {
  ark: 'ARK-Genoa.pem',
  ask: 'SEV-Genoa.pem',
  intelRoot: 'Intel-SGX-Root-CA.pem',
} as const;

/** The hardware kept in the directory, or new hardware that is kept from now on. Creates the directory. */
export async function hardwareIn(directory: string): Promise<Hardware> {
  await mkdir(directory, { recursive: true, mode: 0o700 });
  const path = join(directory, 'hardware.json');
  const kept = await loadHardware(path);
  if (kept !== undefined) return kept;
  const made = await createHardware();
  await saveHardware(path, made);
  return made;
}

/** Writes ca.pem and roots/*.pem. */
export async function writeTrustAnchors(directory: string, { roots }: Hardware): Promise<void> {
  await mkdir(join(directory, 'roots'), { recursive: true });
  await writeFile(join(directory, 'ca.pem'), toPem(roots.tlsCa));
  for (const [name, file] of Object.entries(ROOT_FILES))
    await writeFile(join(directory, 'roots', file), toPem(roots[name as keyof typeof ROOT_FILES]));
}

/** What a client needs to use the simulator at `url`. The roots are PEM. */
type Service = { readonly url: string; readonly roots: Readonly<Record<'ark' | 'ask' | 'intel', string>> };

/**
 * A module with the options of the client library for this simulator, in place of examples/service.mjs. The
 * roots are in it as text, since some runtimes of the examples cannot read files.
 */
export function serviceModule({ url, roots: { ark, ask, intel } }: Service): string {
  const options = {
    apiEndpoint: url,
    cdnBaseUrl: url,
    collateralUrls: { amd: url, intel: url },
    unsafeTrustRoots: { snp: { Genoa: { ark, ask } }, tdx: { root: intel } },
  };
  return `export const options = ${JSON.stringify(options)};\n`;
}

/** The number of the manifest that the last simulator in this directory served; 0 in a new directory. */
export async function revisionIn(directory: string): Promise<number> {
  const path = join(directory, REVISION_FILE);
  const text = await readIfThere(path);
  if (text === undefined) return 0;
  if (/^\d{1,9}\n$/.test(text)) return Number(text);
  throw new PrivatemodeError('config_invalid', `${path} does not hold the number of a manifest; remove it`);
}

/** Writes manifest.json, byte for byte as the CDN path serves it, and the number of the manifest. */
export async function writeManifest(directory: string, bytes: Uint8Array, revision = 0): Promise<void> {
  await writeFile(join(directory, REVISION_FILE), `${revision}\n`);
  await writeFile(join(directory, 'manifest.json'), bytes);
}
