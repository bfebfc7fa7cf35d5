/** The endpoints for verification: manifest, attestation, secret (docs/protocol/attestation.md 1). */
import type { IncomingMessage } from 'node:http';
import { type Deployment, HPKE_PUBLIC_KEY_BYTES } from './deployment.ts';
import type { Faults } from './faults.ts';
import { Rejection } from './inference/rejection.ts';
import { type Exchange, type Route, readJsonObject, sendBytes, sendJson } from './route.ts';
import type { SecretStore } from './secrets.ts';

type Body = Record<string, unknown>;

const NONCE_BYTES = 32;
const ERROR_PAGE = Buffer.from('<!doctype html><title>Down for maintenance</title>\n');

export function trustRoutes(context: {
  readonly deployment: Deployment;
  readonly secrets: SecretStore;
  readonly apiKeys: (key: string | undefined) => boolean;
  readonly faults?: Pick<Faults, 'get'>;
}): readonly Route[] {
  const { deployment, secrets, apiKeys, faults } = context;
  let served: Uint8Array | undefined;

  const authorize = ({ request }: Exchange): void => {
    if (!apiKeys(bearerOf(request))) throw new Rejection(401, 'unauthorized');
    const refusal = tooOld(request, faults?.get('minimum-version'));
    if (refusal !== undefined) throw new Rejection(400, refusal);
  };

  const post = (service: 'attest' | 'secret', answer: (body: Body) => unknown): Route => ({
    method: 'POST',
    path: `/privatemode/v1/${service}`,
    service,
    async handle(exchange) {
      authorize(exchange);
      sendJson(exchange.response, 200, await answer(await readJsonObject(exchange.request)));
    },
  });

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
    post('attest', (body) => ({
      AttestationDoc: base64(deployment.attest(bytesOf(body, 'Nonce', NONCE_BYTES))),
    })),
    post('secret', async (body) => {
      const publicKey = bytesOf(body, 'PublicKey', HPKE_PUBLIC_KEY_BYTES);
      const { id, secret, encapsulatedKey, signature, meshCert } = await deployment
        .exchange(publicKey)
        .catch(() => {
          throw new Rejection(400, 'PublicKey is not a key of this KEM');
        });
      secrets.put(id, secret);
      const [key, signed, certificate] = [encapsulatedKey, signature, meshCert].map(base64);
      return { EncapsulatedKey: key, Signature: signed, MeshCert: certificate };
    }),
  ];
}

/** The refusal of a client below `minimum`, as `v1.46.0`. How the real service decides is not known. */
export function tooOld({ headers }: IncomingMessage, minimum: string | undefined): string | undefined {
  if (minimum === undefined) return undefined;
  const announced = String(headers['privatemode-version'] ?? 'v0');
  const isOlder = announced.localeCompare(minimum, 'en', { numeric: true }) < 0;
  return isOlder ? `minimum client version ${minimum}` : undefined;
}

/** The token of an Authorization header of the Bearer scheme. */
function bearerOf(request: IncomingMessage): string | undefined {
  return /^Bearer +(\S.*)$/i.exec(request.headers.authorization ?? '')?.[1];
}

const base64 = (bytes: Uint8Array): string => Buffer.from(bytes).toString('base64');

function bytesOf(body: Body, member: string, length: number): Uint8Array {
  const value = body[member];
  const bytes = typeof value === 'string' ? Buffer.from(value, 'base64') : undefined;
  if (bytes?.length !== length || base64(bytes) !== value)
    throw new Rejection(400, `${member} must be ${length} bytes in base64`);
  return new Uint8Array(bytes);
}
