/** Certificate revocation lists (RFC 5280 5). Throws PrivatemodeError('evidence_malformed') only. */
import { unhandledCritical } from './certificate.ts';
import { type Der, DerCursor, malformed, parseDer, readSequence, TAG } from './der.ts';
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

export type Crl = Readonly<ReturnType<typeof parseCrl>>;

/**
 * One CRL and nothing after it. A critical extension, of the list or of an entry, is refused: the ones that exist
 * (delta lists, indirect lists, partial scope) would change what the list means.
 */
export function parseCrl(der: Uint8Array) {
  const { tbs, algorithm, signed } = parseSigned(der);
  const cursor = new DerCursor(tbs);
  const version = cursor.takeIf(TAG.integer);
  if (version && readSmallInteger(version, 1) !== 1) throw malformed('a CRL of another version');
  takeSameAlgorithm(cursor, algorithm, 'a CRL');
  const issuer = readName(cursor.take(TAG.sequence));
  const thisUpdate = readTime(cursor.take());
  const nextUpdate = cursor.takeIf(TAG.utcTime, TAG.generalizedTime);
  const entries = cursor.takeIf(TAG.sequence);
  const extensions = takeExtensions(cursor, 0);
  refuseCritical(extensions);
  const crlNumber = extensionValue(extensions, EXTENSION_OID.crlNumber);
  return {
    ...signed,
    issuer,
    thisUpdate,
    nextUpdate: nextUpdate && readTime(nextUpdate),
    /** Serial numbers in the form of `Certificate.serial`. */
    revoked: new Set(entries && Array.from(new DerCursor(entries).rest(TAG.sequence), readRevoked)),
    /** Lower-case hex like a serial; undefined where the extension is absent. */
    crlNumber: crlNumber && readSerial(parseDer(crlNumber)),
  };
}

/** The serial number of a certificate that was revoked. */
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

/** Whether the list is in force: issued already, and the next one not yet due. Without nextUpdate it is not. */
export function isCurrent({ thisUpdate, nextUpdate }: Crl, now: Date): boolean {
  return thisUpdate <= now && nextUpdate !== undefined && now <= nextUpdate;
}
