import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { CHECK_SECTIONS, type Check } from '../../lib/attestation/verify-evidence.ts';
import { chainOfTrust } from '../../lib/verdict/chain-of-trust.ts';

describe('the chain of trust', () => {
  const ids = CHECK_SECTIONS.flatMap(({ rows }) => rows.map(({ id }) => id));
  const checks = (outcome: (id: string) => Check['outcome']): Check[] =>
    ids.map((id) => ({ id, source: 's', expected: 'e', found: 'f', outcome: outcome(id) }));
  const outcomes = (outcome: (id: string) => Check['outcome']) =>
    chainOfTrust(checks(outcome), 'vendor').map((link) => `${link.id} ${link.outcome}`);

  it('has every check of the program in exactly one link', () => {
    const links = chainOfTrust(
      checks(() => 'pass'),
      'vendor',
    );
    assert.deepEqual(links.flatMap((link) => link.checks.map(({ id }) => id)).toSorted(), ids.toSorted());
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
    const links = chainOfTrust(
      checks(() => 'pass').filter(({ id }) => !/^(?:mesh|snp|tdx)\./.test(id)),
      'vendor',
    );
    assert.deepEqual(
      links.map((link) => `${link.id} ${link.outcome}`),
      ['hardware unknown', 'manifest unknown', 'coordinator unknown', 'mesh unknown', 'secret unknown'],
    );
  });

  it('does not pass a link behind one that failed, because nothing vouches for it', () => {
    assert.deepEqual(
      outcomes((id) => (id === 'snp.tcb.reported' ? 'fail' : 'pass')),
      ['hardware fail', 'manifest unknown', 'coordinator unknown', 'mesh unknown', 'secret unknown'],
    );
  });

  it('says in the link of the hardware, under custom roots only, that genuine hardware is not shown', () => {
    const meanings = (roots: 'vendor' | 'custom') =>
      chainOfTrust(
        checks(() => 'pass'),
        roots,
      ).map(({ meaning }) => meaning);
    const [hardware, ...others] = meanings('custom');
    assert.match(hardware ?? '', /^NOT genuine AMD or Intel hardware.*custom roots are trusted.*simulator/);
    assert.deepEqual(others, meanings('vendor').slice(1));
    assert.match(meanings('vendor')[0] ?? '', /^A genuine AMD or Intel processor/);
  });

  it('has the outcome unknown for a link whose checks were not made', () => {
    const links = chainOfTrust(
      checks(() => 'pass').filter(({ id }) => !id.startsWith('secret.')),
      'vendor',
    );
    assert.deepEqual(links.at(-1)?.outcome, 'unknown');
    assert.deepEqual(links.at(-1)?.checks, []);
  });
});
