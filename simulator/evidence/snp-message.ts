/**
 * Writes the protobuf message that carries a SEV-SNP report and its certificates
 * (docs/protocol/attestation.md 6.1).
 */
import { BinaryWriter, WireType } from '@bufbuild/protobuf/wire';
import { SNP_REPORT_FIELDS, type SnpAttestation } from '../../lib/attestation/snp/report.ts';

/** The bytes of the message. As in proto3, zeros and empty byte strings are left out. */
export function encodeSnpAttestation({ report, certificates, product }: SnpAttestation): Uint8Array {
  const writer = new BinaryWriter();
  writeMessage(writer, 1, () => {
    for (const { name, proto } of [...SNP_REPORT_FIELDS].sort((a, b) => a.proto - b.proto)) {
      const value = report[name];
      if (value instanceof Uint8Array) writeBytes(writer, proto, value);
      else writeVarint(writer, proto, BigInt(value));
    }
  });
  writeMessage(writer, 2, () => {
    writeBytes(writer, 1, certificates.vcek);
    writeBytes(writer, 2, certificates.ask);
    writeBytes(writer, 3, certificates.ark);
    writeBytes(writer, 6, certificates.vlek);
    for (const [key, value] of certificates.extras) {
      writeMessage(writer, 7, () => {
        writeBytes(writer, 1, Buffer.from(key, 'utf8'));
        writeBytes(writer, 2, value);
      });
    }
  });
  if (product !== undefined) {
    const { name, machineStepping } = product;
    writeMessage(writer, 3, () => {
      writeVarint(writer, 1, BigInt(name));
      if (machineStepping === undefined) return;
      writeMessage(writer, 3, () => writeVarint(writer, 1, BigInt(machineStepping)));
    });
  }
  return writer.finish();
}

function writeMessage(writer: BinaryWriter, number: number, body: () => void): void {
  writer.tag(number, WireType.LengthDelimited).fork();
  body();
  writer.join();
}

function writeBytes(writer: BinaryWriter, number: number, value: Uint8Array | undefined): void {
  if (value !== undefined && value.length > 0) writer.tag(number, WireType.LengthDelimited).bytes(value);
}

function writeVarint(writer: BinaryWriter, number: number, value: bigint): void {
  if (value !== 0n) writer.tag(number, WireType.Varint).uint64(value);
}
