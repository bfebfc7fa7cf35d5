/**
 * The programs of the npm package, each as one module with the licences of its parts beside it, started by a
 * file of its name where Node is new enough: `npm run build`; `node scripts/build.ts NAME` for one of them.
 * One file starts in two thirds of the time of seven hundred, and who installs it gets what was tested.
 */
import { copyFileSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { type BundledPackage, bundle, renderLicences, STATUS_PAGE } from './bundle.ts';

const ROOT = join(import.meta.dirname, '..');
const PROGRAMS = { 'privatemode-proxy': 'dist/bin', 'privatemode-simulator': 'dist/simulator' } as const;
type ProgramName = keyof typeof PROGRAMS;

/** Builds a program into its directory below dist; returns what is inside, for a bill of materials. */
export async function buildProgram(name: ProgramName): Promise<BundledPackage[]> {
  const out = join(ROOT, PROGRAMS[name]);
  rmSync(out, { recursive: true, force: true });
  mkdirSync(out, { recursive: true });
  const { engines } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'));
  writeFileSync(join(out, `${name}.js`), launcher(name, engines.node), { mode: 0o755 });
  const parts = await bundle(join(out, 'program.js'), `bin/${name}.ts`);
  writeFileSync(join(out, 'licences.txt'), renderLicences(parts, name));
  if (name === 'privatemode-proxy') copyFileSync(STATUS_PAGE, join(out, 'status-page.html'));
  return parts;
}

/**
 * What checks the Node version, in a module of its own: an older Node cannot link the program, and would show
 * a line of it, which is all of it, instead of saying so. `engines`: of package.json, such as `>=24.11`.
 */
export function launcher(name: string, engines: string): string {
  const [, major, minor] = /^>=(\d+)\.(\d+)$/.exec(engines) ?? [];
  if (major === undefined) throw new Error(`engines.node is ${engines}, and not such as >=24.11`);
  return `#!/usr/bin/env node
const found = process.versions.node;
const [major, minor] = found.split('.').map(Number);
if (major < ${major} || (major === ${major} && minor < ${minor})) {
  console.error('Error: ${name} needs Node ${major}.${minor} or newer, and this is Node ' + found);
  process.exit(1);
}
await import('./program.js');
`;
}

if (import.meta.main) {
  const [, , ...names] = process.argv;
  for (const name of names.length > 0 ? names : Object.keys(PROGRAMS))
    await buildProgram(name as ProgramName);
}
