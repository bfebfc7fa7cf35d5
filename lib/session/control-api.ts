import { parseStrictJson } from '../attestation/strict-json.ts';
import { type ErrorCode, PrivatemodeError } from '../errors.ts';
import type { HttpCall } from '../network/http-call.ts';

/** The decoded response to a secret exchange (docs/protocol/attestation.md 1.2). */
export interface SecretResponse {
  /** 1120 bytes. */
  readonly encapsulatedKey: Uint8Array;
  /** ECDSA, ASN.1 DER. */
  readonly signature: Uint8Array;
  /** One certificate, DER. */
  readonly meshCert: Uint8Array;
}

/**
 * The two requests that lead to a secret (docs/protocol/attestation.md 1). Both throw api_key_rejected for a 401,
 * control_api_failed for any other status than 200, and what `HttpCall` throws.
 */
export interface ControlApi {
  /** The coordinator's own JSON, undecoded. Also throws evidence_malformed. */
  attest(apiKey: string, nonce: Uint8Array, signal?: AbortSignal): Promise<Uint8Array>;
  /** `publicKey` is the HPKE public key, 1216 bytes. Also throws secret_exchange_failed. */
  secret(apiKey: string, publicKey: Uint8Array, signal?: AbortSignal): Promise<SecretResponse>;
}

export interface ControlApiDeps {
  readonly call: HttpCall;
  readonly endpoint: { readonly host: string; readonly port: number };
  /** Value of Privatemode-Version: the protocol generation spoken (docs/protocol/inference.md 3). */
  readonly protocolVersion: string;
}

/** ms per request: the service may have to ask its hardware for evidence first. */
const TIMEOUT = 30_000;
/** Real responses are below 100 KiB. */
const MAX_BYTES = 16 * 1024 * 1024;
const ENCAPSULATED_KEY_BYTES = 1120;
/** The responses are flat objects of a few strings. */
const RESPONSE_LIMITS = { depth: 8, values: 256 };

export function createControlApi({ call, endpoint, protocolVersion }: ControlApiDeps): ControlApi {
  const host = endpoint.host.includes(':') ? `[${endpoint.host}]` : endpoint.host;

  async function post(name: 'attest' | 'secret', apiKey: string, body: object, signal?: AbortSignal) {
    if (!/^[\x21-\x7e]+$/.test(apiKey)) {
      throw new PrivatemodeError(
        'api_key_rejected',
        'the API key is empty or holds characters that no key has',
      );
    }
    const response = await call({
      method: 'POST',
      url: `https://${host}:${endpoint.port}/privatemode/v1/${name}`,
      headers: {
        authorization: `Bearer ${apiKey}`,
        'privatemode-version': protocolVersion,
        'content-type': 'application/json',
      },
      body: JSON.stringify(body),
      maxBytes: MAX_BYTES,
      timeout: TIMEOUT,
      signal,
    });
    const { status } = response;
    if (status === 200) return response.body;
    const text = excerpt(response.body, apiKey);
    throw status === 401
      ? new PrivatemodeError('api_key_rejected', `the service rejects the API key: ${text}`)
      : new PrivatemodeError(
          'control_api_failed',
          `${name}: the service answered with status ${status}: ${text}`,
        );
  }

  return {
    async attest(apiKey, nonce, signal) {
      const response = await post('attest', apiKey, { Nonce: toBase64(nonce) }, signal);
      return readMembers(response, ['AttestationDoc'], 'attest', 'evidence_malformed').AttestationDoc;
    },
    async secret(apiKey, publicKey, signal) {
      const response = await post('secret', apiKey, { PublicKey: toBase64(publicKey) }, signal);
      const names = ['EncapsulatedKey', 'Signature', 'MeshCert'] as const;
      const members = readMembers(response, names, 'secret', 'secret_exchange_failed');
      const encapsulatedKey = members.EncapsulatedKey;
      if (encapsulatedKey.length !== ENCAPSULATED_KEY_BYTES) {
        throw new PrivatemodeError('secret_exchange_failed', 'secret: EncapsulatedKey has not 1120 bytes');
      }
      return { encapsulatedKey, signature: members.Signature, meshCert: members.MeshCert };
    },
  };
}

/**
 * The named members of a strict JSON object, decoded: canonical base64 (RFC 4648 section 4, padded) and not empty.
 * Unknown members are ignored, because the service may add some. Everything else throws `code`.
 */
function readMembers<Name extends string>(
  body: Uint8Array,
  names: readonly Name[],
  request: string,
  code: ErrorCode,
): Record<Name, Uint8Array> {
  const refuse = (why: string): Error =>
    new PrivatemodeError(code, `${request}: the answer is refused: ${why}`);
  const parsed = parseStrictJson(body, RESPONSE_LIMITS, refuse);
  if (!(parsed instanceof Map)) throw refuse('not an object');
  const found: Partial<Record<Name, Uint8Array>> = {};
  for (const name of names) {
    const text: unknown = parsed.get(name);
    const bytes = new Uint8Array(Buffer.from(typeof text === 'string' ? text : '', 'base64'));
    if (bytes.length === 0 || toBase64(bytes) !== text) throw refuse(`${name} is missing or not base64`);
    found[name] = bytes;
  }
  return found as Record<Name, Uint8Array>;
}

const toBase64 = (bytes: Uint8Array): string => Buffer.from(bytes).toString('base64');

/** The beginning of an error body for a person: one line of printable ASCII, without the key should it be echoed. */
function excerpt(body: Uint8Array, apiKey: string): string {
  const text = Buffer.from(body.subarray(0, 4096)).toString('latin1').replaceAll(apiKey, '(key)');
  const line = text.replace(/[^\x20-\x7e]+/g, ' ').trim();
  if (line === '') return '(empty body)';
  return line.length > 200 ? `${line.slice(0, 200)}…` : line;
}
