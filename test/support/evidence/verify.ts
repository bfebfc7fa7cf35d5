/** The `verify` command in this process: arguments in, what it wrote and its exit code out. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Verdict } from '../../../lib/verdict/verdict.ts';
import { type Ran, type RunOptions, runCommand } from '../processes/command.ts';
import { temporaryDirectory } from '../processes/temporary-directory.ts';
import { type SyntheticSet, syntheticRoots, vectorBytes, vectorJson } from './attestation-vectors.ts';

export interface Verified extends Ran {
  /** What stdout holds, where it holds JSON and nothing else. */
  json(): Verdict;
}

/** The clock says, unless told otherwise, the moment by which the vectors are good. */
export async function verifyCommand(argv: readonly string[], options: RunOptions = {}): Promise<Verified> {
  const ran = await runCommand(['verify', ...argv], { now: EVALUATE_AT, ...options });
  return { ...ran, json: () => JSON.parse(ran.stdout) as Verdict };
}

const EVALUATE_AT = '2026-12-01T00:00:00.000Z';

/** The members of a record that tests read or change. */
type TestRecord = Record<string, unknown> & Record<'nonce' | 'document' | 'manifest' | 'time', string>;

/** A set of vectors as a record. It states no verdict that was ever made. */
export function recordOf(set: SyntheticSet, change: Readonly<Record<string, unknown>> = {}): TestRecord {
  return {
    ...{ version: '0', host: 'https://vectors.example:443', time: EVALUATE_AT },
    nonce: vectorJson<{ Nonce: string }>(`${set}/attest_request.json`).Nonce,
    document: vectorJson<{ AttestationDoc: string }>(`${set}/attest_response.json`).AttestationDoc,
    manifest: Buffer.from(vectorBytes(`${set}/manifest.json`)).toString('base64'),
    ...{ roots: syntheticRoots(set), collateral: [], secret: secretOf(set), verdict: {} },
    ...change,
  };
}

/** The secret exchange of a set, with another response where given. */
export function secretOf(set: SyntheticSet, response = 'secret_response.json'): Record<string, string> {
  const { PublicKey } = vectorJson<{ PublicKey: string }>(`${set}/secret_request.json`);
  const { EncapsulatedKey, Signature, MeshCert } = vectorJson<Record<string, string>>(`${set}/${response}`);
  return {
    ...{ publicKey: PublicKey, encapsulatedKey: EncapsulatedKey, signature: Signature, meshCert: MeshCert },
  } as Record<string, string>;
}

/** The flags for a record, which is written for them: JSON, or a text as it is. */
export function savedFlags(record: object | string): string[] {
  const path = join(temporaryDirectory('record-'), 'record.json');
  writeFileSync(path, typeof record === 'string' ? record : JSON.stringify(record));
  return ['--saved', path, '--accept-custom-roots'];
}
