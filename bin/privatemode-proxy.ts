#!/usr/bin/env node
import { runProcess } from '../lib/cli.ts';
import { systemClock } from '../lib/clock.ts';

await runProcess(systemClock);
