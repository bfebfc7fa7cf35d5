/**
 * The hardware roots that the product trusts, in PEM as their vendors serve them. AMD:
 * `https://kdsintf.amd.com/vcek/v1/<product>/cert_chain`; Intel: `https://certificates.trustedservices.intel.com/`.
 * docs/protocol/attestation.md 15 lists the fingerprints. Only --unsafe-trust-roots, loudly logged, replaces them.
 */
import type { TrustRoots } from '../evidence.ts';
import roots from './production.json' with { type: 'json' };

export const PRODUCTION_ROOTS: TrustRoots = roots;
