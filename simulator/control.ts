/**
 * The control endpoint: through it a script sets faults and replaces the manifest while clients are
 * connected. It accepts requests of this machine only, none of a web page, and they are never recorded.
 */
import type { IncomingHttpHeaders } from 'node:http';
import { PrivatemodeError } from '../lib/errors.ts';
import type { Faults } from './faults.ts';
import { Rejection } from './inference/rejection.ts';
import { type Exchange, type Route, readJsonObject, sendJson } from './route.ts';
import type { Simulator } from './simulator.ts';

export const CONTROL_PREFIX = '/_simulator/';

/** What the control endpoint shows and changes; see `startSimulator`. */
export type Controls = Pick<
  Simulator,
  'secrets' | 'faults' | 'counts' | 'manifestSha256' | 'rotateManifest' | 'rotateMesh'
>;

/** Puts these faults in place of those in force; a refusal changes nothing. */
async function putFaults(faults: Faults, { request }: Exchange): Promise<void> {
  const wanted = Object.entries(await readJsonObject(request));
  const before = Object.entries(faults.entries());
  const replace = (entries: [string, unknown][]): void => {
    faults.clear();
    for (const [name, value] of entries) faults.parse(name, value);
  };
  try {
    replace(wanted);
  } catch (refusal) {
    replace(before);
    throw refusal instanceof PrivatemodeError ? new Rejection(400, refusal.message) : refusal;
  }
}

/** Every command responds with the state after it. */
export function controlRoutes(controls: Controls): readonly Route[] {
  const { secrets, faults } = controls;
  const commands: Record<string, (exchange: Exchange) => unknown> = {
    'GET state': () => undefined,
    'PUT faults': (exchange) => putFaults(faults, exchange),
    'POST drop-secrets': () => secrets.dropAll(),
    'POST rotate-manifest': () => controls.rotateManifest(),
    'POST rotate-mesh': () => controls.rotateMesh(),
  };
  return Object.entries(commands).map(([key, command]) => {
    const [method, name] = key.split(' ') as [Route['method'], string];
    return {
      method,
      path: `${CONTROL_PREFIX}${name}`,
      async handle(exchange) {
        const { socket, headers } = exchange.request;
        if (!isLoopback(socket.remoteAddress))
          throw new Rejection(403, 'the control endpoint answers to this machine only');
        if (isOfPage(headers))
          throw new Rejection(403, 'the control endpoint does not answer to web pages: use curl');
        await command(exchange);
        sendJson(exchange.response, 200, {
          manifestSha256: controls.manifestSha256,
          secrets: secrets.ids(),
          counts: controls.counts,
          faults: faults.entries(),
        });
      },
    };
  });
}

export const isLoopback = (address: string | undefined): boolean =>
  address !== undefined && /^(127\.|::1$|::ffff:127\.)/.test(address);

/** Whether a browser sent this for a page. `none` is an address that a person typed (Fetch Metadata 2.3). */
const isOfPage = (headers: IncomingHttpHeaders): boolean =>
  headers.origin !== undefined || (headers['sec-fetch-site'] ?? 'none') !== 'none';
