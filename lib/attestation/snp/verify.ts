/** SEV-SNP evidence against one reference value (docs/protocol/attestation.md 7, 8, 19). */
import { attempt, type Check, type CheckRow, firstFailure, runChecks } from '../check.ts';
import { breathe, type EvidenceFormat } from '../evidence.ts';
import type { SnpReferenceValues } from '../reference-values.ts';
import { CHAIN_ROWS, REVOCATION_ROWS, VCEK_ROWS } from './chain-checks.ts';
import { matchMeasurement } from './launch.ts';
import { POLICY_ROWS } from './policy-checks.ts';
import { decodeSnpAttestation, type SnpAttestation } from './report.ts';
import { FIRMWARE_ROWS, REPORT_ROWS, SIGNATURE_ROWS } from './report-checks.ts';
import { obtainArkCrl, obtainVcek, readRoots, readVcekExtensions, type SnpSubject } from './vcek.ts';

export const SNP: EvidenceFormat<SnpAttestation, SnpReferenceValues> = {
  decode: decodeSnpAttestation,
  rows: [
    REPORT_ROWS,
    VCEK_ROWS,
    CHAIN_ROWS,
    REVOCATION_ROWS,
    SIGNATURE_ROWS,
    POLICY_ROWS,
    FIRMWARE_ROWS,
  ].flat(),
  /** Fetches nothing once a check has failed: forged evidence must not make this program contact anybody. */
  async verify(message, entry, context) {
    const checks: Check[] = [];
    /** Returns whether no check has failed so far. */
    const judge = async (rows: readonly CheckRow<SnpSubject>[], subject: SnpSubject): Promise<boolean> => {
      checks.push(...(await runChecks(rows, subject)));
      return firstFailure(checks) === undefined;
    };
    const roots = attempt(() => readRoots(context.roots, entry.product));
    const given: SnpSubject = { ...message, entry, context, roots };
    const vcek = await obtainVcek(given, await judge(REPORT_ROWS, given));
    const certificate = vcek?.value?.certificate;
    const vcekExtensions = certificate && attempt(() => readVcekExtensions(certificate));
    const endorsed: SnpSubject = { ...given, vcek, vcekExtensions };
    await judge(VCEK_ROWS, endorsed);
    await breathe();
    const arkCrl = await obtainArkCrl(endorsed, await judge(CHAIN_ROWS, endorsed));
    await judge(REVOCATION_ROWS, { ...endorsed, arkCrl });
    await breathe();
    await judge(SIGNATURE_ROWS, endorsed);
    await breathe();
    const vcpus = matchMeasurement(entry, message.report.measurement);
    await breathe();
    await judge(POLICY_ROWS, { ...endorsed, vcpus });
    await judge(FIRMWARE_ROWS, endorsed);
    return checks;
  },
};
