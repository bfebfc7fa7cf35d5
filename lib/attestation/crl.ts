/** Reads certificate revocation lists (RFC 5280 5). Throws PrivatemodeError('evidence_malformed') only. */
import { children, type Der, malformed, parseDer, readSequence, TAG } from '../crypto/der.ts';
import { readSerial, readSmallInteger, readTime } from '../crypto/der-values.ts';
import {
  EXTENSION_OID,
  type Extensions,
  readExtensions,
  readName,
  readSigned,
  takeExtensions,
  unhandledCritical,
} from './x509.ts';

const PARTIAL = [EXTENSION_OID.deltaCrlIndicator, EXTENSION_OID.issuingDistributionPoint];

export type Crl = Readonly<ReturnType<typeof parseCrl>>;

/**
 * Reads one CRL of version 2 that has a number; refuses bytes after it. Refuses delta lists and lists of
 * partial scope, whether the extension that marks them is critical or not. Refuses any critical extension, of
 * the list or of an entry. All these extensions change what the list means.
 */
export const parseCrl = (der: Uint8Array) =>
  readSigned(der, (cursor, takeAlgorithm) => {
    if (readSmallInteger(cursor.take(), 1) !== 1) throw malformed('a CRL of another version');
    takeAlgorithm();
    const issuer = readName(cursor.take());
    const thisUpdate = readTime(cursor.take());
    const nextUpdate =
      cursor.optional(TAG.utcTime, readTime) ?? cursor.optional(TAG.generalizedTime, readTime);
    const entries = cursor.optional(TAG.sequence, children) ?? [];
    const extensions = takeExtensions(cursor, 0);
    refuseCritical({ extensions });
    for (const oid of PARTIAL) if (extensions.has(oid)) throw malformed('a CRL that is not the whole list');
    const number = extensions.get(EXTENSION_OID.crlNumber);
    if (number === undefined) throw malformed('a CRL without a number');
    return {
      issuer,
      thisUpdate,
      nextUpdate,
      /** Serial numbers in the form of `Certificate.serial`. */
      revoked: new Set(entries.map(readRevoked)),
      crlNumber: readSerial(parseDer(number.value)),
    };
  });

/** Reads an entry: the serial number of a revoked certificate, its date, and extensions. */
const readRevoked = (element: Der): string =>
  readSequence(element, (entry) => {
    const serial = readSerial(entry.take());
    readTime(entry.take());
    refuseCritical({ extensions: entry.optional(TAG.sequence, readExtensions) ?? new Map() });
    return serial;
  });

function refuseCritical(of: { readonly extensions: Extensions }): void {
  const [oid] = unhandledCritical(of, []);
  if (oid !== undefined) throw malformed(`a CRL has the critical extension ${oid}`);
}
