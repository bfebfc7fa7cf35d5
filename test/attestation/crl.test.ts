import assert from 'node:assert/strict';
import { generateKeyPairSync } from 'node:crypto';
import { describe, it } from 'node:test';
import { currentList } from '../../lib/attestation/collateral.ts';
import { parseCrl } from '../../lib/attestation/x509.ts';
import { contextTag } from '../../lib/crypto/der.ts';
import { type CrlRequest, issueCrl } from '../../simulator/pki/certificate.ts';
import {
  bitString,
  boolean,
  element,
  integer,
  octetString,
  oid,
  sequence,
  time,
} from '../../simulator/pki/der.ts';
import { malformed } from '../support/evidence/readers.ts';

const KEY = generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey;
const issue = (changes: Partial<CrlRequest> = {}): Uint8Array =>
  issueCrl({
    issuer: { name: [['CN', 'issuer']], key: KEY },
    number: 300,
    thisUpdate: new Date('2026-11-01T00:00:00Z'),
    nextUpdate: new Date('2026-12-01T00:00:00Z'),
    revoked: [],
    ...changes,
  });

describe('CRLs', () => {
  it('list serial numbers in the same form as certificates', () => {
    const date = new Date('2026-10-01T00:00:00Z');
    const revoked = [0n, 0x80n, 0x020002n].map((serial) => ({ serial, date }));
    assert.deepEqual([...parseCrl(issue({ revoked })).revoked], ['00', '80', '020002']);
    assert.equal(parseCrl(issue()).crlNumber, '012c');
  });

  it('are not in force without nextUpdate', () => {
    const [crl, now] = [parseCrl(issue()), new Date('2026-11-15T00:00:00Z')];
    assert.equal(currentList(crl, now).outcome, 'pass');
    assert.equal(currentList({ ...crl, nextUpdate: undefined }, now).outcome, 'fail');
  });

  it('are refused with a critical extension, another version or no number, or as a delta or partial list', () => {
    const algorithm = sequence(oid('1.2.840.10045.4.3.2'));
    const extension = (id: string, ...critical: readonly Uint8Array[]): Uint8Array =>
      sequence(oid(id), ...critical, octetString(integer(7)));
    const [NUMBER, DELTA, SCOPE, OTHER] = ['2.5.29.20', '2.5.29.27', '2.5.29.28', '1.2.3'].map((id) =>
      extension(id),
    ) as [Uint8Array, Uint8Array, Uint8Array, Uint8Array];
    const CRITICAL = extension('1.2.3', boolean(true));
    const crl = (ofList: readonly Uint8Array[], ofEntry: Uint8Array, ...version: readonly Uint8Array[]) =>
      sequence(
        sequence(
          ...version,
          algorithm,
          sequence(),
          time(new Date()),
          sequence(sequence(integer(5), time(new Date()), sequence(ofEntry))),
          element(contextTag(0, true), sequence(...ofList)),
        ),
        algorithm,
        bitString(new Uint8Array(8)),
      );
    assert.deepEqual([...parseCrl(crl([OTHER, NUMBER], OTHER, integer(1))).revoked], ['05']);
    for (const version of [[], [integer(0)], [integer(2)]])
      assert.throws(() => parseCrl(crl([OTHER, NUMBER], OTHER, ...version)), malformed);
    assert.throws(() => parseCrl(crl([OTHER, NUMBER], CRITICAL, integer(1))), malformed);
    for (const ofList of [[CRITICAL, NUMBER], [OTHER], [NUMBER, DELTA], [NUMBER, SCOPE]])
      assert.throws(() => parseCrl(crl(ofList, OTHER, integer(1))), malformed);
  });
});
