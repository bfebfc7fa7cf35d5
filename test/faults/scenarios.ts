import type { Scenario } from './scenario.ts';
import { CLIENT_SCENARIOS } from './scenarios/clients.ts';
import { DISK_SCENARIOS } from './scenarios/disk.ts';
import { PROCESS_SCENARIOS } from './scenarios/process.ts';
import { SLOW_READER_SCENARIOS } from './scenarios/slow-readers.ts';
import { TRUST_SCENARIOS } from './scenarios/trust.ts';

/** Every scenario. */
export const SCENARIOS: readonly Scenario[] = [
  ...TRUST_SCENARIOS,
  ...DISK_SCENARIOS,
  ...PROCESS_SCENARIOS,
  ...CLIENT_SCENARIOS,
  ...SLOW_READER_SCENARIOS,
];
