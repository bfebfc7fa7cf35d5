/** Periods of validity, for people. */

/** Vendors issue nothing ahead of time, so the clock that is wrong is most likely ours. */
export const NOT_YET = 'the local clock is probably behind';

/** `FROM to TO`; where `now` lies outside, also the moment that was compared, and before it the probable cause. */
export function period(from: Date, to: Date | undefined, now: Date): string {
  const range = `${from.toISOString()} to ${to?.toISOString() ?? 'no date'}`;
  if (from > now) return `${range}, not valid yet at ${now.toISOString()}: ${NOT_YET}`;
  return to !== undefined && to < now ? `${range}, over at ${now.toISOString()}` : range;
}

/** Whether a finding says that something is not valid yet or no longer, so that a wrong clock may be the cause. */
export const concernsClock = (found: string): boolean =>
  /, not valid yet at \d|, over at \d|not current: |the fetched one has expired|Check the clock/.test(found);
