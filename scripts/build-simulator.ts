/**
 * The simulator as one module of its own, dist/simulator/program.js, with the licences of its parts and the
 * module that starts it: `npm run build:simulator`. It stands beside the proxy in the npm package; nothing of
 * it is in the proxy.
 */
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { bundle, renderLicences } from './bundle.ts';
import { launcher } from './launcher.ts';

const ROOT = join(import.meta.dirname, '..');
const OUT = join(ROOT, 'dist/simulator');
const NAME = 'privatemode-simulator';

rmSync(OUT, { recursive: true, force: true });
mkdirSync(OUT, { recursive: true });
const { engines } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'));
writeFileSync(join(OUT, `${NAME}.js`), launcher(NAME, engines.node, './program.js'), { mode: 0o755 });
/** What is inside, for the bill of materials of a release. */
export const SIMULATOR_PARTS = await bundle(join(OUT, 'program.js'), `bin/${NAME}.ts`);
writeFileSync(join(OUT, 'licences.txt'), renderLicences(SIMULATOR_PARTS, NAME));
