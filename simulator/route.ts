import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Faults } from './faults.ts';
import { sendError } from './json-http.ts';

/** One request on its way through the simulator. */
export interface Exchange {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  /** Path and query of the request; the host is of no interest. */
  readonly url: URL;
}

/** What is counted, and may be made to fail as a whole. */
export type Service = 'manifest' | 'attest' | 'secret' | 'collateral';

export interface Route {
  readonly method: 'GET' | 'POST' | 'PUT' | 'DELETE';
  readonly path: string | RegExp;
  /** Undefined for the control endpoint, which never fails on purpose. */
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

/** Whether a fault has dealt with this request: reset it, answered it with an error, or left it hanging. */
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
