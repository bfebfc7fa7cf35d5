import { type ErrorCode, PrivatemodeError } from '../errors.ts';
import type { ClientVerdict } from './options.ts';

/** Why `verify()` rejects: the code and the message of what was wrong, and the whole verdict. */
export class VerificationError extends PrivatemodeError {
  readonly verdict: ClientVerdict;

  constructor(verdict: ClientVerdict, cause: PrivatemodeError | undefined) {
    const { id, code = 'attestation_failed', expected, found = '', source } = verdict.failure ?? {};
    const message = id == null ? found : `${id}: expected ${expected}; found ${found} (${source})`;
    const remedy = cause?.code === code ? cause.remedy : undefined;
    super(code as ErrorCode, message, { cause, remedy });
    this.verdict = verdict;
  }
}
