import { PrivatemodeError } from '../../../lib/errors.ts';

/** What the readers of evidence throw, and nothing else. */
export const malformed = (error: unknown): boolean =>
  error instanceof PrivatemodeError && error.code === 'evidence_malformed';
