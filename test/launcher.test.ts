/** ./privatemode-proxy, which starts the program from a checkout. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { cpSync, mkdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { temporaryDirectory } from './support/processes/temporary-directory.ts';

describe('./privatemode-proxy', () => {
  const checkout = join(temporaryDirectory('launcher-'), 'a checkout');
  const link = join(temporaryDirectory('launcher-bin-'), 'privatemode-proxy');
  mkdirSync(join(checkout, 'bin'), { recursive: true });
  cpSync(join(import.meta.dirname, '../privatemode-proxy'), join(checkout, 'privatemode-proxy'));
  symlinkSync(join(checkout, 'privatemode-proxy'), link);
  writeFileSync(join(checkout, 'bin/privatemode-proxy.ts'), 'console.log(process.argv.slice(2).join("|"));');
  const start = (...flags: string[]) => spawnSync(link, flags, { encoding: 'utf8', cwd: '/' });

  it('says to run npm ci first', () => {
    const { status, stderr } = start('--help');
    assert.equal(status, 1);
    assert.equal(
      stderr,
      `Error: the packages of privatemode-proxy are not installed. Run npm ci in ${checkout} first, then this again.\n`,
    );
  });

  it('starts the program of its checkout by its Node, through a link, and passes the arguments on', () => {
    mkdirSync(join(checkout, 'node_modules/node/bin'), { recursive: true });
    symlinkSync(process.execPath, join(checkout, 'node_modules/node/bin/node'));
    const { status, stdout } = start('run', 'claude', '--', 'a b', '--x=');
    assert.deepEqual([status, stdout], [0, 'run|claude|--|a b|--x=\n']);
  });
});
