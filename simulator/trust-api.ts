/**
 * The endpoints through which a client verifies the deployment: manifest, attestation, secret
 * (docs/protocol/attestation.md 1).
 */
import type { IncomingMessage } from 'node:http';
import type { Deployment } from './deployment.ts';
import type { Faults } from './faults.ts';
import { HttpError, readJsonObject, sendBytes, sendJson } from './json-http.ts';
import { tooOld } from './minimum-version.ts';
import type { Exchange, Route } from './route.ts';
import { HPKE_PUBLIC_KEY_BYTES } from './secret-exchange.ts';
import type { MutableSecretStore } from './secrets.ts';

const NONCE_BYTES = 32;
const ERROR_PAGE = Buffer.from('<!doctype html><title>Down for maintenance</title>\n');

export function trustRoutes(context: {
  readonly deployment: Deployment;
  readonly secrets: MutableSecretStore;
  readonly apiKeys: (key: string | undefined) => boolean;
  readonly faults?: Pick<Faults, 'get'>;
}): readonly Route[] {
  const { deployment, secrets, apiKeys, faults } = context;
  let served: Uint8Array | undefined;

  const authorize = ({ request }: Exchange): void => {
    if (!apiKeys(bearerOf(request))) throw new HttpError(401, 'unauthorized');
    const refusal = tooOld(request, faults?.get('minimum-version'));
    if (refusal !== undefined) throw new HttpError(400, refusal);
  };

  return [
    {
      method: 'GET',
      path: '/privatemode/v2/manifest.json',
      service: 'manifest',
      handle({ response }) {
        if (!faults?.get('manifest-stale')) served = undefined;
        served ??= deployment.manifest().bytes;
        if (faults?.get('manifest-page')) sendBytes(response, 200, 'text/html', ERROR_PAGE);
        else sendBytes(response, 200, 'application/json', served);
      },
    },
    {
      method: 'POST',
      path: '/privatemode/v1/attest',
      service: 'attest',
      async handle(exchange) {
        authorize(exchange);
        const nonce = bytesOf(await readJsonObject(exchange.request), 'Nonce', NONCE_BYTES);
        sendJson(exchange.response, 200, { AttestationDoc: base64(deployment.attest(nonce)) });
      },
    },
    {
      method: 'POST',
      path: '/privatemode/v1/secret',
      service: 'secret',
      async handle(exchange) {
        authorize(exchange);
        const publicKey = bytesOf(await readJsonObject(exchange.request), 'PublicKey', HPKE_PUBLIC_KEY_BYTES);
        const exchanged = await deployment.exchange(publicKey).catch(() => {
          throw new HttpError(400, 'PublicKey is not a key of this KEM');
        });
        secrets.put(exchanged.id, exchanged.secret);
        sendJson(exchange.response, 200, {
          EncapsulatedKey: base64(exchanged.encapsulatedKey),
          Signature: base64(exchanged.signature),
          MeshCert: base64(exchanged.meshCert),
        });
      },
    },
  ];
}

/** The token of an Authorization header of the Bearer scheme. */
function bearerOf(request: IncomingMessage): string | undefined {
  return /^Bearer +(\S.*)$/i.exec(request.headers.authorization ?? '')?.[1];
}

const base64 = (bytes: Uint8Array): string => Buffer.from(bytes).toString('base64');

function bytesOf(body: Record<string, unknown>, member: string, length: number): Uint8Array {
  const value = body[member];
  const bytes = typeof value === 'string' ? Buffer.from(value, 'base64') : undefined;
  if (bytes?.length !== length || base64(bytes) !== value) {
    throw new HttpError(400, `${member} must be ${length} bytes in base64`);
  }
  return new Uint8Array(bytes);
}
