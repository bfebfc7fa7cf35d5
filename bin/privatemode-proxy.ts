#!/usr/bin/env node
import { main } from '../lib/cli.ts';

// A reader of the log that goes away, or a full disk below it, must not take the proxy with it.
process.stderr.on('error', () => {});
let unwritten = false;
process.stdout.on('error', ({ code }: NodeJS.ErrnoException) => {
  if (code === 'EPIPE' || unwritten) return; // the reader has what it wanted, as with `| head`
  unwritten = true;
  process.stderr.write(
    `Error: the output cannot be written (${code}): make room for it, or send it elsewhere, and run the command again\n`,
  );
  process.exitCode = 1;
});
const exitCode = await main(process.argv.slice(2), process.env, process);
process.exitCode = unwritten ? 1 : exitCode;
// A reader that does not read the log must not keep the program alive: the rest of it is lost a second later.
// What a command prints waits for its reader, such as a pager. Nothing else ends the program here, because
// process.exit() would wait for a disk that does not answer (docs/hazards.md 42).
setInterval(() => {
  if (process.stdout.writableLength === 0 && process.stderr.writableLength > 0) process.exit();
}, 1_000).unref();
