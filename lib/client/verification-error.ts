import { type ErrorCode, PrivatemodeError } from '../errors.ts';
import { reasonOf } from '../verdict/verdict.ts';
import type { ClientVerdict } from './options.ts';
import { ERRORS } from './remedies.ts';

/** Why `verify()` rejects: the code and the message of what was wrong, and the whole verdict. */
export class VerificationError extends PrivatemodeError {
  readonly verdict: ClientVerdict;

  constructor(verdict: ClientVerdict, cause: PrivatemodeError | undefined) {
    const { code = 'attestation_failed' } = verdict.failure ?? {};
    const message = verdict.failure === null ? '' : reasonOf(verdict.failure);
    const { remedy } = cause?.code === code ? cause : ERRORS[code as ErrorCode];
    super(code as ErrorCode, message, { cause, remedy });
    this.verdict = verdict;
  }
}
