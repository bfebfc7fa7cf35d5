/** What people read of each check of a verdict: its title, and what its failure means. */
import type { CheckDescription } from '../attestation/check.ts';
import { MESH_ROWS, SECRET_ROWS } from '../attestation/mesh.ts';
import { CHECK_SECTIONS, checksAbout } from '../attestation/verify-evidence.ts';

/** A check that only `verify` makes: a program that uses a secret has opened it. */
export const OPENS: CheckDescription = {
  id: 'secret.opens',
  title: 'Encapsulated key',
  source: 'attestation.md 12',
  expected: 'opens: its X25519 share is not of low order',
};

/** The checks of a secret exchange, in order; it is good if every one passes. */
export const SECRET_EXCHANGE_ROWS: readonly CheckDescription[] = [...MESH_ROWS, ...SECRET_ROWS, OPENS];

const TITLES: ReadonlyMap<string, string> = new Map(
  [...CHECK_SECTIONS.flatMap(({ rows }) => rows), OPENS].map(({ id, title }) => [id, title]),
);

/** The checks that compare a digest over the nonce. */
export const NONCE_DIGESTS: ReadonlySet<string> = checksAbout('nonce digest');

const REPORT_DATA =
  'Report data bind nonce, manifest, root CA and mesh CA: the evidence answers another nonce, or one of the other three was exchanged.';

/**
 * By the id of a check: what its failure means to a person. Only for checks that compare digests, which do
 * not say it.
 */
export const MEANINGS: ReadonlyMap<string, string> = new Map(
  Array.from(NONCE_DIGESTS, (id) => [id, REPORT_DATA]),
);

/** The title of a check for a person; the id itself if the program does not know the check. */
export const titleOf = (id: string): string => TITLES.get(id) ?? id;
