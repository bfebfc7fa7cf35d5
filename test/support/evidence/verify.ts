/** The `verify` command in this process: arguments in, what it wrote and its exit code out. */
import { join } from 'node:path';
import type { VerdictReport } from '../../../lib/verdict/verdict.ts';
import { type Ran, type RunOptions, runCommand } from '../processes/command.ts';

const VECTORS = join(import.meta.dirname, '../../vectors/attestation');

export interface Verified extends Ran {
  /** What stdout holds, where it holds JSON and nothing else. */
  json(): VerdictReport;
}

/** The clock says, unless told otherwise, the moment by which the vectors are good. */
export async function verifyCommand(argv: readonly string[], options: RunOptions = {}): Promise<Verified> {
  const ran = await runCommand(['verify', ...argv], { now: EVALUATE_AT, ...options });
  return { ...ran, json: () => JSON.parse(ran.stdout) as VerdictReport };
}

export const EVALUATE_AT = '2026-12-01T00:00:00Z';

export const vectorPath = (...names: readonly string[]): string => join(VECTORS, ...names);

/** The flags of a set of vectors: its files, its own roots, its date. Later flags win. */
export function flagsOf(set: 'synthetic' | 'synthetic_v158' | 'synthetic_tdx'): string[] {
  const file = (name: string): string => vectorPath(set, name);
  return [
    ...['--evidence', file('attest_response.json'), '--nonce', file('attest_request.json')],
    ...['--manifest', file('manifest.json'), '--roots', vectorPath(set), '--at', EVALUATE_AT],
    '--accept-custom-roots',
    ...(set === 'synthetic_tdx' ? ['--collateral', file('collateral.json')] : []),
  ];
}

/** The flags of the secret exchange of a set, with another answer where given. */
export const secretFlagsOf = (
  set: 'synthetic' | 'synthetic_v158',
  response = 'secret_response.json',
): string[] => [
  ...['--secret-request', vectorPath(set, 'secret_request.json')],
  ...['--secret-response', vectorPath(set, response)],
];
