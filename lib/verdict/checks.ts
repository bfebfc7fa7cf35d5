/** Every check of a verdict: its title, its link of the chain of trust, and its heading in the text. */
import type { CheckDescription } from '../attestation/check.ts';
import { MESH_ROWS, SECRET_ROWS } from '../attestation/mesh.ts';
import { CHECK_SECTIONS } from '../attestation/verify.ts';

/** A check of `verify` alone: who uses a secret has opened it. */
export const OPENS: CheckDescription = {
  id: 'secret.opens',
  title: 'Encapsulated key',
  source: 'attestation.md 12',
  expected: 'opens: its X25519 share is not of low order',
};

/** The checks of a secret exchange, in order; it is good if every one passes. */
export const SECRET_EXCHANGE_ROWS: readonly CheckDescription[] = [...MESH_ROWS, ...SECRET_ROWS, OPENS];

/** From the hardware to the secret: each link is vouched for by the one before it. */
export type LinkId = 'hardware' | 'manifest' | 'coordinator' | 'mesh' | 'secret';

interface Place {
  readonly heading: string;
  readonly link: LinkId;
}

/** Headings in their order, and below each which checks belong to which link: by their whole ids, or by what these begin with. */
const PLACES: Readonly<Record<string, Readonly<Partial<Record<LinkId, string>>>>> = {
  Documents: {
    hardware: 'evidence.form evidence.type',
    manifest: 'manifest document.policies evidence.reference_values',
    coordinator: 'nonce document.form',
    mesh: 'document.mesh_ca',
  },
  Evidence: {
    hardware: 'snp.report tdx.quote tdx.qe',
    coordinator: 'snp.report_data tdx.policy.report_data',
  },
  'Certificate chain': {
    hardware:
      'snp.vcek snp.product snp.roots snp.chain snp.crl ' +
      'tdx.pck tdx.tcb_info tdx.qe_identity tdx.root_crl tdx.pck_crl tdx.revocation',
  },
  Policy: {
    hardware: 'snp.migration_agent snp.platform snp.tcb snp.firmware snp.mitigation snp.chip_id tdx.tcb',
    coordinator: 'snp.host_data snp.measurement snp.id_key snp.id_block snp.vmpl snp.policy tdx.policy',
  },
  'Secret exchange': { mesh: 'mesh', secret: 'secret' },
};

export const HEADINGS: readonly string[] = Object.keys(PLACES);

const PLACE_OF: ReadonlyMap<string, Place> = new Map(
  Object.entries(PLACES).flatMap(([heading, links]) =>
    Object.entries(links).flatMap(([link, names]) =>
      names.split(' ').map((name) => [name, { heading, link: link as LinkId }] as const),
    ),
  ),
);

/** Where the table has a check, by as much of its id as it names. */
export function placeOf(id: string): Place | undefined {
  for (let name = id; name !== ''; name = name.slice(0, Math.max(0, name.lastIndexOf('.')))) {
    const place = PLACE_OF.get(name);
    if (place !== undefined) return place;
  }
  return undefined;
}

const TITLES: ReadonlyMap<string, string> = new Map(
  [...CHECK_SECTIONS.flatMap(({ rows }) => rows), OPENS].map(({ id, title }) => [id, title]),
);

const REPORT_DATA =
  'Report data bind nonce, manifest, root CA and mesh CA: the evidence answers another nonce, or one of the other three was exchanged.';

/** What the failure of a check means to a person, by id, where what was expected and found are digests, which do not say it. */
export const MEANINGS: ReadonlyMap<string, string> = new Map([
  ['snp.report_data', REPORT_DATA],
  ['tdx.policy.report_data', REPORT_DATA],
]);

/** The title of a check for a person; its id where the program does not know it. */
export const titleOf = (id: string): string => TITLES.get(id) ?? id;
