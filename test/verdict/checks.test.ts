/** The title of each check of a verdict, and its link of the chain of trust. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { describe, it } from 'node:test';
import { CHECK_SECTIONS } from '../../lib/attestation/verify-evidence.ts';
import { linkOf } from '../../lib/verdict/chain-of-trust.ts';
import { OPENS, SECRET_EXCHANGE_ROWS, titleOf } from '../../lib/verdict/checks.ts';

const ALL = [...CHECK_SECTIONS.flatMap(({ rows }) => rows), OPENS];

/** By the beginning of an id, as docs/checks.md orders them. */
const LINKS: readonly (readonly [link: string, ids: RegExp])[] = [
  ['coordinator', /^(nonce\.length|document\.form)$/],
  ['manifest', /^(manifest\.(count|expected|valid)|document\.policies|evidence\.reference_values)$/],
  ['mesh', /^document\.mesh_ca$/],
  ['hardware', /^evidence\.(form|type)$/],
  ['coordinator', /^(snp|tdx\.policy)\.report_data$/],
  ['hardware', /^(snp\.report|tdx\.quote|tdx\.qe)\.\w+$/],
  ['hardware', /^snp\.(product|roots|(vcek|chain|crl)\.\w+)$/],
  ['hardware', /^tdx\.(pck|tcb_info|qe_identity|root_crl|pck_crl|revocation)\.\w+$/],
  ['coordinator', /^snp\.(host_data|measurement|id_key|id_block|vmpl|policy\.\w+)$/],
  ['coordinator', /^tdx\.policy\.(?!report_data$)\w+$/],
  ['hardware', /^snp\.(migration_agent|(platform|tcb|firmware|mitigation|chip_id)\.\w+)$/],
  ['hardware', /^tdx\.tcb\.\w+$/],
  ['mesh', /^mesh\.(certificate|identity)\.\w+$/],
  ['secret', /^secret\.(form|signature|opens)$/],
];

describe('the table of checks', () => {
  it('has a link of the chain of trust for every check of the program', () => {
    const used = new Set<string>();
    for (const { id } of ALL) {
      const expected = LINKS.filter(([, ids]) => ids.test(id));
      assert.equal(expected.length, 1, id);
      const [[link, ids]] = expected as [(typeof LINKS)[number]];
      assert.equal(linkOf(id), link, id);
      used.add(String(ids));
    }
    assert.equal(used.size, LINKS.length);
  });

  it('has no link for an unknown check id', () => {
    for (const id of [
      '',
      'snp',
      'snp.unknown',
      'secrets.form',
      'document',
      '__proto__',
      'constructor.name',
    ]) {
      assert.equal(linkOf(id), undefined, id);
    }
  });

  it('has the title of each check', () => {
    for (const { id, title } of ALL) assert.equal(titleOf(id), title);
    assert.equal(titleOf('no.check'), 'no.check');
  });

  it('has the checks of a secret exchange, including secret.opens, which docs/checks.md names', () => {
    assert.deepEqual(
      SECRET_EXCHANGE_ROWS.map(({ id }) => id),
      ALL.map(({ id }) => id).filter((id) => /^(?:mesh|secret)\./.test(id)),
    );
    const page = readFileSync(new URL('../../docs/checks.md', import.meta.url), 'utf8');
    assert.ok(page.includes('`secret.opens`'));
  });
});
