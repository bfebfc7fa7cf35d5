/**
 * The directory in which a simulator leaves what its clients need, and keeps the hardware it will be next
 * time.
 */
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createHardware, type Hardware, loadHardware, saveHardware } from './hardware.ts';
import { toPem } from './pki/certificate.ts';

const HARDWARE_FILE = 'hardware.json';

/** File names by subject common name; the loader of roots goes by the certificate, not by the name. */
const ROOT_FILES = {
  ark: 'ARK-Genoa.pem',
  ask: 'SEV-Genoa.pem',
  intelRoot: 'Intel-SGX-Root-CA.pem',
} as const;

/** A new directory that nobody else can read, and its removal. */
export async function temporaryDirectory(): Promise<{ path: string; remove: () => Promise<void> }> {
  const path = await mkdtemp(join(tmpdir(), 'privatemode-simulator-'));
  return { path, remove: () => rm(path, { recursive: true, force: true }) };
}

/**
 * The hardware kept in the directory; new hardware, then kept there, where there is none. Creates the
 * directory.
 */
export async function hardwareIn(directory: string): Promise<Hardware> {
  await mkdir(directory, { recursive: true, mode: 0o700 });
  const path = join(directory, HARDWARE_FILE);
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
  for (const [name, file] of Object.entries(ROOT_FILES)) {
    await writeFile(join(directory, 'roots', file), toPem(roots[name as keyof typeof ROOT_FILES]));
  }
}

/** Writes manifest.json: the active manifest, byte for byte as the CDN path serves it. */
export async function writeManifest(directory: string, bytes: Uint8Array): Promise<void> {
  await writeFile(join(directory, 'manifest.json'), bytes);
}
