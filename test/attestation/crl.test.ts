import assert from 'node:assert/strict';
import { generateKeyPairSync } from 'node:crypto';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { currentList } from '../../lib/attestation/collateral.ts';
import { commonName, parseCertificate, parseCrl, verifySignedBy } from '../../lib/attestation/x509.ts';
import { contextTag, decodeOneCertificate } from '../../lib/crypto/der.ts';
import { PrivatemodeError } from '../../lib/errors.ts';
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
import { trustText, vectorBytes, vectorText } from '../support/evidence/attestation-vectors.ts';

const malformed = (error: unknown): boolean =>
  error instanceof PrivatemodeError && error.code === 'evidence_malformed';
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
  it("are read as Intel issues them, and Intel's root CRL verifies under its root", async () => {
    const root = parseCertificate(decodeOneCertificate(trustText('intel_sgx_root_ca.pem')));
    const rootCrl = parseCrl(vectorBytes('tdx/google_sgx_root_ca_crl.der'));
    assert.ok(await verifySignedBy(rootCrl, root));
    assert.equal(rootCrl.revoked.size, 0);
    const pckCrl = parseCrl(vectorBytes('tdx/google_pck_crl_platform.der'));
    assert.ok(!(await verifySignedBy(pckCrl, root)));
    assert.equal(commonName(pckCrl.issuer), 'Intel SGX PCK Platform CA');
    assert.equal(pckCrl.revoked.size, 44);
    assert.equal(pckCrl.crlNumber, '01');
    assert.equal(pckCrl.nextUpdate?.toISOString(), '2023-07-08T07:27:52.000Z');
  });

  it('verify under the ARK of their own synthetic set only', async () => {
    const ark = (set: string) => parseCertificate(decodeOneCertificate(vectorText(`${set}/test_ark.pem`)));
    const crl = parseCrl(vectorBytes('synthetic/ark_crl.der'));
    assert.ok(await verifySignedBy(crl, ark('synthetic')));
    assert.ok(!(await verifySignedBy(crl, ark('synthetic_v158'))));
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
    const NO_VERSION = -1;
    const extension = (critical: boolean): Uint8Array =>
      sequence(oid('1.2.3'), ...(critical ? [boolean(true)] : []), octetString(new Uint8Array(1)));
    const NUMBER = sequence(oid('2.5.29.20'), octetString(integer(7)));
    const [DELTA, SCOPE] = ['2.5.29.27', '2.5.29.28'].map((id) =>
      sequence(oid(id), octetString(integer(1))),
    ) as [Uint8Array, Uint8Array];
    const crl = (ofList: boolean, ofEntry: boolean, version = 1, more = [NUMBER]): Uint8Array =>
      sequence(
        sequence(
          ...(version === NO_VERSION ? [] : [integer(version)]),
          algorithm,
          sequence(),
          time(new Date()),
          sequence(sequence(integer(5), time(new Date()), sequence(extension(ofEntry)))),
          element(contextTag(0, true), sequence(extension(ofList), ...more)),
        ),
        algorithm,
        bitString(new Uint8Array(8)),
      );
    assert.deepEqual([...parseCrl(crl(false, false)).revoked], ['05']);
    assert.throws(() => parseCrl(crl(false, false, NO_VERSION)), malformed);
    assert.throws(() => parseCrl(crl(true, false)), malformed);
    assert.throws(() => parseCrl(crl(false, true)), malformed);
    assert.throws(() => parseCrl(crl(false, false, 0)), malformed);
    assert.throws(() => parseCrl(crl(false, false, 2)), malformed);
    for (const more of [[], [NUMBER, DELTA], [NUMBER, SCOPE]]) {
      assert.throws(() => parseCrl(crl(false, false, 1, more)), malformed);
    }
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
    await fc.assert(
      fc.asyncProperty(
        fc.nat(der.length - 1),
        fc.integer({ min: 1, max: 255 }),
        fc.boolean(),
        async (at, mask, cut) => {
          const changed = cut ? der.slice(0, at) : Uint8Array.from(der);
          if (!cut) changed[at] = (changed[at] as number) ^ mask;
          try {
            assert.ok(!(await verifySignedBy(parseCrl(changed), ark)), `byte ${at} is not covered`);
          } catch (error) {
            assert.ok(malformed(error), String(error));
          }
        },
      ),
      { seed: 20261201, numRuns: 600 },
    );
    assert.ok(await verifySignedBy(parseCrl(der), ark));
  });
});
