/**
 * SEV-SNP evidence: a version 5 report, signed by the chip's key (docs/protocol/attestation.md 6, 16, 19.7).
 */
import { type KeyObject, randomBytes, sign } from 'node:crypto';
import { idKeyDigest } from '../../lib/attestation/snp/launch-digest.ts';
import { tcbValue } from '../../lib/attestation/snp/packed-fields.ts';
import { SNP_SIGNED_BYTES, type SnpReport, serializeReport } from '../../lib/attestation/snp/report.ts';
import type { Faults } from '../faults.ts';
import type { Hardware } from '../hardware.ts';
import { issueAmdCrl, type Tcb, vcekRequest } from '../pki/amd.ts';
import { issueCertificate } from '../pki/certificate.ts';
import { hex, SNP_GUEST } from '../reference-values.ts';
import { encodeSnpAttestation } from './messages.ts';

/** The input for evidence of either kind, SEV-SNP or TDX. */
export interface EvidenceRequest {
  readonly hardware: Hardware;
  /** 64 bytes (docs/protocol/attestation.md 3). */
  readonly reportData: Uint8Array;
  /** 32 bytes: the policy hash of the coordinator. */
  readonly coordinatorHash: Uint8Array;
  /** vCPUs of an SEV-SNP guest; its launch digest depends on their number. */
  readonly vcpus: 1 | 2;
  readonly faults: Faults;
}

/** CPUID(1).EAX of family 19h, model 11h, stepping 1: Genoa. */
const GENOA_FMS = 0x00a10f11;
const POLICY_DEBUG = 1n << 19n;
const FIRMWARE = {
  ...{ currentMajor: 1, currentMinor: 58, currentBuild: 1 },
  ...{ committedMajor: 1, committedMinor: 58, committedBuild: 1 },
};

/** The raw_attestation_doc: the report, the chip's certificate, and the current revocation list. */
export function snpEvidence(request: EvidenceRequest): Uint8Array {
  const { hardware, reportData, coordinatorHash, faults, vcpus } = request;
  const policy = SNP_GUEST.policy | (faults.get('evidence-debug') ? POLICY_DEBUG : 0n);
  const tcb: Tcb = faults.get('evidence-low-tcb')
    ? { ...SNP_GUEST.tcb, bootloader: SNP_GUEST.tcb.bootloader - 1 }
    : SNP_GUEST.tcb;
  const chipId = faults.get('evidence-chip') ? new Uint8Array(randomBytes(64)) : hardware.ids.chipId;
  const report = signReport(
    { ...launchedGuest(vcpus, policy, tcb), reportData, hostData: coordinatorHash, chipId },
    hardware.keys.vcek,
  );
  if (faults.get('evidence-signature')) report.signature[0] = (report.signature[0] as number) ^ 1;
  const isRevoked = faults.get('evidence-revoked') === true;
  return encodeSnpAttestation({
    report,
    vcek: faults.get('evidence-no-vcek')
      ? undefined
      : issueCertificate(vcekRequest(hardware.keys, chipId, tcb)),
    ask: hardware.roots.ask,
    ark: hardware.roots.ark,
    arkCrl: faults.get('evidence-no-crl') ? undefined : issueAmdCrl(hardware.keys, isRevoked),
  });
}

type UnboundReport = Omit<SnpReport, 'reportData' | 'hostData' | 'chipId' | 'signature'>;

/** The report that the firmware would give about our guest, launched by Contrast with its ID block. */
function launchedGuest(vcpus: EvidenceRequest['vcpus'], policy: bigint, tcbParts: Tcb): UnboundReport {
  const measurement = hex(SNP_GUEST.measurements[vcpus]);
  const tcb = tcbValue({ ...tcbParts, spl4: 0, spl5: 0, spl6: 0, spl7: 0 });
  return {
    ...{ version: 5, guestSvn: 2, policy, vmpl: 0, signatureAlgo: 1, signerInfo: 0 },
    ...{ familyId: idBlockId(1), imageId: idBlockId(2), platformInfo: SNP_GUEST.platformInfo },
    ...{ currentTcb: tcb, reportedTcb: tcb, committedTcb: tcb, launchTcb: tcb },
    measurement,
    idKeyDigest: idKeyDigest(measurement, policy),
    authorKeyDigest: new Uint8Array(48),
    reportId: new Uint8Array(randomBytes(32)),
    reportIdMa: new Uint8Array(32).fill(0xff), // no migration agent
    ...FIRMWARE,
    cpuid1EaxFms: GENOA_FMS,
    launchMitVector: SNP_GUEST.mitigationVector,
    currentMitVector: SNP_GUEST.mitigationVector,
  };
}

/** Family id 1 and image id 2 of the ID block: the number, then zeros (docs/protocol/attestation.md 5). */
const idBlockId = (number: number): Uint8Array => Uint8Array.of(number, ...new Uint8Array(15));

/** ECDSA P-384 over the first 2A0h bytes; R and S as 72 bytes each (docs/protocol/attestation.md 6.2). */
export function signReport(unsigned: Omit<SnpReport, 'signature'>, key: KeyObject): SnpReport {
  const signature = new Uint8Array(512);
  const body = serializeReport({ ...unsigned, signature }).subarray(0, SNP_SIGNED_BYTES);
  const rs = sign('sha384', body, { key, dsaEncoding: 'ieee-p1363' });
  signature.set(rs.subarray(0, 48).reverse(), 0);
  signature.set(rs.subarray(48).reverse(), 72);
  return { ...unsigned, signature };
}
