#!/usr/bin/env node
import { join } from 'node:path';
import { runProcess } from '../lib/cli.ts';
import { systemClock } from '../lib/clock.ts';

const isSource = import.meta.filename.endsWith('.ts');
await runProcess(
  systemClock,
  isSource ? join(import.meta.dirname, '../privatemode-proxy') : 'privatemode-proxy',
);
