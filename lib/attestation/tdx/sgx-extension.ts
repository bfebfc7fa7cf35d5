/** Intel's X.509 extension of a PCK certificate (docs/protocol/attestation.md 10). */
import * as asn1 from '../../crypto/der.ts';
import { malformed } from '../../crypto/der.ts';

export const SGX_EXTENSION_OID = '1.2.840.113741.1.13.1';

export type SgxExtension = Readonly<ReturnType<typeof readSgxExtension>>;

/**
 * Reads the extension as the platform CA writes it: every part once, with its length, and nothing else; only
 * the configuration flags may be absent. Throws evidence_malformed.
 */
export function readSgxExtension(value: Uint8Array | undefined) {
  if (value === undefined) throw malformed(`the PCK certificate has no ${SGX_EXTENSION_OID}`);
  const whole = asn1.parseDer(value);
  const [ppid, tcb, pceId, fmspc, sgxType, piid, flags] = readParts(whole, SGX_EXTENSION_OID, 7);
  const svns = readParts(asn1.expectTag(tcb), `${SGX_EXTENSION_OID}.2`, 18);
  const configuration = readParts(asn1.expectTag(flags), `${SGX_EXTENSION_OID}.7`, 3);
  const [dynamicPlatform, , smtEnabled] = configuration.map((flag) => flag && asn1.readBoolean(flag));
  octets(ppid, 16, 'PPID');
  octets(svns[17], 16, 'CPUSVN');
  return {
    pceId: octets(pceId, 2, 'PCE-ID'),
    /** The platform model for which Intel issues TCB info. */
    fmspc: octets(fmspc, 6, 'FMSPC'),
    /** 0 standard, 1 scalable, 2 scalable with integrity. */
    sgxType: asn1.readSmallInteger(asn1.expectTag(sgxType), 2, asn1.TAG.enumerated),
    /** The platform instance. */
    piid: octets(piid, 16, 'PIID'),
    componentSvns: svns.slice(0, 16).map((svn) => asn1.readSmallInteger(asn1.expectTag(svn), 0xff)),
    pceSvn: asn1.readSmallInteger(asn1.expectTag(svns[16]), 0xffff),
    dynamicPlatform,
    smtEnabled,
  };
}

function octets(element: asn1.Der | undefined, length: number, name: string): Uint8Array {
  const { content } = asn1.expectTag(element, asn1.TAG.octetString);
  if (content.length === length) return content;
  throw malformed(`the ${name} of the PCK certificate has ${content.length} bytes`);
}

/**
 * Reads a SEQUENCE of (OID, value) pairs, in any order. Returns the values of the OIDs `prefix`.1 to
 * `prefix`.`count`, undefined for those that are absent; refuses any other OID, and one that comes twice.
 */
function readParts(element: asn1.Der, prefix: string, count: number): readonly (asn1.Der | undefined)[] {
  const known = Array.from({ length: count }, (_, i) => `${prefix}.${i + 1}`);
  const values = new Map<string, asn1.Der>();
  for (const pair of new asn1.DerCursor(element).rest(asn1.TAG.sequence)) {
    const [oid, value] = asn1.readSequence(
      pair,
      (cursor) => [asn1.readOid(cursor.take()), cursor.take()] as const,
    );
    if (values.has(oid)) throw malformed(`the PCK certificate states ${oid} twice`);
    if (!known.includes(oid)) throw malformed(`the PCK certificate states ${oid}, which is not known`);
    values.set(oid, value);
  }
  return known.map((oid) => values.get(oid));
}
