/** Intel's X.509 extension of a PCK certificate (docs/protocol/attestation.md 10). */
import { type Der, DerCursor, malformed, parseDer, readSequence, TAG } from '../../crypto/der.ts';
import { readBoolean, readOctetString, readOid, readSmallInteger } from '../../crypto/der-values.ts';

export const SGX_EXTENSION_OID = '1.2.840.113741.1.13.1';

export type SgxExtension = Readonly<ReturnType<typeof readSgxExtension>>;

/**
 * Reads the extension as the platform CA writes it: every part once, with its length, and nothing else; only
 * the configuration flags may be absent. Throws evidence_malformed.
 */
export function readSgxExtension(value: Uint8Array | undefined) {
  if (value === undefined) throw malformed(`the PCK certificate has no ${SGX_EXTENSION_OID}`);
  const parts = new Parts(parseDer(value), SGX_EXTENSION_OID);
  octets(parts.take(1), 16, 'PPID');
  const tcb = new Parts(parts.take(2), `${SGX_EXTENSION_OID}.2`);
  const read = {
    pceId: octets(parts.take(3), 2, 'PCE-ID'),
    /** The platform model for which Intel issues TCB info. */
    fmspc: octets(parts.take(4), 6, 'FMSPC'),
    /** 0 standard, 1 scalable, 2 scalable with integrity. */
    sgxType: readSmallInteger(parts.take(5), 2, TAG.enumerated),
    /** The platform instance. */
    piid: octets(parts.take(6), 16, 'PIID'),
    componentSvns: Array.from({ length: 16 }, (_, i) => readSmallInteger(tcb.take(i + 1), 0xff)),
    pceSvn: readSmallInteger(tcb.take(17), 0xffff),
  };
  const configuration = new Parts(parts.take(7), `${SGX_EXTENSION_OID}.7`);
  parts.end();
  octets(tcb.take(18), 16, 'CPUSVN');
  tcb.end();
  const [dynamicPlatform, , smtEnabled] = [1, 2, 3].map((number) => {
    const flag = configuration.takeIf(number);
    return flag && readBoolean(flag);
  });
  configuration.end();
  return { ...read, dynamicPlatform, smtEnabled };
}

function octets(element: Der, length: number, name: string): Uint8Array {
  const bytes = readOctetString(element);
  if (bytes.length !== length)
    throw malformed(`the ${name} of the PCK certificate has ${bytes.length} bytes`);
  return bytes;
}

/** A SEQUENCE of (OID, value) pairs, the OIDs one arc below `prefix`; each pair can be taken once. */
class Parts {
  readonly #prefix: string;
  readonly #values = new Map<string, Der>();

  constructor(element: Der, prefix: string) {
    this.#prefix = prefix;
    for (const pair of new DerCursor(element).rest(TAG.sequence)) {
      const { oid, value } = readSequence(pair, (cursor) => ({
        oid: readOid(cursor.take(TAG.oid)),
        value: cursor.take(),
      }));
      if (this.#values.has(oid)) throw malformed(`the PCK certificate states ${oid} twice`);
      this.#values.set(oid, value);
    }
  }

  takeIf(number: number): Der | undefined {
    const oid = `${this.#prefix}.${number}`;
    const value = this.#values.get(oid);
    this.#values.delete(oid);
    return value;
  }

  take(number: number): Der {
    const value = this.takeIf(number);
    if (value === undefined) throw malformed(`the PCK certificate does not state ${this.#prefix}.${number}`);
    return value;
  }

  end(): void {
    const [unknown] = this.#values.keys();
    if (unknown !== undefined) throw malformed(`the PCK certificate states ${unknown}, which is not known`);
  }
}
