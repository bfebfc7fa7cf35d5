#!/usr/bin/env node
import { runSimulator } from '../simulator/cli.ts';

const ended = new AbortController();
for (const signal of ['SIGTERM', 'SIGINT'] as const) process.once(signal, () => ended.abort());

process.exitCode = await runSimulator(process.argv.slice(2), {
  stdout: process.stdout,
  stderr: process.stderr,
  ended: ended.signal,
  proxy: import.meta.filename.endsWith('.ts') ? './privatemode-proxy' : 'privatemode-proxy',
});
