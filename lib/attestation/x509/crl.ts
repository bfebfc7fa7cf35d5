/** Reads certificate revocation lists (RFC 5280 5). Throws PrivatemodeError('evidence_malformed') only. */

import { type Der, DerCursor, malformed, parseDer, readSequence, TAG } from '../../crypto/der.ts';
import { unhandledCritical } from './certificate.ts';
import { readSerial, readSmallInteger, readTime } from './der-values.ts';
import {
  EXTENSION_OID,
  type Extension,
  extensionValue,
  readExtensions,
  takeExtensions,
} from './extensions.ts';
import { readName } from './name.ts';
import { parseSigned, takeSameAlgorithm } from './signed.ts';

const PARTIAL = [EXTENSION_OID.deltaCrlIndicator, EXTENSION_OID.issuingDistributionPoint];

export type Crl = Readonly<ReturnType<typeof parseCrl>>;

/**
 * Reads one CRL of version 2 that has a number; refuses bytes after it. Refuses delta lists and lists of
 * partial scope, whether the extension that marks them is critical or not. Refuses any critical extension, of
 * the list or of an entry. All these extensions change what the list means.
 */
export function parseCrl(der: Uint8Array) {
  const { tbs, algorithm, signed } = parseSigned(der);
  const cursor = new DerCursor(tbs);
  if (readSmallInteger(cursor.take(TAG.integer), 1) !== 1) throw malformed('a CRL of another version');
  takeSameAlgorithm(cursor, algorithm, 'a CRL');
  const issuer = readName(cursor.take(TAG.sequence));
  const thisUpdate = readTime(cursor.take());
  const nextUpdate = cursor.takeIf(TAG.utcTime, TAG.generalizedTime);
  const entries = cursor.takeIf(TAG.sequence);
  const extensions = takeExtensions(cursor, 0);
  refuseCritical(extensions);
  for (const oid of PARTIAL)
    if (extensionValue(extensions, oid)) throw malformed('a CRL that is not the whole list');
  const crlNumber = extensionValue(extensions, EXTENSION_OID.crlNumber);
  if (crlNumber === undefined) throw malformed('a CRL without a number');
  return {
    ...signed,
    issuer,
    thisUpdate,
    nextUpdate: nextUpdate && readTime(nextUpdate),
    /** Serial numbers in the form of `Certificate.serial`. */
    revoked: new Set(entries && Array.from(new DerCursor(entries).rest(TAG.sequence), readRevoked)),
    /** Lower-case hex like a serial. */
    crlNumber: readSerial(parseDer(crlNumber)),
  };
}

/** Reads an entry: the serial number of a revoked certificate. */
function readRevoked(element: Der): string {
  const { serial, extensions } = readSequence(element, (entry) => ({
    serial: readSerial(entry.take()),
    revokedAt: readTime(entry.take()),
    extensions: entry.takeIf(TAG.sequence),
  }));
  refuseCritical(extensions ? readExtensions(extensions) : []);
  return serial;
}

function refuseCritical(extensions: readonly Extension[]): void {
  const [oid] = unhandledCritical({ extensions }, []);
  if (oid !== undefined) throw malformed(`a CRL has the critical extension ${oid}`);
}

/**
 * Whether the list is in force: issued already, and the next one not yet due. Without nextUpdate it is not.
 */
export function isCurrent({ thisUpdate, nextUpdate }: Crl, now: Date): boolean {
  return thisUpdate <= now && nextUpdate !== undefined && now <= nextUpdate;
}
