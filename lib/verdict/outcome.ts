/** How a verification can end, and the exit code that says so (docs/verify.md). */
import type { ErrorCode } from '../errors.ts';
import type { VerificationOutcome } from './verdict.ts';

const row = (exitCode: number, word: string, meaning: string) => ({ exitCode, word, meaning });

export const OUTCOMES: Readonly<Record<VerificationOutcome, ReturnType<typeof row>>> = {
  accepted: row(0, 'ACCEPTED', 'every check that applies held'),
  rejected: row(10, 'REJECTED', 'a check failed'),
  unsupported: row(20, 'UNSUPPORTED', 'the manifest says something that this version does not understand'),
  malformed: row(30, 'MALFORMED', 'a file or a response is malformed or cannot be read'),
  unavailable: row(
    40,
    'NO VERDICT',
    'the service, its manifest or a collateral host gave no usable response',
  ),
};

/**
 * Exit code of evidence that was accepted under roots other than the vendors', without --accept-custom-roots.
 * A script that looks at nothing but the exit code must not take a simulator for protected hardware.
 */
export const CUSTOM_ROOTS_EXIT_CODE = 35;

/**
 * Exit code for wrong flags, and for everything else that prevents a verification. stderr then has `Error:
 * …`.
 */
export const USAGE_EXIT_CODE = 1;

/** The outcome of errors outside the checks; every other code is `unavailable`. */
const OF_ERROR: Readonly<Partial<Record<ErrorCode, VerificationOutcome>>> = {
  verify_input_invalid: 'malformed',
  evidence_malformed: 'malformed',
  // Thrown for an unreadable response of the secret service.
  secret_exchange_failed: 'malformed',
};

export const outcomeOfError = (code: ErrorCode): VerificationOutcome => OF_ERROR[code] ?? 'unavailable';
