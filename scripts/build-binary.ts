/**
 * Makes the single executable: `npm run build:binary -- --arch amd64|arm64 [--out FILE]`. The same input
 * gives the same bytes on machines of one architecture: the bundle is one module, Node is pinned by digest,
 * and the compiler's code cache, which only the executable for this architecture has, is made with a fixed
 * seed.
 */
import { spawnSync } from 'node:child_process';
import { chmodSync, copyFileSync, mkdirSync, mkdtempSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { bundle, renderLicences, STATUS_PAGE } from './bundle.ts';
import { type Architecture, nodeRuntime, RUNTIME_VERSION } from './node-runtime.ts';
import { readOptions, refuse } from './options.ts';

const ROOT = join(import.meta.dirname, '..');
const ARCHITECTURES: Readonly<Record<string, Architecture>> = { x64: 'amd64', arm64: 'arm64' };
const HOST = ARCHITECTURES[process.arch];

/** Asset that lib/cli.ts reads. */
const LICENCES = 'licences';

/** Writes the executable for `architecture` to `out`. Throws where the tools are not the pinned ones. */
export async function buildBinary(architecture: Architecture, out: string): Promise<void> {
  if (process.versions.node !== RUNTIME_VERSION) {
    throw new Error(
      `this Node is ${process.versions.node}; the binaries are made by and of ${RUNTIME_VERSION}`,
    );
  }
  const runtime = nodeRuntime(architecture);
  const node = { name: 'Node.js', version: RUNTIME_VERSION, text: runtime.licence };
  mkdirSync(dirname(out), { recursive: true });
  // Beside the result, so that the last step is a rename; only relative names get into the executable.
  const scratch = mkdtempSync(join(dirname(out), '.building-'));
  try {
    const packages = await bundle(join(scratch, 'main.mjs'));
    writeFileSync(join(scratch, 'licences.txt'), renderLicences([...packages, node]));
    copyFileSync(STATUS_PAGE, join(scratch, 'status-page.html'));
    const config = {
      main: 'main.mjs',
      mainFormat: 'module',
      executable: runtime.executable,
      output: 'executable',
      disableExperimentalSEAWarning: true,
      // Compiled code only fits the architecture that compiled it.
      useCodeCache: architecture === HOST,
      assets: { [LICENCES]: 'licences.txt', 'status-page.html': 'status-page.html' },
    };
    writeFileSync(join(scratch, 'config.json'), JSON.stringify(config));
    const args = ['--random-seed=1', '--build-sea', 'config.json'];
    const { status, stderr } = spawnSync(process.execPath, args, { cwd: scratch, encoding: 'utf8' });
    if (status !== 0) throw new Error(`node --build-sea: ${stderr}`);
    chmodSync(join(scratch, 'executable'), 0o755);
    renameSync(join(scratch, 'executable'), out);
  } finally {
    rmSync(scratch, { recursive: true });
  }
}

if (import.meta.main) {
  const { values } = readOptions(import.meta.filename, {
    options: { arch: { type: 'string' }, out: { type: 'string' } },
  });
  const architecture = values.arch ?? HOST;
  if (architecture !== 'amd64' && architecture !== 'arm64') {
    refuse(`--arch is amd64 or arm64, not ${architecture}`);
  }
  const out = resolve(values.out ?? join(ROOT, `dist/binary/privatemode-proxy-linux-${architecture}`));
  await buildBinary(architecture, out);
  process.stdout.write(`${out}\n`);
}
