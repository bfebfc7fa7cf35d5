/**
 * The hardware root certificates that the product trusts, in PEM. AMD serves its roots at
 * `https://kdsintf.amd.com/vcek/v1/<product>/cert_chain`, and Intel serves its root at
 * `https://certificates.trustedservices.intel.com/`. docs/protocol/attestation.md 15 lists the fingerprints.
 * Only --unsafe-trust-roots replaces the roots, and the log warns of this flag.
 */
import type { Product } from '../snp/packed-fields.ts';
import roots from './production.json' with { type: 'json' };

/** The trusted root certificates of the hardware vendors, in PEM. */
export interface TrustRoots {
  readonly snp: Readonly<Partial<Record<Product, { readonly ark: string; readonly ask: string }>>>;
  readonly tdx: { readonly root: string } | undefined;
}

export const PRODUCTION_ROOTS: TrustRoots = roots;

/** The domains of the real service. Evidence of the real service is verified only under PRODUCTION_ROOTS. */
const PRODUCTION_DOMAINS = ['privatemode.ai', 'confidential.cloud'];

/** Whether a lower-case host name without a port belongs to the real service. Trailing dots are allowed. */
export function isProductionHost(host: string): boolean {
  const name = host.replace(/\.+$/, '');
  return PRODUCTION_DOMAINS.some((domain) => name === domain || name.endsWith(`.${domain}`));
}
