/**
 * The hardware roots that the product trusts, in PEM as AMD serves them at
 * `https://kdsintf.amd.com/vcek/v1/<product>/cert_chain` and Intel at
 * `https://certificates.trustedservices.intel.com/`. docs/protocol/attestation.md 15 lists their
 * fingerprints. Only the flag --unsafe-trust-roots replaces these roots, and the log warns of it.
 */
import type { Product } from '../snp/packed-fields.ts';
import roots from './production.json' with { type: 'json' };

/** The hardware roots to trust, in PEM. */
export interface TrustRoots {
  readonly snp: Readonly<Partial<Record<Product, { readonly ark: string; readonly ask: string }>>>;
  readonly tdx: { readonly root: string } | undefined;
}

export const PRODUCTION_ROOTS: TrustRoots = roots;

/** The domains of the real service. Evidence from their hosts is never verified under other roots. */
const PRODUCTION_DOMAINS = ['privatemode.ai', 'confidential.cloud'];

/** Whether a host name, in lower case and without a port, belongs to the real service. Dots may end it. */
export function isProductionHost(host: string): boolean {
  const name = host.replace(/\.+$/, '');
  return PRODUCTION_DOMAINS.some((domain) => name === domain || name.endsWith(`.${domain}`));
}
