import type { Times } from '../../lib/times.ts';

const QUICK: Partial<Times> = { confirmAfter: 500, firstBackoff: 250, longestBackoff: 500 };

/**
 * Pauses of the session for tests of the whole stack and of the program. The time limits stay those of the
 * product, so that a busy machine does not run into them. With PRODUCT_TIMES=1 the pauses do, too.
 */
export const QUICK_PAUSES: Partial<Times> = process.env['PRODUCT_TIMES'] === '1' ? {} : QUICK;
