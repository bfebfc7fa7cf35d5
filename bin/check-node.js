// Node loads this file before the sources (`node --import`). It tells people what to do if the sources cannot
// run. It is JavaScript, because an old Node cannot read TypeScript.
import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

const [major, minor] = process.versions.node.split('.').map(Number);
const isTooOld = major < 24 || (major === 24 && minor < 11);
const isInstalled = existsSync(new URL('../node_modules/mri/package.json', import.meta.url));
if (!isInstalled || isTooOld) {
  const what = isInstalled
    ? `this needs Node 24.11 or newer, and got ${process.versions.node} (${process.execPath}).`
    : 'its packages are not installed.';
  const why = isInstalled
    ? 'npm start and npm run demo use the Node that npm ci installs, unless --ignore-scripts kept it out. '
    : '';
  process.stderr.write(
    `Error: ${what} ${why}Run npm ci in ${fileURLToPath(new URL('..', import.meta.url))} first, then this again.\n`,
  );
  process.exit(1);
}
