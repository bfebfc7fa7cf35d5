import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { bytesField, readWireFields } from '../../../lib/attestation/protobuf.ts';
import {
  familyModelStepping,
  productOf,
  tcbAtMost,
  tcbParts,
  tcbValue,
} from '../../../lib/attestation/snp/packed-fields.ts';
import { decodeSnpAttestation, serializeReport } from '../../../lib/attestation/snp/report.ts';
import * as wire from '../../../simulator/evidence/messages.ts';
import { encodeSnpAttestation } from '../../../simulator/evidence/messages.ts';
import { SYNTHETIC_SETS, vectorBytes, vectorJson } from '../../support/evidence/attestation-vectors.ts';
import { malformed } from '../../support/evidence/readers.ts';
import { parseReport } from '../../support/evidence/snp-report.ts';
import { toHex } from '../../support/evidence/wycheproof.ts';

/** A row of the index: the file, the product line, and the fields that are shown for it. */
type Row = Readonly<Record<'report' | 'product_line', string>> & Readonly<Record<string, unknown>>;
const REAL = vectorJson<Row[]>('snp/index.json');
const GOOD = parseReport(vectorBytes('synthetic_v158/report.bin'));
const le64 = (value: bigint): string =>
  toHex(Buffer.from(value.toString(16).padStart(16, '0'), 'hex').reverse());

describe('the layout of an SEV-SNP report', () => {
  it('gives for every real report the fields that its index states', () => {
    assert.equal(REAL.length, 8);
    for (const row of REAL) {
      const report = parseReport(vectorBytes(`snp/${row.report}`));
      const { family, model, stepping } = familyModelStepping(report.cpuid1EaxFms);
      const read: Readonly<Record<string, unknown>> = {
        version: report.version,
        measurement: toHex(report.measurement),
        host_data: toHex(report.hostData),
        report_data: toHex(report.reportData),
        guest_policy: `0x${report.policy.toString(16)}`,
        platform_info: `0x${report.platformInfo.toString(16)}`,
        vmpl: report.vmpl,
        reported_tcb_bytes: le64(report.reportedTcb),
        current_tcb_bytes: le64(report.currentTcb),
        committed_tcb_bytes: le64(report.committedTcb),
        launch_tcb_bytes: le64(report.launchTcb),
        chip_id: toHex(report.chipId),
        id_key_digest: toHex(report.idKeyDigest),
        family_model_stepping: report.version < 3 ? null : toHex(Uint8Array.of(family, model, stepping)),
      };
      for (const [name, value] of Object.entries(read))
        assert.equal(value, row[name], `${row.report} ${name}`);
      assert.equal(productOf(report.cpuid1EaxFms), report.version < 3 ? undefined : row.product_line);
    }
  });

  it('turns every report back into the same bytes, directly and by way of the protobuf message', () => {
    const files = [
      ...REAL.map(({ report }) => `snp/${report}`),
      ...SYNTHETIC_SETS.map((set) => `${set}/report.bin`),
    ];
    for (const file of files) {
      const bytes = vectorBytes(file);
      const report = parseReport(bytes);
      assert.deepEqual(serializeReport(report), bytes, file);
      const decoded = decodeSnpAttestation(encodeSnpAttestation({ report, machineStepping: 1 }));
      assert.deepEqual(serializeReport(decoded.report), bytes, file);
      assert.equal(decoded.machineStepping, 1);
    }
  });

  it('leaves family, model and stepping out of version 2, and fits every family that a byte can hold', () => {
    const bytesOf = (changes: object) => serializeReport({ ...GOOD, ...changes });
    assert.equal(toHex(bytesOf({}).subarray(0x188, 0x18b)), '191101');
    assert.equal(toHex(bytesOf({ version: 2 }).subarray(0x188, 0x18b)), '000000');
    const largest = bytesOf({ cpuid1EaxFms: 0x0f000f00 });
    assert.equal(largest[0x188], 255);
    assert.equal(parseReport(largest).cpuid1EaxFms, 0x0f000f00);
  });

  it('refuses CPUID bits that the signature does not cover, since anybody could change them', () => {
    assert.equal(GOOD.cpuid1EaxFms, 0x00a10f11);
    const others = [
      ...[12, 13, 14, 15, 28, 29, 30, 31].map((bit) => (0x00a10f11 | (1 << bit)) >>> 0),
      ...[0x01910011, 0x00b10e11, 0x0ff00f00],
    ];
    for (const cpuid1EaxFms of others) {
      assert.throws(() => serializeReport({ ...GOOD, cpuid1EaxFms }), malformed, cpuid1EaxFms.toString(16));
    }
    serializeReport({ ...GOOD, cpuid1EaxFms: 0x00010e11 }); // an early family, which is not extended
  });

  it('refuses fields that do not fit', () => {
    for (const change of [
      { currentBuild: 256 },
      { version: 2 ** 32 },
      { policy: 2n ** 64n },
      { measurement: new Uint8Array(47) },
      { signature: new Uint8Array(513) },
    ]) {
      const message = encodeSnpAttestation({ report: { ...GOOD, ...change } });
      assert.throws(() => decodeSnpAttestation(message), malformed, Object.keys(change)[0]);
    }
  });
});

