/** Certificate revocation lists (RFC 5280 5). Throws PrivatemodeError('evidence_malformed') only. */
import { unhandledCritical } from './certificate.ts';
import { DerCursor, malformed, parseDer, TAG } from './der.ts';
import { readSmallInteger, readTime, readUnsigned } from './der-values.ts';
import {
  EXTENSION_OID,
  type Extension,
  extensionValue,
  readExtensions,
  takeExtensions,
} from './extensions.ts';
import { type Name, readName } from './name.ts';
import { parseSigned, type SignedObject, takeSameAlgorithm } from './signed.ts';

export interface Crl extends SignedObject {
  readonly issuer: Name;
  readonly thisUpdate: Date;
  readonly nextUpdate: Date | undefined;
  /** Serial numbers in the form of `Certificate.serial`. */
  readonly revoked: ReadonlySet<string>;
  /** Lower-case hex like a serial; undefined where the extension is absent. */
  readonly crlNumber: string | undefined;
}

/**
 * One CRL and nothing after it. A critical extension, of the list or of an entry, is refused: the ones that exist
 * (delta lists, indirect lists, partial scope) would change what the list means.
 */
export function parseCrl(der: Uint8Array): Crl {
  const { tbs, algorithm, signed } = parseSigned(der);
  const cursor = new DerCursor(tbs);
  const version = cursor.takeIf(TAG.integer);
  const isOther = version !== undefined && readSmallInteger(version, 1) !== 1;
  if (isOther) throw malformed('a CRL of another version');
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
    nextUpdate: nextUpdate === undefined ? undefined : readTime(nextUpdate),
    revoked: entries === undefined ? new Set() : readRevoked(new DerCursor(entries)),
    crlNumber: crlNumber === undefined ? undefined : hex(readUnsigned(parseDer(crlNumber))),
  };
}

function readRevoked(list: DerCursor): Set<string> {
  const serials = new Set<string>();
  for (const element of list.rest(TAG.sequence)) {
    const entry = new DerCursor(element);
    serials.add(hex(readUnsigned(entry.take(TAG.integer))));
    readTime(entry.take());
    const extensions = entry.takeIf(TAG.sequence);
    entry.end();
    if (extensions !== undefined) refuseCritical(readExtensions(extensions));
  }
  return serials;
}

function refuseCritical(extensions: readonly Extension[]): void {
  const [oid] = unhandledCritical({ extensions }, []);
  if (oid !== undefined) throw malformed(`a CRL has the critical extension ${oid}`);
}

const hex = (bytes: Uint8Array): string => Buffer.from(bytes).toString('hex');

/** Whether the list is in force: issued already, and the next one not yet due. Without nextUpdate it is not. */
export function isCurrent({ thisUpdate, nextUpdate }: Crl, now: Date): boolean {
  return thisUpdate <= now && nextUpdate !== undefined && now <= nextUpdate;
}
