import { type JsonValue, parseStrictJson } from '../attestation/strict-json.ts';
import { type ErrorCode, PrivatemodeError } from '../errors.ts';
import type { HttpCall } from '../network/http-call.ts';

/** What the service answers to a secret exchange, decoded (attestation.md 1.2). */
export interface SecretResponse {
  /** 1120 bytes. */
  readonly encapsulatedKey: Uint8Array;
  /** ECDSA, ASN.1 DER. */
  readonly signature: Uint8Array;
  /** One certificate, DER. */
  readonly meshCert: Uint8Array;
}

/**
 * The two calls to the service that lead to a secret (attestation.md 1). Both throw api_key_rejected for a 401,
 * control_api_failed for any other status than 200, and what `HttpCall` throws.
 */
export interface ControlApi {
  /** The coordinator's own JSON, undecoded. Also throws evidence_malformed. */
  attest(apiKey: string, nonce: Uint8Array, signal?: AbortSignal): Promise<Uint8Array>;
  /** `publicKey` is the HPKE public key, 1216 bytes. Also throws secret_exchange_failed. */
  secret(apiKey: string, publicKey: Uint8Array, signal?: AbortSignal): Promise<SecretResponse>;
}

export interface ControlApiOptions {
  readonly call: HttpCall;
  readonly endpoint: { readonly host: string; readonly port: number };
  /** Value of Privatemode-Version: the protocol generation spoken (inference.md 3). */
  readonly protocolVersion: string;
  /** ms per call. Default 30 s: evidence comes from a machine that may have to ask its hardware first. */
  readonly timeout?: number;
  /** Bytes per answer. Default 16 MiB (attestation.md 1); real ones are below 100 KiB. */
  readonly maxBytes?: number;
}

const ENCAPSULATED_KEY_BYTES = 1120;
/** The answers are flat objects of a few strings. */
const ANSWER_SHAPE = { depth: 8, values: 256 };

export function createControlApi(options: ControlApiOptions): ControlApi {
  const { call, endpoint, protocolVersion, timeout = 30_000, maxBytes = 16 * 1024 * 1024 } = options;
  const host = endpoint.host.includes(':') ? `[${endpoint.host}]` : endpoint.host;

  async function post(name: 'attest' | 'secret', apiKey: string, body: object, signal?: AbortSignal) {
    if (!/^[\x21-\x7e]+$/.test(apiKey)) {
      throw new PrivatemodeError(
        'api_key_rejected',
        'the API key is empty or holds characters that no key has',
      );
    }
    const { status, body: answer } = await call({
      method: 'POST',
      url: `https://${host}:${endpoint.port}/privatemode/v1/${name}`,
      headers: {
        authorization: `Bearer ${apiKey}`,
        'privatemode-version': protocolVersion,
        'content-type': 'application/json',
      },
      body: JSON.stringify(body),
      maxBytes,
      timeout,
      signal,
    });
    if (status === 200) return answer;
    const said = excerpt(answer, apiKey);
    if (status === 401)
      throw new PrivatemodeError('api_key_rejected', `the service rejects the API key: ${said}`);
    throw new PrivatemodeError(
      'control_api_failed',
      `${name}: the service answered with status ${status}: ${said}`,
    );
  }

  return {
    async attest(apiKey, nonce, signal) {
      const answer = await post('attest', apiKey, { Nonce: toBase64(nonce) }, signal);
      return readMembers(answer, ['AttestationDoc'], 'attest', 'evidence_malformed').AttestationDoc;
    },
    async secret(apiKey, publicKey, signal) {
      const answer = await post('secret', apiKey, { PublicKey: toBase64(publicKey) }, signal);
      const names = ['EncapsulatedKey', 'Signature', 'MeshCert'] as const;
      const members = readMembers(answer, names, 'secret', 'secret_exchange_failed');
      if (members.EncapsulatedKey.length !== ENCAPSULATED_KEY_BYTES) {
        throw new PrivatemodeError('secret_exchange_failed', 'secret: EncapsulatedKey has not 1120 bytes');
      }
      return {
        encapsulatedKey: members.EncapsulatedKey,
        signature: members.Signature,
        meshCert: members.MeshCert,
      };
    },
  };
}

/**
 * The named base64 members of a JSON object (strict: UTF-8, no member twice). Unknown members are ignored, as the service may grow; the base64 is
 * canonical (RFC 4648 section 4, padded, no line breaks) and not empty. Everything else throws `code`.
 */
function readMembers<Name extends string>(
  answer: Uint8Array,
  names: readonly Name[],
  call: string,
  code: ErrorCode,
): Record<Name, Uint8Array> {
  const refuse = (words: string): Error =>
    new PrivatemodeError(code, `${call}: the answer is refused: ${words}`);
  let parsed: JsonValue;
  try {
    parsed = parseStrictJson(answer, ANSWER_SHAPE, refuse);
  } catch (thrown) {
    throw thrown instanceof PrivatemodeError ? thrown : refuse('not JSON');
  }
  if (!(parsed instanceof Map)) throw refuse('not an object');
  const found: Partial<Record<Name, Uint8Array>> = {};
  for (const name of names) {
    const text: unknown = parsed.get(name);
    const bytes = typeof text === 'string' ? new Uint8Array(Buffer.from(text, 'base64')) : undefined;
    if (bytes === undefined || bytes.length === 0 || toBase64(bytes) !== text) {
      throw refuse(`${name} is missing or not base64`);
    }
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
