/** Where the CRL of a certificate's issuer is published (RFC 5280 4.2.1.13). */
import type { Certificate } from '../x509/certificate.ts';
import { contextTag, DerCursor, malformed, onlyChild, parseDer, TAG } from '../x509/der.ts';
import { EXTENSION_OID, extensionValue } from '../x509/extensions.ts';

const CONTEXT_0 = contextTag(0, true);
const URI = contextTag(6, false);

/** The one URI of the one distribution point. Throws evidence_malformed where there is not exactly one. */
export function distributionPoint({ extensions }: Certificate): string {
  const value = extensionValue(extensions, EXTENSION_OID.crlDistributionPoints);
  if (value === undefined) throw malformed('the root names no distribution point for its CRL');
  const point = new DerCursor(onlyChild(parseDer(value, TAG.sequence)));
  const fullName = onlyChild(point.take(CONTEXT_0));
  point.end();
  const names = new DerCursor(fullName, CONTEXT_0);
  const { content } = names.take(URI);
  names.end();
  return Buffer.from(content).toString('latin1');
}
