import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { readSgxExtension } from '../../../lib/attestation/tdx/chain.ts';
import { boolean, enumerated, integer, octetString } from '../../../simulator/pki/der.ts';
import { encodeSgx, SGX_PARTS, type SgxParts } from '../../support/evidence/tdx-authorities.ts';

const MALFORMED = { name: 'PrivatemodeError', code: 'evidence_malformed' };

describe('Intel’s extension of a PCK certificate', () => {
  const read = (change: Partial<SgxParts>) => readSgxExtension(encodeSgx({ ...SGX_PARTS, ...change }));

  it('is read into platform, versions and configuration', () => {
    const { fmspc, sgxType, piid, pceSvn, componentSvns, dynamicPlatform, smtEnabled } = read({});
    assert.equal(Buffer.from(fmspc).toString('hex'), 'a0b1c2d3e4f5');
    assert.deepEqual([sgxType, piid[0], pceSvn, componentSvns[7]], [2, 0x11, 13, 5]);
    assert.deepEqual([dynamicPlatform, smtEnabled], [false, false]);
  });

  type List = readonly (readonly [string, Uint8Array])[];
  const set = (list: List, suffix: string, value: Uint8Array): List =>
    list.map(([name, old]) => [name, name === suffix ? value : old] as const);
  const { parts, tcb, configuration } = SGX_PARTS;

  it('may state each component up to 255, and the PCE SVN up to 65,535', () => {
    for (let component = 1; component <= 16; component++) {
      const { componentSvns } = read({ tcb: set(tcb, `2.${component}`, integer(255)) });
      assert.equal(componentSvns[component - 1], 255);
      const above = set(tcb, `2.${component}`, integer(256));
      assert.throws(() => read({ tcb: above }), { ...MALFORMED, message: /above 255/ });
    }
    assert.equal(read({ tcb: set(tcb, '2.17', integer(65_535)) }).pceSvn, 65_535);
    for (const type of [0, 1, 2])
      assert.equal(read({ parts: set(parts, '5', enumerated(type)) }).sgxType, type);
  });

  it('states each of three flags independently of the others', () => {
    for (const [suffix, flags] of [
      ['7.1', [true, false]],
      ['7.2', [false, false]],
      ['7.3', [false, true]],
    ] as const) {
      const { dynamicPlatform, smtEnabled } = read({
        configuration: set(configuration, suffix, boolean(true)),
      });
      assert.deepEqual([dynamicPlatform, smtEnabled], flags, suffix);
    }
  });

  const refused: readonly (readonly [string, Partial<SgxParts>])[] = [
    ...parts.map(
      ([missing]) => [`no part ${missing}`, { parts: parts.filter(([name]) => name !== missing) }] as const,
    ),
    ...tcb.map(
      ([missing]) => [`no part ${missing}`, { tcb: tcb.filter(([name]) => name !== missing) }] as const,
    ),
    ['more than one value in a part', { parts: set(parts, '5', Buffer.concat([enumerated(2), integer(1)])) }],
    ['an unknown part', { parts: [...parts, ['8', integer(1)]] }],
    ['an unknown configuration', { configuration: [...configuration, ['7.4', boolean(true)]] }],
    ['a part twice', { parts: [...parts, parts[0] as List[number]] }],
    ['a PPID of 15 bytes', { parts: set(parts, '1', octetString(new Uint8Array(15))) }],
    ['a PCE-ID of 3 bytes', { parts: set(parts, '3', octetString(new Uint8Array(3))) }],
    ['an FMSPC of 5 bytes', { parts: set(parts, '4', octetString(new Uint8Array(5))) }],
    ['an SGX type that does not exist', { parts: set(parts, '5', enumerated(3)) }],
    ['an SGX type as INTEGER', { parts: set(parts, '5', integer(2)) }],
    ['a PIID of 17 bytes', { parts: set(parts, '6', octetString(new Uint8Array(17))) }],
    ['a PCESVN above 16 bits', { tcb: set(tcb, '2.17', integer(65536)) }],
    ['a CPUSVN of 15 bytes', { tcb: set(tcb, '2.18', octetString(new Uint8Array(15))) }],
    ['a flag that is a number', { configuration: set(configuration, '7.1', integer(0)) }],
  ];
  for (const [name, change] of refused) {
    it(`is refused with ${name}`, () => assert.throws(() => read(change), MALFORMED));
  }
});
