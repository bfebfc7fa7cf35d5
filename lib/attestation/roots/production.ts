/** The hardware roots that the product trusts; there is no way to add to them but an explicit, loud flag. */
import type { TrustRoots } from '../trust-roots.ts';
import { ARK_GENOA, ARK_MILAN, ASK_GENOA, ASK_MILAN } from './amd.ts';
import { INTEL_SGX_ROOT_CA } from './intel.ts';

export const PRODUCTION_ROOTS: TrustRoots = {
  snp: {
    Milan: { ark: ARK_MILAN, ask: ASK_MILAN },
    Genoa: { ark: ARK_GENOA, ask: ASK_GENOA },
  },
  tdx: { root: INTEL_SGX_ROOT_CA },
};
