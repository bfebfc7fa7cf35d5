import assert from 'node:assert/strict';
import { generateKeyPairSync } from 'node:crypto';
import { describe, it } from 'node:test';
import { currentList } from '../../lib/attestation/collateral.ts';
import { commonName, parseCertificate, parseCrl, verifySignedBy } from '../../lib/attestation/x509.ts';
import { contextTag, decodeOneCertificate } from '../../lib/crypto/der.ts';
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
import { vectorBytes, vectorText } from '../support/evidence/attestation-vectors.ts';
import { malformed, readHarmed } from '../support/evidence/readers.ts';

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
  it('are read as Intel issues them', () => {
    assert.equal(parseCrl(vectorBytes('tdx/google_sgx_root_ca_crl.der')).revoked.size, 0);
    const pckCrl = parseCrl(vectorBytes('tdx/google_pck_crl_platform.der'));
    assert.equal(commonName(pckCrl.issuer), 'Intel SGX PCK Platform CA');
    assert.equal(pckCrl.revoked.size, 44);
    assert.equal(pckCrl.crlNumber, '01');
    assert.equal(pckCrl.nextUpdate?.toISOString(), '2023-07-08T07:27:52.000Z');
  });

  it('list serial numbers in the same form as certificates', () => {
    const date = new Date('2026-10-01T00:00:00Z');
    const revoked = [0n, 0x80n, 0x020002n].map((serial) => ({ serial, date }));
    assert.deepEqual([...parseCrl(issue({ revoked })).revoked], ['00', '80', '020002']);
    assert.equal(parseCrl(issue()).crlNumber, '012c');
  });

  it('are in force from a minute before thisUpdate to nextUpdate, and never without nextUpdate', () => {
    const crl = parseCrl(issue());
    for (const [now, outcome] of [
      ['2026-10-31T23:58:59Z', 'fail'],
      ['2026-10-31T23:59:00Z', 'pass'],
      ['2026-12-01T00:00:00Z', 'pass'],
      ['2026-12-01T00:00:01Z', 'fail'],
    ] as const) {
      assert.equal(currentList(crl, new Date(now)).outcome, outcome, now);
      assert.equal(currentList({ ...crl, nextUpdate: undefined }, new Date(now)).outcome, 'fail', now);
    }
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

  it('are refused if the signature algorithms inside and outside the signed part differ', () => {
    const der = Buffer.from(vectorBytes('tdx/google_sgx_root_ca_crl.der'));
    const inside = der.indexOf(Buffer.from('2a8648ce3d040302', 'hex')); // ecdsa-with-SHA256
    der[inside + 7] = 3; // ecdsa-with-SHA384
    assert.throws(() => parseCrl(der), /two signature algorithms/);
  });

  it('never verify after a change, and throw only evidence_malformed', async () => {
    const der = vectorBytes('synthetic_v158/ark_crl.der');
    const ark = parseCertificate(decodeOneCertificate(vectorText('synthetic_v158/test_ark.pem')));
    await readHarmed(der, 600, async (harmed) =>
      assert.ok(!(await verifySignedBy(parseCrl(harmed), ark)), 'it is not covered'),
    );
    assert.ok(await verifySignedBy(parseCrl(der), ark));
  });
});
