/**
 * The requests that lead to a secret. Evidence and secret come from the service (docs/protocol/attestation.md
 * 1). The manifest that the service must match comes from the service's CDN, unless the user gives it.
 */
import { base64, readMembers } from '../attestation/json-members.ts';
import { whyNoManifest } from '../attestation/manifest.ts';
import type { Clock } from '../clock.ts';
import { type ErrorCode, type FailureDetail, PrivatemodeError } from '../errors.ts';
import { urlHost } from '../network/addresses.ts';
import type { ControlCall } from '../network/call-limits.ts';
import { clientTooOld } from '../network/transport-errors.ts';

export type ControlApi = ReturnType<typeof createControlApi>;

/** Limits for a response's size and nesting. Real responses are flat objects of strings, below 100 KiB. */
const MAX_BYTES = 1024 * 1024;
const LIMITS = { depth: 8, values: 256 };
const BYTES = base64(1);

const refused = (message: string) => new PrivatemodeError('api_key_rejected', message);

/**
 * Both requests throw client_too_old if an error response asks for a newer client, and api_key_rejected for
 * status 401 and for a key that no HTTP header can hold. Otherwise, every status but 200 leads to
 * control_api_failed. Both requests also throw the errors of `ControlCall`. `protocolVersion` is the version
 * of the protocol that this program announces.
 */
export function createControlApi(deps: {
  readonly call: ControlCall;
  readonly endpoint: { readonly host: string; readonly port: number };
  readonly protocolVersion: string;
  readonly clock: Clock;
}) {
  const { call, endpoint, protocolVersion, clock } = deps;
  const base = `https://${urlHost(endpoint.host)}:${endpoint.port}/privatemode/v1`;

  /** Returns the members of the response. `code` is the error code for a response that cannot be read. */
  async function post(name: string, apiKey: string, body: object, code: ErrorCode, signal?: AbortSignal) {
    if (!/^[\x21-\x7e]+$/.test(apiKey))
      throw refused('the API key is empty or holds characters that no key has');
    const response = await call({
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
    const { status, pause } = response;
    const refuse = (why: string) => new PrivatemodeError(code, `${name}: the response is refused: ${why}`);
    if (status === 200) return readMembers(response.body, LIMITS, refuse);
    const tooOld = status >= 400 ? clientTooOld(response.body, protocolVersion) : undefined;
    if (tooOld !== undefined) throw tooOld;
    const said = excerpt(response.body, apiKey);
    // Clients are given the key "placeholder" where the proxy should have an API key of its own.
    const hint = apiKey === 'placeholder' ? ' (it is "placeholder", and --api-key gives no other)' : '';
    if (status === 401) throw refused(`the service rejects the API key${hint}: ${said}`);
    const failed = `${name}: the service answered with status ${status}: ${said}`;
    throw new PrivatemodeError('control_api_failed', failed, { detail: { pause } });
  }

  return {
    /** Resolves with the coordinator's attestation document (JSON). Also throws evidence_malformed. */
    async attest(apiKey: string, nonce: Uint8Array, signal?: AbortSignal): Promise<Uint8Array> {
      const answer = await post('attest', apiKey, { Nonce: toBase64(nonce) }, 'evidence_malformed', signal);
      return answer.get('AttestationDoc', BYTES);
    },
    /** Sends the HPKE public key `publicKey`, 1216 bytes. Also throws secret_exchange_failed. */
    async secret(apiKey: string, publicKey: Uint8Array, signal?: AbortSignal) {
      const body = { PublicKey: toBase64(publicKey) };
      const answer = await post('secret', apiKey, body, 'secret_exchange_failed', signal);
      return {
        encapsulatedKey: answer.get('EncapsulatedKey', base64(1120, 1120)),
        signature: answer.get('Signature', BYTES),
        meshCert: answer.get('MeshCert', BYTES),
      };
    },
  };
}

const toBase64 = (bytes: Uint8Array): string => Buffer.from(bytes).toString('base64');

/** The JSON message of an error body, or the start of the body, as one line of ASCII without the API key. */
function excerpt(body: Uint8Array, apiKey: string): string {
  const whole = Buffer.from(body.subarray(0, 4096)).toString('latin1');
  const said = /"(?:message|error)"\s*:\s*"([^"\\]+)"/.exec(whole)?.[1] ?? whole;
  const line = said.replaceAll(apiKey, '(key)').replace(/[^\x20-\x7e]+/g, ' ');
  return line.trim().slice(0, 200) || '(empty body)';
}

export interface ManifestSource {
  /** `static`: the user gives and may replace the manifest. `managed`: the service publishes the manifest. */
  readonly kind: 'static' | 'managed';
  /** The bytes of the manifest. Throws manifest_unavailable, upstream_tls_untrusted, the signal's reason. */
  newest(signal?: AbortSignal): Promise<Uint8Array>;
}

const MOST_OF_MANIFEST = 1024 * 1024; // bytes; a real manifest has about 6 KB

/**
 * Fetches the manifest from `cdnBaseUrl`, such as `https://cdn.confidential.cloud`. The URL may end in
 * `/privatemode/v2`. The URL query has the time, so that no cache responds (docs/protocol/inference.md 1).
 */
export function managedManifest(deps: {
  readonly call: ControlCall;
  readonly cdnBaseUrl: string;
  readonly clock: Clock;
}): ManifestSource {
  const { call, cdnBaseUrl, clock } = deps;
  const base = `${cdnBaseUrl.replace(/(?:\/privatemode\/v2)?\/*$/, '')}/privatemode/v2/manifest.json`;
  const unavailable = (why: string, cause?: unknown, detail?: FailureDetail): PrivatemodeError =>
    new PrivatemodeError('manifest_unavailable', `the manifest cannot be fetched: ${why}`, { cause, detail });
  return {
    kind: 'managed',
    async newest(signal) {
      const url = `${base}?t=${clock.now()}`;
      const limits = { maxBytes: MOST_OF_MANIFEST, timeout: clock.times.manifestTimeout, signal };
      const asked = call({ method: 'GET', url, ...limits });
      const { status, body, pause } = await asked.catch((thrown: unknown) => {
        signal?.throwIfAborted();
        if (!(thrown instanceof PrivatemodeError) || thrown.code === 'upstream_tls_untrusted') throw thrown;
        throw unavailable(thrown.message, thrown);
      });
      if (status !== 200) throw unavailable(`${base} answered with status ${status}`, undefined, { pause });
      const reason = whyNoManifest(body);
      if (reason !== undefined) throw unavailable(`what ${new URL(base).host} sent ${reason}`);
      return body;
    },
  };
}
