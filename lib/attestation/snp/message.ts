/** The protobuf message Attestation, which carries a SEV-SNP report and its certificates (docs/protocol/attestation.md 6.1). */
import {
  bytesField,
  messageField,
  readWireFields,
  repeatedBytesField,
  uintField,
  type WireFields,
} from '../protobuf.ts';
import { malformed } from '../x509/der.ts';
import { SNP_REPORT_FIELDS, type SnpReport } from './report.ts';

export interface SnpAttestation {
  readonly report: SnpReport;
  readonly certificates: SnpCertificates;
  readonly product: SnpProduct | undefined;
}

/** Certificates that came with the report; undefined where absent. ASK and ARK are never trusted (docs/protocol/attestation.md 7). */
export type SnpCertificates = Readonly<Record<'vcek' | 'vlek' | 'ask' | 'ark', Uint8Array | undefined>> & {
  /** By key, e.g. SNP_EXTRA_CRL. */
  readonly extras: ReadonlyMap<string, Uint8Array>;
};

export interface SnpProduct {
  /** 0 unknown, 1 Milan, 2 Genoa, 3 Turin. */
  readonly name: number;
  readonly machineStepping: number | undefined;
}

/** The key of the DER CRL of the ARK in `extras`. */
export const SNP_EXTRA_CRL = '00569ee4-e480-4fba-bbf4-45b629901180';

const ATTESTATION = { report: 1, certificates: 2, product: 3 } as const;
const CERTIFICATES = { vcek: 1, ask: 2, ark: 3, vlek: 6, extras: 7 } as const;
const MAP_ENTRY = { key: 1, value: 2 } as const;
const PRODUCT = { name: 1, machineStepping: 3 } as const;
const WRAPPED_VALUE = 1;

/**
 * Reads the message. Throws evidence_malformed when it is not one: no report, a byte field of another length than the
 * report's, a number too large for its field, a singular field twice.
 */
export function decodeSnpAttestation(message: Uint8Array): SnpAttestation {
  const fields = readWireFields(message);
  const report = messageField(fields, ATTESTATION.report);
  if (report === undefined) throw malformed('the message holds no SEV-SNP report');
  const certificates = messageField(fields, ATTESTATION.certificates) ?? new Map();
  const product = messageField(fields, ATTESTATION.product);
  return {
    report: decodeReport(report),
    certificates: decodeCertificates(certificates),
    product: product === undefined ? undefined : decodeProduct(product),
  };
}

function decodeReport(fields: WireFields): SnpReport {
  const entries = SNP_REPORT_FIELDS.map(({ name, proto, kind, length }) => {
    if (kind === 'bytes') return [name, bytesField(fields, proto, length)];
    if (kind === 'u64') return [name, uintField(fields, proto, 64)];
    return [name, Number(uintField(fields, proto, kind === 'u8' ? 8 : 32))];
  });
  return Object.fromEntries(entries) as unknown as SnpReport;
}

function decodeCertificates(fields: WireFields): SnpCertificates {
  const optional = (number: number): Uint8Array | undefined => {
    const bytes = bytesField(fields, number);
    return bytes.length === 0 ? undefined : bytes;
  };
  const extras = new Map<string, Uint8Array>();
  for (const entry of repeatedBytesField(fields, CERTIFICATES.extras)) {
    const pair = readWireFields(entry);
    const key = Buffer.from(bytesField(pair, MAP_ENTRY.key)).toString('utf8');
    if (extras.has(key)) throw malformed('an extra of the certificate chain appears twice');
    extras.set(key, bytesField(pair, MAP_ENTRY.value));
  }
  return {
    vcek: optional(CERTIFICATES.vcek),
    vlek: optional(CERTIFICATES.vlek),
    ask: optional(CERTIFICATES.ask),
    ark: optional(CERTIFICATES.ark),
    extras,
  };
}

function decodeProduct(fields: WireFields): SnpProduct {
  const stepping = messageField(fields, PRODUCT.machineStepping);
  return {
    name: Number(uintField(fields, PRODUCT.name, 32)),
    machineStepping: stepping === undefined ? undefined : Number(uintField(stepping, WRAPPED_VALUE, 32)),
  };
}
