/** The checks of the PCK certificate chain: leaf, platform CA, root (docs/protocol/attestation.md 10). */
import { demand, finding, valueIn } from '../check.ts';
import { nameText } from '../x509/name.ts';
import { anchorDefects, INTEL_NAMES, linkDefects, profileDefects, validityDefects } from './chain.ts';
import { SGX_EXTENSION_OID } from './sgx-extension.ts';
import { hex, noDefects, rowsFrom, wasRead } from './subject.ts';

const PCK_EXTENSIONS = 6;

export const PCK_ROWS = rowsFrom('attestation.md 10', [
  {
    id: 'tdx.pck.format',
    title: 'The PCK chain can be read',
    expected: 'three certificates in PEM, at most a NUL byte after them',
    judge: ({ chain }) => wasRead(chain, 'three certificates'),
  },
  {
    id: 'tdx.pck.profile',
    title: 'The certificates are of the kind Intel issues',
    expected: 'X.509 v3, ECDSA on P-256 with SHA-256, subjects of a platform CA chain',
    judge: (subject) => {
      const chain = valueIn(subject.chain);
      if (chain === undefined) return undefined;
      const defects = [
        ...profileDefects(chain.leaf, INTEL_NAMES.pck),
        ...profileDefects(chain.intermediate, INTEL_NAMES.platformCa),
        ...profileDefects(chain.root, INTEL_NAMES.root),
      ];
      return noDefects(defects, 'all three as expected');
    },
  },
  {
    id: 'tdx.pck.chain',
    title: 'The PCK chain leads to the trusted root',
    expected: 'leaf, platform CA and the trusted root, each issued by the next',
    judge: async (subject) => {
      const [chain, pinned] = [valueIn(subject.chain), demand(subject.pinnedRoot)];
      if (chain === undefined || pinned === undefined) return undefined;
      const defects = [
        ...anchorDefects(chain.root, pinned),
        ...(await linkDefects(chain.root, pinned, 1)),
        ...(await linkDefects(chain.intermediate, pinned, 1)),
        ...(await linkDefects(chain.leaf, chain.intermediate, 0)),
      ];
      return noDefects(defects, `chain to ${nameText(pinned.subject)}`);
    },
  },
  {
    id: 'tdx.pck.validity',
    title: 'The PCK chain is in its validity',
    expected: 'every certificate valid now',
    judge: (subject) => {
      const [chain, pinned] = [valueIn(subject.chain), valueIn(subject.pinnedRoot)];
      if (chain === undefined || pinned === undefined) return undefined;
      const { leaf, intermediate, root } = chain;
      return noDefects(validityDefects([leaf, intermediate, root, pinned], subject.context.now), 'all valid');
    },
  },
  {
    id: 'tdx.pck.extensions',
    title: 'The PCK certificate describes its platform',
    expected: `${PCK_EXTENSIONS} extensions, ${SGX_EXTENSION_OID} complete`,
    judge: ({ chain, sgx }) => {
      const count = valueIn(chain)?.leaf.extensions.length;
      if (count === undefined) return undefined;
      if (count !== PCK_EXTENSIONS) return finding(false, `${count} extensions`);
      const extension = demand(sgx);
      return extension && finding(true, `${count} extensions, platform model ${hex(extension.fmspc)}`);
    },
  },
]);
