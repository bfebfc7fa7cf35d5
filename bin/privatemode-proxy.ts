#!/usr/bin/env node
import { main } from '../lib/cli.ts';

// A reader of the log that goes away must not take the proxy with it.
process.stdout.on('error', () => {});
process.stderr.on('error', () => {});
process.exitCode = await main(process.argv.slice(2), process.env, process);
