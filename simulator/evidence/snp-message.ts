/**
 * Writes the protobuf message that carries a SEV-SNP report and its certificates
 * (docs/protocol/attestation.md 6.1).
 */
import { SNP_REPORT_FIELDS, type SnpAttestation } from '../../lib/attestation/snp/report.ts';
import { bytesField, messageField, uintField } from './wire-fields.ts';

export function encodeSnpAttestation({ report, certificates, product }: SnpAttestation): Uint8Array {
  const fields = [...SNP_REPORT_FIELDS].sort((a, b) => a.proto - b.proto);
  const reported = fields.map(({ name, proto }) => {
    const value = report[name];
    return value instanceof Uint8Array ? bytesField(proto, value) : uintField(proto, value);
  });
  const extras = Array.from(certificates.extras, ([key, value]) =>
    messageField(7, bytesField(1, Buffer.from(key, 'utf8')), bytesField(2, value)),
  );
  const { vcek, ask, ark, vlek } = certificates;
  const chain = [bytesField(1, vcek), bytesField(2, ask), bytesField(3, ark), bytesField(6, vlek), ...extras];
  const parts = [messageField(1, ...reported), messageField(2, ...chain)];
  if (product !== undefined) parts.push(encodeProduct(product));
  return new Uint8Array(Buffer.concat(parts));
}

function encodeProduct({ name, machineStepping }: NonNullable<SnpAttestation['product']>): Uint8Array {
  const stepping = machineStepping === undefined ? [] : [messageField(3, uintField(1, machineStepping))];
  return messageField(3, uintField(1, name), ...stepping);
}
