import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { CHECK_SECTIONS, type Check } from '../../lib/attestation/verify-evidence.ts';
import { chainOfTrust } from '../../lib/verdict/chain-of-trust.ts';

describe('the chain of trust', () => {
  const ids = CHECK_SECTIONS.flatMap(({ rows }) => rows.map(({ id }) => id));
  const checks = (outcome: (id: string) => Check['outcome']): Check[] =>
    ids.map((id) => ({ id, source: 's', expected: 'e', found: 'f', outcome: outcome(id) }));
  const linksOf = (outcome: (id: string) => Check['outcome'], roots: 'vendor' | 'custom' = 'vendor') =>
    chainOfTrust({ checks: checks(outcome), roots });
  const outcomes = (outcome: (id: string) => Check['outcome']) =>
    linksOf(outcome).map((link) => `${link.id} ${link.outcome}`);

  /** By the beginning of an id, as docs/verify.md orders them. */
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
    ['secret', /^secret\.(form|signature)$/],
  ];

  it('has every check of the program, with its title, in the one link that is about it', () => {
    const held = linksOf(() => 'pass').flatMap(({ id, checks }) =>
      checks.map((check) => ({ ...check, link: id })),
    );
    assert.deepEqual(held.map(({ id }) => id).toSorted(), ids.toSorted());
    for (const { rows } of CHECK_SECTIONS) {
      for (const { id, title } of rows) {
        const [[link] = [], ...more] = LINKS.filter(([, ids]) => ids.test(id));
        assert.deepEqual([held.find((check) => check.id === id), more], [{ id, title, link }, []]);
      }
    }
  });

  it('passes a link only if none of its checks failed or is open', () => {
    assert.deepEqual(
      outcomes((id) =>
        id === 'snp.measurement' ? 'fail' : id.startsWith('mesh.') ? 'not-evaluated' : 'pass',
      ),
      ['hardware pass', 'manifest pass', 'coordinator fail', 'mesh unknown', 'secret unknown'],
    );
    assert.deepEqual(
      outcomes((id) => (id.startsWith('tdx.') ? 'not-applicable' : 'pass')),
      ['hardware pass', 'manifest pass', 'coordinator pass', 'mesh pass', 'secret pass'],
    );
  });

  it('does not pass a link by preliminary checks alone, such as a mesh CA without a mesh certificate', () => {
    const made = checks(() => 'pass').filter(({ id }) => !/^(?:mesh|snp|tdx)\./.test(id));
    const links = chainOfTrust({ checks: made, roots: 'vendor' });
    assert.deepEqual([...new Set(links.map(({ outcome }) => outcome))], ['unknown']);
  });

  it('does not pass a link behind one that failed, because nothing vouches for it', () => {
    assert.deepEqual(
      outcomes((id) => (id === 'snp.tcb.reported' ? 'fail' : 'pass')),
      ['hardware fail', 'manifest unknown', 'coordinator unknown', 'mesh unknown', 'secret unknown'],
    );
  });

  it('says in the link of the hardware, under custom roots only, that genuine hardware is not shown', () => {
    const meanings = (roots: 'vendor' | 'custom') =>
      linksOf(() => 'pass', roots).map(({ meaning }) => meaning);
    const [hardware, ...others] = meanings('custom');
    assert.match(hardware ?? '', /^NOT genuine AMD or Intel hardware.*custom roots are trusted.*simulator/);
    assert.deepEqual(others, meanings('vendor').slice(1));
    assert.match(meanings('vendor')[0] ?? '', /^A genuine AMD or Intel processor/);
  });

  it('has the outcome unknown for a link whose checks were not made', () => {
    const made = checks(() => 'pass').filter(({ id }) => !id.startsWith('secret.'));
    const { outcome, checks: none } = chainOfTrust({ checks: made, roots: 'vendor' }).at(-1) ?? {};
    assert.deepEqual([outcome, none], ['unknown', []]);
  });
});