describe('TCB versions', () => {
  it('are eight parts of one number', () => {
    const parts = tcbParts(0x581c_0000_0000_000cn);
    assert.deepEqual([parts.bootloader, parts.tee, parts.snp, parts.microcode], [12, 0, 28, 88]);
    fc.assert(
      fc.property(fc.bigInt({ min: 0n, max: 2n ** 64n - 1n }), (tcb) => tcbValue(tcbParts(tcb)) === tcb),
      { seed: 20261201 },
    );
  });

  it('are compared part by part, also above 127', () => {
    const low = tcbParts(0x80_80_80_80_80_80_80_80n);
    for (let part = 0n; part < 8n; part++) {
      const changed = tcbParts(tcbValue(low) - (1n << (8n * part)) + (part === 7n ? 0n : 1n << 63n));
      assert.equal(tcbAtMost(low, changed), false, `part ${part}`);
      assert.equal(tcbAtMost(low, low), true);
    }
    assert.equal(tcbAtMost({ snp: 1 }, tcbParts(0n)), false);
    assert.equal(tcbAtMost({}, tcbParts(0n)), true);
  });
});

describe('the certificate chain in the message of SEV-SNP', () => {
  const report = bytesField(readWireFields(vectorBytes('synthetic/attestation.pb')), 1);
  const decode = (...chain: readonly Uint8Array[]) =>
    decodeSnpAttestation(Buffer.concat([wire.messageField(1, report), wire.messageField(2, ...chain)]));
  const certificate = Uint8Array.of(1, 2, 3);

  it('is refused if two extras have the same key', () => {
    const extra = (key: string) =>
      wire.messageField(7, wire.bytesField(1, Buffer.from(key)), wire.bytesField(2, certificate));
    decode(extra('first-key'), extra('other-key'));
    assert.throws(
      () => decode(extra('first-key'), extra('first-key')),
      (error) => malformed(error) && /appears twice/.test(String(error)),
    );
  });

  it('has the VCEK in field 1, and nothing else that is used', () => {
    for (const field of [1, 2, 3, 6]) {
      const { vcek, arkCrl } = decode(wire.bytesField(field, certificate));
      assert.deepEqual(
        [Uint8Array.from(vcek), arkCrl],
        [field === 1 ? certificate : new Uint8Array(), undefined],
      );
    }
  });

  it('is refused with two certificates of one kind, also of a kind that is not used', () => {
    for (const field of [1, 2, 3, 6]) {
      const one = wire.bytesField(field, certificate);
      assert.throws(() => decode(one, one), malformed, `${field}`);
    }
  });
});
