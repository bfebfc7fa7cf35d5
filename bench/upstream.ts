/**
 * The remote side of the benchmark, in a process of its own: the simulator's trust services, and an inference
 * endpoint that seals a whole answer before it begins to pace it. Tells its parent when uploads arrive and
 * connections close.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { amdKdsRoutes, intelPcsRoutes } from '../simulator/collateral.ts';
import { createDeployment } from '../simulator/deployment.ts';
import { hardwareIn, writeManifest, writeTrustAnchors } from '../simulator/directory.ts';
import { createFaults } from '../simulator/faults.ts';
import { issueServerCertificate } from '../simulator/pki/tls.ts';
import { createSecretStore } from '../simulator/secrets.ts';
import { startServer } from '../simulator/server.ts';
import { trustRoutes } from '../simulator/trust-api.ts';
import {
  DONE,
  OPEN_PROTECTION,
  OPEN_SECRET,
  type Plan,
  planOf,
  protectionIn,
  sealedAnswer,
  sealedEvents,
} from './fixtures.ts';
import { monotonicMs } from './processes.ts';

export type UpstreamNote =
  | { readonly type: 'ready'; readonly port: number }
  /** A request body is complete; `at` as `monotonicMs` tells it. */
  | { readonly type: 'uploaded'; readonly model: string; readonly bytes: number; readonly at: number }
  /** The client's side closed before the answer was over. */
  | { readonly type: 'closed'; readonly at: number };

const HEAD_BYTES = 256 * 1024;
/**
 * With the frame of an HTTP chunk, no more than a TLS record: a relay that passes on what it reads cuts no
 * event.
 */
const PIECE_BYTES = 16 * 1024 - 16;
const LIFETIME = 24 * 3_600_000;

const [directory] = process.argv.slice(2) as [string];
const note = (message: UpstreamNote): void => {
  process.send?.(message);
};
const faults = createFaults();
const hardware = await hardwareIn(directory);
const deployment = createDeployment({
  hardware,
  tee: 'snp',
  vcpus: 1, // the reference accepts no other number
  faults,
  now: Date.now,
});
const secrets = createSecretStore(LIFETIME, Date.now);
secrets.put(OPEN_SECRET.id, OPEN_SECRET.key);
await writeTrustAnchors(directory, hardware);
await writeManifest(directory, deployment.manifest().bytes);

const server = await startServer({
  host: '127.0.0.1',
  port: 0,
  tls: issueServerCertificate(hardware.keys, ['localhost', '127.0.0.1']),
  routes: [
    ...trustRoutes({ deployment, secrets, apiKeys: () => true }),
    ...amdKdsRoutes(hardware, faults),
    ...intelPcsRoutes(hardware, faults),
  ],
  inference: (request, response) => void infer(request, response),
  faults,
  onRequest: () => {},
});
process.once('disconnect', () => process.exit());
note({ type: 'ready', port: server.port });

const sealedBefore = new Map<number, readonly Buffer[]>();
function openEvents(count: number): readonly Buffer[] {
  const events = sealedBefore.get(count) ?? sealedEvents(count, OPEN_PROTECTION);
  sealedBefore.set(count, events);
  return events;
}

async function infer(request: IncomingMessage, response: ServerResponse): Promise<void> {
  const model = String(request.headers['privatemode-target-model']);
  const plan = planOf(model);
  let head = '';
  let bytes = 0;
  request.on('data', (chunk: Buffer) => {
    bytes += chunk.length;
    if (head.length < HEAD_BYTES) head += chunk.toString('latin1');
  });
  request.once('end', () => {
    note({ type: 'uploaded', model, bytes, at: monotonicMs() });
    const named = protectionIn(head);
    const key = named && secrets.lookup(named.secretId);
    if (plan === undefined || named === undefined || key === undefined) {
      response.writeHead(400, { 'privatemode-encrypted': 'false' }).end('no plan, or no secret');
      return;
    }
    const protection = { ...named, key };
    if (plan.unary) {
      response.writeHead(200, { 'content-type': 'application/json' }).end(sealedAnswer(protection));
      return;
    }
    const open = plan.again && named.secretId === OPEN_SECRET.id;
    const events = open ? openEvents(plan.events) : sealedEvents(plan.events, protection);
    response.once('close', () => {
      if (!response.writableFinished) note({ type: 'closed', at: monotonicMs() });
    });
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    response.socket?.setNoDelay(true);
    if (plan.pace > 0 || plan.hold) pacedly(response, events, plan);
    else later(plan.start, () => unpaced(response, events));
  });
}

function later(start: number, then: () => void): void {
  const wait = start - Date.now();
  if (wait > 0) setTimeout(then, wait);
  else then();
}

/** One event per write, each at its time, whenever the previous one left. */
function pacedly(response: ServerResponse, events: readonly Buffer[], { start, pace, hold }: Plan): void {
  const begin = Math.max(start, Date.now());
  let next = 0;
  const step = (): void => {
    if (response.destroyed) return;
    while (next < events.length && begin + next * pace <= Date.now()) response.write(events[next++]);
    if (next < events.length) later(begin + next * pace, step);
    else if (!hold) response.end(DONE);
  };
  later(begin, step);
}

/** Events by the TLS record, as a fast model server's writes coalesce. */
function unpaced(response: ServerResponse, events: readonly Buffer[]): void {
  const pieces = piecesOf([...events, Buffer.from(DONE)]);
  const fill = (): void => {
    for (let piece = pieces.shift(); piece !== undefined && !response.destroyed; piece = pieces.shift()) {
      if (!response.write(piece)) return;
    }
    response.off('drain', fill);
    response.end();
  };
  response.on('drain', fill);
  fill();
}

/** As many whole events to a piece as fit. */
function piecesOf(events: readonly Buffer[]): Buffer[] {
  const pieces: Buffer[] = [];
  let begun: Buffer[] = [];
  let length = 0;
  for (const event of events) {
    if (length + event.length > PIECE_BYTES) {
      pieces.push(Buffer.concat(begun));
      begun = [];
      length = 0;
    }
    begun.push(event);
    length += event.length;
  }
  pieces.push(Buffer.concat(begun));
  return pieces;
}
