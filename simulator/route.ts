/** Routes of the simulator: how a request finds its handler, and the faults that interrupt it before. */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Faults } from './faults.ts';
import { sendError } from './json-http.ts';

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
  readonly method: 'GET' | 'POST' | 'PUT' | 'DELETE';
  readonly path: string | RegExp;
  /** Undefined for the control endpoint, which has no faults. */
  readonly service?: Service;
  /** May throw HttpError. */
  readonly handle: (exchange: Exchange) => void | Promise<void>;
}

export function findRoute(routes: readonly Route[], method: string, pathname: string): Route | undefined {
  return routes.find(
    (route) =>
      route.method === method &&
      (typeof route.path === 'string' ? route.path === pathname : route.path.test(pathname)),
  );
}

/**
 * Whether a fault has ended this request: it reset the connection, sent an error, or leaves the request
 * without a response.
 */
export function interrupted(
  service: Service,
  { request, response }: Exchange,
  faults: Faults,
  reset: (request: IncomingMessage) => void,
): boolean {
  if (faults.take(`${service}-reset`)) {
    reset(request);
    return true;
  }
  if (faults.get(`${service}-hang`)) return true;
  const status = faults.get(`${service}-status`);
  if (status === undefined) return false;
  request.resume();
  sendError(response, status, `simulated ${service} failure`);
  return true;
}
