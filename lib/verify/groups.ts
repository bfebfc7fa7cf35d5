/** The checks as a person reads them: with titles, in groups. */
import { CHECK_SECTIONS } from '../attestation/checks.ts';
import { SECRET_EXCHANGE_ROWS } from './secret-checks.ts';

export const GROUPS = ['Documents', 'Evidence', 'Certificate chain', 'Policy', 'Secret exchange'] as const;
export type Group = (typeof GROUPS)[number];

/** Beginnings of check ids; the longest one that fits decides. */
const GROUP_OF: Readonly<Record<string, Group>> = {
  'nonce.': 'Documents',
  'document.': 'Documents',
  'manifest.': 'Documents',
  'evidence.': 'Documents',
  'snp.report': 'Evidence',
  'snp.vcek.': 'Certificate chain',
  'snp.product': 'Certificate chain',
  'snp.roots': 'Certificate chain',
  'snp.chain.': 'Certificate chain',
  'snp.crl.': 'Certificate chain',
  'snp.': 'Policy',
  'tdx.quote.': 'Evidence',
  'tdx.qe.': 'Evidence',
  'tdx.policy.report_data': 'Evidence',
  'tdx.pck.': 'Certificate chain',
  'tdx.tcb_info.': 'Certificate chain',
  'tdx.qe_identity.': 'Certificate chain',
  'tdx.root_crl.': 'Certificate chain',
  'tdx.pck_crl.': 'Certificate chain',
  'tdx.revocation.': 'Certificate chain',
  'tdx.': 'Policy',
  'mesh.': 'Secret exchange',
  'secret.': 'Secret exchange',
};

const BY_LENGTH = Object.keys(GROUP_OF).sort((a, b) => b.length - a.length);
const TITLES = new Map(
  [...CHECK_SECTIONS.flatMap(({ rows }) => rows), ...SECRET_EXCHANGE_ROWS].map(({ id, title }) => [
    id,
    title,
  ]),
);

/** `Policy` for an id that no beginning fits. */
export function groupOf(id: string): Group {
  const beginning = BY_LENGTH.find((start) => id.startsWith(start));
  return (beginning === undefined ? undefined : GROUP_OF[beginning]) ?? 'Policy';
}

export const titleOf = (id: string): string => TITLES.get(id) ?? id;
