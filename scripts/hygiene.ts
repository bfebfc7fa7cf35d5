/**
 * Runs the tests and searches everything that they wrote for the prompts and keys they use: `npm run hygiene
 * -- [COMMAND…]` (default: npm run test:all). That is the output of the run, and every file below a temporary
 * directory of its own, those included that were deleted in between. Exit code 1 where there is one, else
 * that of the command.
 *
 * Not seen are files that were overwritten, and files that programs other than Node deleted. The logs of the
 * proxies that tests run are searched by the fixtures (test/support/doors/canaries.ts).
 */
import { spawn } from 'node:child_process';
import { chmodSync, createWriteStream, mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { finished } from 'node:stream/promises';
import { canariesBelow } from '../test/hygiene/written.ts';

const KEEPER = join(import.meta.dirname, '../test/hygiene/keep-deleted.cjs');

const [command = 'npm', ...args] =
  process.argv.length > 2 ? process.argv.slice(2) : ['npm', 'run', 'test:all'];
const scratch = mkdtempSync(join(tmpdir(), 'privatemode-written-'));
const [temporary, kept] = [join(scratch, 'left'), join(scratch, 'deleted')];
for (const directory of [temporary, kept]) mkdirSync(directory);
chmodSync(scratch, 0o711); // a test gives up its privileges, and has to reach what is its own below it

const child = spawn(command, args, {
  env: {
    ...process.env,
    TMPDIR: temporary,
    KEPT_FILES: kept,
    NODE_OPTIONS: `${process.env['NODE_OPTIONS'] ?? ''} --require=${KEEPER}`,
  },
  stdio: ['ignore', 'pipe', 'pipe'],
});
const output = createWriteStream(join(scratch, 'output'));
for (const [from, to] of [
  [child.stdout, process.stdout],
  [child.stderr, process.stderr],
] as const) {
  from.on('data', (chunk: Uint8Array) => {
    output.write(chunk);
    to.write(chunk);
  });
}
const { promise: ended, resolve: ends, reject: fails } = Promise.withResolvers<number>();
child.on('close', (code) => ends(code ?? 1)).on('error', fails);

try {
  const code = await ended;
  output.end();
  await finished(output);
  const found = canariesBelow(scratch);
  for (const each of found) console.log(`a prompt or a key was written: ${each}`);
  if (found.length === 0) console.log('no prompt and no key in anything that was written');
  process.exitCode = found.length === 0 ? code : 1;
} finally {
  rmSync(scratch, { recursive: true, force: true });
}
