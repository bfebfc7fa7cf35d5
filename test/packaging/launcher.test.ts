import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { launcher } from '../../scripts/build.ts';
import { temporaryDirectory } from '../support/processes/temporary-directory.ts';
import { run } from '../support/processes/tools.ts';

describe('the first module of the npm package', () => {
  const directory = temporaryDirectory('privatemode-launcher-');
  writeFileSync(join(directory, 'package.json'), '{"type":"module"}');
  writeFileSync(join(directory, 'start.js'), launcher('privatemode-proxy', '>=24.11'));
  writeFileSync(join(directory, 'program.js'), 'console.log("ran", process.argv[2]); process.exitCode = 7;');

  /** With this as the version of Node. */
  function start(version: string) {
    const versions = `{ ...process.versions, node: ${JSON.stringify(version)} }`;
    const disguise = `Object.defineProperty(process, 'versions', { value: ${versions} })`;
    const args = ['--import', `data:text/javascript,${encodeURIComponent(disguise)}`];
    const { status, stdout, stderr } = run(process.execPath, [...args, join(directory, 'start.js'), '--x']);
    return { status, stdout, stderr };
  }

  it('says in one line that an older Node is too old, and does not load the program; else it runs it', () => {
    for (const version of ['9.99.0', '20.20.2', '24.10.9']) {
      const stderr = `Error: privatemode-proxy needs Node 24.11 or newer, and this is Node ${version}\n`;
      assert.deepEqual(start(version), { status: 1, stdout: '', stderr });
    }
    for (const version of ['24.11.0', '100.0.0'])
      assert.deepEqual(start(version), { status: 7, stdout: 'ran --x\n', stderr: '' });
  });
});
