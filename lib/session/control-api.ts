/**
 * The two requests to the service that lead to a secret, attest and secret: sends them, and reads their
 * responses.
 */
import type { SecretResponseInput } from '../attestation/mesh.ts';
import type { Clock } from '../clock.ts';
import { type ErrorCode, PrivatemodeError } from '../errors.ts';
import { urlHost } from '../network/addresses.ts';
import type { ControlCall } from '../network/control-call.ts';
import { clientTooOld } from '../network/failures.ts';
import { parseStrictJson } from '../strict-json.ts';

/** The response to a secret exchange, decoded (docs/protocol/attestation.md 1.2). */
export type SecretResponse = Pick<SecretResponseInput, 'encapsulatedKey' | 'signature' | 'meshCert'>;

export type ControlApi = ReturnType<typeof createControlApi>;

/** Real responses are below 100 KiB. */
const MAX_BYTES = 16 * 1024 * 1024;
const ENCAPSULATED_KEY_BYTES = 1120;
/** The responses are flat objects of a few strings. */
const RESPONSE_LIMITS = { depth: 8, values: 256 };

interface ControlApiDeps {
  readonly call: ControlCall;
  readonly endpoint: { readonly host: string; readonly port: number };
  /**
   * Value of the header Privatemode-Version: the protocol generation that this program speaks
   * (docs/protocol/inference.md 3).
   */
  readonly protocolVersion: string;
  readonly clock: Clock;
}

/**
 * A hint for error messages about the key "placeholder", which clients send to a proxy that should have a key
 * of its own.
 */
export const aboutPlaceholder = (apiKey: string): string =>
  apiKey === 'placeholder' ? ' (it is "placeholder", and the proxy has none of its own: --api-key)' : '';

/**
 * The two requests that lead to a secret (docs/protocol/attestation.md 1). Both throw client_too_old for an
 * error response that asks for a newer client, api_key_rejected for a 401 and for a key that is empty or
 * holds characters that no key has, control_api_failed for any other status than 200, and what `ControlCall`
 * throws.
 */
export function createControlApi({ call, endpoint, protocolVersion, clock }: ControlApiDeps) {
  const base = `https://${urlHost(endpoint.host)}:${endpoint.port}/privatemode/v1`;

  async function post(name: string, apiKey: string, body: object, signal?: AbortSignal): Promise<Uint8Array> {
    if (!/^[\x21-\x7e]+$/.test(apiKey)) {
      const message = 'the API key is empty or holds characters that no key has';
      throw new PrivatemodeError('api_key_rejected', message);
    }
    const {
      status,
      body: answer,
      pause,
    } = await call({
      method: 'POST',
      url: `${base}/${name}`,
      headers: {
        authorization: `Bearer ${apiKey}`,
        'privatemode-version': protocolVersion,
        'content-type': 'application/json',
      },
      body: JSON.stringify(body),
      maxBytes: MAX_BYTES,
      timeout: clock.times.controlTimeout,
      signal,
    });
    if (status === 200) return answer;
    const tooOld = status >= 400 ? clientTooOld(answer, protocolVersion) : undefined;
    if (tooOld !== undefined) throw tooOld;
    const text = excerpt(answer, apiKey);
    throw status === 401
      ? new PrivatemodeError(
          'api_key_rejected',
          `the service rejects the API key${aboutPlaceholder(apiKey)}: ${text}`,
        )
      : new PrivatemodeError(
          'control_api_failed',
          `${name}: the service answered with status ${status}: ${text}`,
          { detail: { pause } },
        );
  }

  return {
    /** Resolves with the coordinator's own JSON, undecoded. Also throws evidence_malformed. */
    async attest(apiKey: string, nonce: Uint8Array, signal?: AbortSignal): Promise<Uint8Array> {
      const answer = await post('attest', apiKey, { Nonce: toBase64(nonce) }, signal);
      return memberReader(answer, 'attest', 'evidence_malformed')('AttestationDoc');
    },
    /** `publicKey` is the HPKE public key, 1216 bytes. Also throws secret_exchange_failed. */
    async secret(apiKey: string, publicKey: Uint8Array, signal?: AbortSignal): Promise<SecretResponse> {
      const answer = await post('secret', apiKey, { PublicKey: toBase64(publicKey) }, signal);
      const member = memberReader(answer, 'secret', 'secret_exchange_failed');
      const encapsulatedKey = member('EncapsulatedKey');
      if (encapsulatedKey.length !== ENCAPSULATED_KEY_BYTES) {
        throw new PrivatemodeError(
          'secret_exchange_failed',
          'secret: EncapsulatedKey does not have 1120 bytes',
        );
      }
      return { encapsulatedKey, signature: member('Signature'), meshCert: member('MeshCert') };
    },
  };
}

/**
 * Returns a function that reads a member of a strict JSON object by name: canonical base64 (RFC 4648 section
 * 4, padded), not empty. Other members are ignored, because the service may add some. Everything else throws
 * `code`.
 */
function memberReader(body: Uint8Array, request: string, code: ErrorCode): (name: string) => Uint8Array {
  const refuse = (why: string): Error =>
    new PrivatemodeError(code, `${request}: the response is refused: ${why}`);
  const parsed = parseStrictJson(body, RESPONSE_LIMITS, refuse);
  if (!(parsed instanceof Map)) throw refuse('not an object');
  return (name) => {
    const text: unknown = parsed.get(name);
    const bytes = new Uint8Array(Buffer.from(typeof text === 'string' ? text : '', 'base64'));
    if (bytes.length === 0 || toBase64(bytes) !== text) throw refuse(`${name} is missing or not base64`);
    return bytes;
  };
}

const toBase64 = (bytes: Uint8Array): string => Buffer.from(bytes).toString('base64');

/**
 * The beginning of an error body for a person: one line of printable ASCII. If the service echoes the API
 * key, `(key)` stands in its place. If the body is JSON with an error message, as APIs write it, only that
 * message is shown.
 */
function excerpt(body: Uint8Array, apiKey: string): string {
  const whole = Buffer.from(body.subarray(0, 4096)).toString('latin1');
  const text = (messageIn(whole) ?? whole).replaceAll(apiKey, '(key)');
  const line = text.replace(/[^\x20-\x7e]+/g, ' ').trim();
  if (line === '') return '(empty body)';
  return line.length > 200 ? `${line.slice(0, 200)}…` : line;
}

/**
 * The message of `{"error":{"message":…}}`, `{"error":…}` or `{"message":…}`; undefined for any other text.
 */
function messageIn(text: string): string | undefined {
  let body: unknown;
  try {
    body = JSON.parse(text);
  } catch {
    return undefined;
  }
  const { error, message } = Object(body) as { error?: unknown; message?: unknown };
  const said = [Object(error).message, error, message].find((each) => typeof each === 'string');
  return said as string | undefined;
}
