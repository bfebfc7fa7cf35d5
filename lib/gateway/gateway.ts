import type { IncomingMessage, ServerResponse } from 'node:http';
import { PrivatemodeError } from '../errors.ts';
import { count } from '../observe/counters.ts';
import { VERSION } from '../version.ts';
import { answer, answerError } from './answers.ts';
import type { Call } from './call.ts';
import { decideOrigin, preflightHeaders } from './cors.ts';
import { type LocalAnswer, matchEndpoint, type Refusal } from './endpoints.ts';
import { exchange } from './exchange.ts';
import { refuseAmbiguous } from './headers.ts';
import { newRequestId } from './request-id.ts';
import type { World } from './world.ts';

export interface Gateway {
  readonly handle: (req: IncomingMessage, res: ServerResponse) => void;
  /** Exchanges that are not finished. */
  readonly active: () => number;
}

/** Decides what a request is, before anything is done for it, and answers or forwards it. */
export function createGateway(world: World): Gateway {
  let active = 0;

  const handle = (req: IncomingMessage, res: ServerResponse): void => {
    const requestId = newRequestId();
    const log = world.log.child({ requestId });
    const origin = decideOrigin(req.headers, world.cors());
    const method = req.method as string;
    const found = matchEndpoint(method, req.url as string);
    const dialect = found.kind === 'endpoint' ? found.endpoint.dialect : found.kind === 'refusal' ? found.dialect : 'plain';
    const refuse = (error: PrivatemodeError, allow?: readonly string[]): void => {
      log.info({ method, code: error.code, status: error.status, reason: error.message }, 'Request refused');
      answerError(req, res, error, { dialect, requestId, allow }, { headers: origin.headers });
    };

    res.on('error', () => {}); // the client went away; 'close' tells
    try {
      refuseAmbiguous(req.rawHeaders);
    } catch (thrown) {
      return refuse(thrown as PrivatemodeError);
    }
    const preflight = preflightHeaders(method, req.headers, world.cors());
    if (preflight !== undefined) return answer(req, res, { status: 204, headers: preflight });
    if (origin.refusal !== undefined) return refuse(new PrivatemodeError('origin_forbidden', origin.refusal));
    if (found.kind === 'local') return answerLocally(world, req, res, found, origin.headers);
    if (found.kind === 'refusal') return refuse(errorOf(found), found.allow);

    const gone = new AbortController();
    const call: Call = {
      world,
      req,
      res,
      match: found,
      requestId,
      log,
      corsHeaders: origin.headers,
      signal: AbortSignal.any([gone.signal, world.terminate]),
      phase: 'before_headers',
    };
    res.once('close', () => {
      active -= 1;
      world.counters.inFlight = active;
      if (res.writableFinished) return;
      if (!req.socket.destroyed && res.destroyed) return; // broken on purpose, by us
      count(world.counters.clientAborts, call.phase);
      gone.abort(new Error('the client went away'));
    });
    active += 1;
    world.counters.inFlight = active;
    world.counters.requests += 1;
    log.info({ method, endpoint: found.endpoint.id }, 'Forwarding request');
    void exchange(call);
  };
  return { handle, active: () => active };
}

const errorOf = (refusal: Refusal): PrivatemodeError => new PrivatemodeError(refusal.code, refusal.words);

/** What the proxy answers about itself (design decision 13); nothing here needs the remote. */
function answerLocally(
  world: World,
  req: IncomingMessage,
  res: ServerResponse,
  { id }: LocalAnswer,
  corsHeaders: Readonly<Record<string, string>>,
): void {
  const headers = { ...corsHeaders, 'cache-control': 'no-store', 'content-type': 'text/plain; charset=utf-8' };
  const text = (status: number, body: string): void => answer(req, res, { status, headers, body });
  switch (id) {
    case 'root':
      return text(200, `privatemode-proxy v${VERSION}\nAPI base URLs: /v1 (OpenAI style), / (Anthropic style)\n`);
    case 'hello':
    case 'healthz':
      return text(200, 'ok\n');
    case 'readyz':
      return answerReadiness(world, req, res, headers);
  }
}

function answerReadiness(
  world: World,
  req: IncomingMessage,
  res: ServerResponse,
  headers: Readonly<Record<string, string>>,
): void {
  const state = world.session.state();
  if (state === 'ready') return answer(req, res, { status: 204 });
  if (state === 'awaiting-key') {
    return answer(req, res, { status: 204, headers: { 'privatemode-proxy-state': 'awaiting-key' } });
  }
  const reason = world.session.lastError()?.message ?? 'the remote is being verified';
  answer(req, res, { status: 503, headers: { ...headers, 'retry-after': '2' }, body: `not ready: ${reason}\n` });
}
