/** Reads, compares and prints distinguished names (RFC 5280 4.1.2.4). */
import {
  children,
  type Der,
  type DerCursor,
  expectTag,
  malformed,
  readSequence,
  TAG,
} from '../../crypto/der.ts';
import { readOid, readText } from './der-values.ts';

export type Name = Readonly<ReturnType<typeof readName>>;

const SHORT_NAMES: Readonly<Record<string, string>> = {
  '2.5.4.3': 'CN',
  '2.5.4.5': 'serialNumber',
  '2.5.4.6': 'C',
  '2.5.4.7': 'L',
  '2.5.4.8': 'ST',
  '2.5.4.10': 'O',
  '2.5.4.11': 'OU',
};

/**
 * The encoded name, and its attributes in order of appearance: `type` is the short name (`CN`, `O` …) or the
 * OID.
 */
export function readName(element: Der) {
  const attributes = children(expectTag(element, TAG.sequence)).flatMap((rdn) => {
    const pairs = children(expectTag(rdn, TAG.set));
    if (pairs.length === 0) throw malformed('an empty relative distinguished name');
    return pairs.map((pair) => readSequence(pair, readAttribute));
  });
  return { der: element.full, attributes };
}

function readAttribute(cursor: DerCursor) {
  const oid = readOid(cursor.take());
  return { type: SHORT_NAMES[oid] ?? oid, value: readText(cursor.take()) };
}

/** Whether both names have the same encoding. Every issuer met here encodes equal names in the same way. */
export const sameName = (a: Name, b: Name): boolean => Buffer.compare(a.der, b.der) === 0;

/** The one common name; undefined if there is none or more than one. */
export function commonName({ attributes }: Name): string | undefined {
  const [name, ...others] = attributes.filter(({ type }) => type === 'CN');
  return others.length === 0 ? name?.value : undefined;
}

/** The name for a person: `CN=SEV-Genoa, O=…`. */
export const nameText = ({ attributes }: Name): string =>
  attributes.map(({ type, value }) => `${type}=${value}`).join(', ');
