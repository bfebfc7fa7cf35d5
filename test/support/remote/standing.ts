import type { PrivatemodeError } from '../../../lib/errors.ts';
import type { StatusReport } from '../../../lib/observe/status-report.ts';
import { STANDINGS, type Standing, type StateName } from '../../../lib/session/standing.ts';

/** The state in words, as /status says it. */
export function words(state: StateName): StatusReport['standing'] {
  const { tone, title, meaning, verified } = STANDINGS[state];
  return { state, verified, tone, title, meaning };
}

/** A proxy in this state; no key is awaited but in `awaiting-key`. */
export function standing(state: StateName, error?: PrivatemodeError): Standing {
  const shown = words(state);
  const awaitsKey = state === 'awaiting-key';
  return { ...shown, awaitsKey, ready: shown.verified || awaitsKey, error };
}
