/** Routes of the simulator, the faults that interrupt a request before its handler, and small JSON bodies. */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { buffer } from 'node:stream/consumers';
import type { Faults } from './faults.ts';
import { Rejection } from './inference/rejection.ts';

/** One request to the simulator, with its response. */
export interface Exchange {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  /** Path and query of the request; its host does not matter. */
  readonly url: URL;
}

/** The services whose requests are counted, and which a fault can make fail as a whole. */
export type Service = 'manifest' | 'attest' | 'secret' | 'collateral';

export interface Route {
  readonly method: 'GET' | 'POST' | 'PUT';
  readonly path: string | RegExp;
  /** Undefined for the control endpoint, which has no faults. */
  readonly service?: Service;
  /** May throw Rejection. */
  readonly handle: (exchange: Exchange) => void | Promise<void>;
}

/** A route of the vendors' services for the collateral of their certificates. */
export const collateral = (path: string | RegExp, handle: Route['handle']): Route => ({
  method: 'GET',
  path,
  service: 'collateral',
  handle,
});

export const findRoute = (routes: readonly Route[], asked: string, pathname: string): Route | undefined =>
  routes.find(
    ({ method, path }) =>
      method === asked && (typeof path === 'string' ? path === pathname : path.test(pathname)),
  );

/** Whether a fault has ended this request: by a reset, an error, or by leaving it without a response. */
export function interrupted(
  service: Service,
  { request, response }: Exchange,
  faults: Faults,
  reset: () => void,
): boolean {
  const isReset = faults.take(`${service}-reset`);
  if (isReset) reset();
  if (isReset || faults.get(`${service}-hang`)) return true;
  const status = faults.get(`${service}-status`);
  if (status === undefined) return false;
  request.resume();
  sendError(response, status, `simulated ${service} failure`);
  return true;
}

const MAX_BODY_BYTES = 64 * 1024;

/**
 * The body as one JSON object; an empty object if there is no body. Throws Rejection 400 or 413, both after
 * the whole body: a connection reset would lose a response sent during the upload.
 */
export async function readJsonObject(request: IncomingMessage): Promise<Record<string, unknown>> {
  const body = await buffer(request);
  if (body.length > MAX_BODY_BYTES) throw new Rejection(413, 'request body too large');
  if (body.length === 0) return {};
  let value: unknown;
  try {
    value = JSON.parse(body.toString('utf8'));
  } catch {
    throw new Rejection(400, 'the request body is not JSON');
  }
  if (typeof value === 'object' && value !== null && !Array.isArray(value))
    return value as Record<string, unknown>;
  throw new Rejection(400, 'the request body is not a JSON object');
}

export function sendJson(response: ServerResponse, status: number, value: unknown): void {
  sendBytes(response, status, 'application/json', Buffer.from(JSON.stringify(value), 'utf8'));
}

export function sendBytes(response: ServerResponse, status: number, type: string, body: Uint8Array): void {
  response.writeHead(status, { 'Content-Type': type, 'Content-Length': body.length });
  response.end(body);
}

/** Sends an error in clear, marked as not encrypted. */
export function sendError(response: ServerResponse, status: number, message: string): void {
  response.setHeader('Privatemode-Encrypted', 'false');
  sendJson(response, status, { error: { message, type: status === 401 ? 'unauthorized' : '' } });
}
