/** Intel's identity of the TD quoting enclave (attestation.md 10). */
import type { JsonObject } from './json-object.ts';
import { readSvnLevels, type SvnLevel } from './tcb-info.ts';

export interface QeIdentity {
  readonly id: string;
  readonly version: number;
  readonly issueDate: Date;
  readonly nextUpdate: Date;
  readonly evaluationDataNumber: number;
  /** 4 bytes, little-endian as in the enclave report. */
  readonly miscSelect: Uint8Array;
  readonly miscSelectMask: Uint8Array;
  /** 16 bytes. */
  readonly attributes: Uint8Array;
  readonly attributesMask: Uint8Array;
  /** 32 bytes. */
  readonly mrSigner: Uint8Array;
  readonly isvProdId: number;
  /** Best first; at least one. */
  readonly levels: readonly SvnLevel[];
}

/** Reads the value of `enclaveIdentity`. Throws collateral_unavailable when a member is missing or of another shape. */
export function readQeIdentity(identity: JsonObject): QeIdentity {
  return {
    id: identity.string('id'),
    version: identity.integer('version', 0xffff),
    issueDate: identity.date('issueDate'),
    nextUpdate: identity.date('nextUpdate'),
    evaluationDataNumber: identity.integer('tcbEvaluationDataNumber', 0xffff_ffff),
    miscSelect: identity.hex('miscselect', 4),
    miscSelectMask: identity.hex('miscselectMask', 4),
    attributes: identity.hex('attributes', 16),
    attributesMask: identity.hex('attributesMask', 16),
    mrSigner: identity.hex('mrsigner', 32),
    isvProdId: identity.integer('isvprodid', 0xffff),
    levels: readSvnLevels(identity),
  };
}

/** Whether the bits of `value` under the mask are those of `wanted`; all three of the same length. */
export function equalUnderMask(value: Uint8Array, mask: Uint8Array, wanted: Uint8Array): boolean {
  return (
    value.length === mask.length &&
    value.length === wanted.length &&
    value.every((byte, i) => (byte & (mask[i] ?? 0)) === wanted[i])
  );
}
