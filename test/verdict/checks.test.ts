/** Where each check of a verdict stands, under both orders in which it is shown. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { describe, it } from 'node:test';
import { CHECK_SECTIONS } from '../../lib/attestation/verify.ts';
import { OPENS, placeOf, SECRET_EXCHANGE_ROWS, titleOf } from '../../lib/verdict/checks.ts';

const ALL = [...CHECK_SECTIONS.flatMap(({ rows }) => rows), OPENS];

/** By the beginning of an id, as docs/verification.md orders them. */
const PLACES: readonly (readonly [link: string, heading: string, ids: RegExp])[] = [
  ['coordinator', 'Documents', /^(nonce\.length|document\.form)$/],
  [
    'manifest',
    'Documents',
    /^(manifest\.(count|expected|valid)|document\.policies|evidence\.reference_values)$/,
  ],
  ['mesh', 'Documents', /^document\.mesh_ca$/],
  ['hardware', 'Documents', /^evidence\.(form|type)$/],
  ['coordinator', 'Evidence', /^(snp|tdx\.policy)\.report_data$/],
  ['hardware', 'Evidence', /^(snp\.report|tdx\.quote|tdx\.qe)\.\w+$/],
  ['hardware', 'Certificate chain', /^snp\.(product|roots|(vcek|chain|crl)\.\w+)$/],
  ['hardware', 'Certificate chain', /^tdx\.(pck|tcb_info|qe_identity|root_crl|pck_crl|revocation)\.\w+$/],
  ['coordinator', 'Policy', /^snp\.(host_data|measurement|id_key|id_block|vmpl|policy\.\w+)$/],
  ['coordinator', 'Policy', /^tdx\.policy\.(?!report_data$)\w+$/],
  ['hardware', 'Policy', /^snp\.(migration_agent|(platform|tcb|firmware|mitigation|chip_id)\.\w+)$/],
  ['hardware', 'Policy', /^tdx\.tcb\.\w+$/],
  ['mesh', 'Secret exchange', /^mesh\.(certificate|identity)\.\w+$/],
  ['secret', 'Secret exchange', /^secret\.(form|signature|opens)$/],
];

describe('the table of checks', () => {
  it('has a place for every check of the program, in the chain of trust and under a heading', () => {
    const used = new Set<string>();
    for (const { id } of ALL) {
      const expected = PLACES.filter(([, , ids]) => ids.test(id));
      assert.equal(expected.length, 1, id);
      const [link, heading] = expected[0]!;
      assert.deepEqual(placeOf(id), { link, heading }, id);
      used.add(String(expected[0]![2]));
    }
    assert.equal(used.size, PLACES.length);
  });

  it('has no place for what is no check', () => {
    for (const id of [
      '',
      'snp',
      'snp.unknown',
      'secrets.form',
      'document',
      '__proto__',
      'constructor.name',
    ]) {
      assert.equal(placeOf(id), undefined, id);
    }
  });

  it('has the title of each check', () => {
    for (const { id, title } of ALL) assert.equal(titleOf(id), title);
    assert.equal(titleOf('no.check'), 'no.check');
  });

  it('has the checks of a secret exchange, of which docs/verification.md names the one that only verify makes', () => {
    assert.deepEqual(
      SECRET_EXCHANGE_ROWS.map(({ id }) => id),
      ALL.map(({ id }) => id).filter((id) => /^(?:mesh|secret)\./.test(id)),
    );
    const page = readFileSync(new URL('../../docs/verification.md', import.meta.url), 'utf8');
    assert.ok(page.includes('`secret.opens`'));
  });
});
