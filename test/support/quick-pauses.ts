import type { Times } from '../../lib/times.ts';

/**
 * Pauses of the session that a test of the whole stack need not wait for. The time limits stay those of the
 * product, so that a busy machine does not run into them.
 */
export const QUICK_PAUSES: Partial<Times> = {
  confirmAfter: 400,
  firstBackoff: 50,
  longestBackoff: 500,
  hurryAfter: 250,
};
