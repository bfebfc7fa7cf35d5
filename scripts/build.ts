/**
 * The program as one module, dist/bin/privatemode-proxy.js, with the licences of all its parts beside it: `npm run build`. One
 * file starts in two thirds of the time of seven hundred, and who installs it gets what was tested, to the byte.
 */
import { copyFileSync, mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { bundle, renderLicences, STATUS_PAGE } from './bundle.ts';

const BIN = join(import.meta.dirname, '../dist/bin');

rmSync(BIN, { recursive: true, force: true });
mkdirSync(BIN, { recursive: true });
const packages = await bundle(join(BIN, 'privatemode-proxy.js'));
writeFileSync(join(BIN, 'licences.txt'), renderLicences(packages));
copyFileSync(STATUS_PAGE, join(BIN, 'status-page.html'));
