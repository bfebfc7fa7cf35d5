/** The life of one inference request: the server's checks in their order, the model, encryption, delivery. */
import { once } from 'node:events';
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Faults } from '../faults.ts';
import { createExchangeLog, type Exchange } from '../recorder.ts';
import type { SecretStore } from '../secrets.ts';
import { tooOld } from '../trust-api.ts';
import { checkAdmission } from './admission.ts';
import { type Endpoint, endpointOf } from './endpoints.ts';
import { createSealer, type Protection, type Sealer } from './envelope.ts';
import { type ArmedFault, createFaultPicker, remembering } from './faults.ts';
import { checkGpuPolicy } from './gpu-policy.ts';
import { createModel, type ModelOptions } from './model.ts';
import { pause } from './pacing.ts';
import { Rejection } from './rejection.ts';
import { consistencyViolations, type OpenedRequest, openRequest } from './request.ts';
import {
  altered,
  changed,
  deliver,
  framed,
  inClear,
  plainWire,
  protectWith,
  rejectionWire,
  type Step,
  type Wire,
  wireOf,
} from './wire.ts';
import { headViolations, missingProtocolHeaders, PROTOCOL_HEADERS } from './wire-rules.ts';

/** What the inference side gets from the trust side. */
export interface InferenceContext {
  readonly secrets: SecretStore;
  readonly model: ModelOptions;
  readonly faults: Faults;
  /** Whether a bearer token (undefined: none was sent) is accepted. */
  readonly apiKeys: (key: string | undefined) => boolean;
  /** The simulator's clock, ms since 1970; a test may skew it. */
  readonly now: () => number;
}

/** One request while it is handled. */
interface Call {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  readonly exchange: Exchange;
  /** Aborts when the client leaves. */
  readonly signal: AbortSignal;
  /** Resets the TCP connection. */
  readonly reset: () => void;
}

/** The server's limit (docs/protocol/inference.md 11). */
const MAX_BODY_BYTES = 128 * 1024 * 1024;

/** Reads the whole body, at no more than `bytesPerSecond`. Throws Rejection (413) beyond the size limit. */
async function readBody(
  request: IncomingMessage,
  bytesPerSecond: number,
  signal: AbortSignal,
): Promise<Buffer> {
  const chunks: Buffer[] = [];
  let total = 0;
  for await (const chunk of request.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>) {
    total += chunk.length;
    if (total > MAX_BODY_BYTES) throw new Rejection(413, 'maximum request size exceeded');
    chunks.push(chunk);
    if (bytesPerSecond !== Infinity) await pause((chunk.length / bytesPerSecond) * 1000, signal);
  }
  return Buffer.concat(chunks, total);
}

/** Checks what the server needs before it reads a body. Throws Rejection. */
function checkHead(endpoint: Endpoint, request: IncomingMessage): void {
  if (request.method !== endpoint.method) throw new Rejection(405, 'method not allowed');
  if (endpoint.body === 'none') return;
  if (request.headers['content-length'] === undefined) throw new Rejection(411, 'Content-Length is required');
  const [missing] = missingProtocolHeaders(endpoint, request);
  if (missing !== undefined) throw new Rejection(400, `missing header ${missing}`);
}

/** How much of a decrypted request is kept for tests, in UTF-16 units. */
const OPENED_LIMIT = 16_384;

function describe({ body }: OpenedRequest): string {
  if (body.kind === 'form') return body.parts.map(({ name }) => name).join(' ');
  return (body.kind === 'json' ? body.text : body.bytes.toString('latin1')).slice(0, OPENED_LIMIT);
}

const NOT_FOUND_HEADERS = {
  'Content-Type': 'text/plain; charset=utf-8',
  'X-Content-Type-Options': 'nosniff',
};

/** Makes the handler of inference requests. Throws config_invalid if the transcripts cannot be read. */
export function createInferenceHandler({ secrets, faults: switches, apiKeys, ...context }: InferenceContext) {
  const { log, begin, finish } = createExchangeLog();
  const model = createModel(context.model, context.now);
  const faultsOf = createFaultPicker(switches);
  const { lookup } = secrets;
  /** A nonce must never protect two requests (docs/protocol/inference.md 4). */
  const isNewNonce = remembering(100_000);

  /** Looks the secret up again for each message, as the server does (docs/protocol/inference.md 10). */
  function sealerOf(protection: Protection): Sealer {
    const seal = createSealer(protection);
    const { secretId } = protection;
    return (plaintext) => {
      if (lookup(secretId) !== undefined) return seal(plaintext);
      throw new Rejection(500, `encrypting response: getting secret: no secret for ID "${secretId}"`);
    };
  }

  async function opened(
    endpoint: Endpoint,
    { request, exchange }: Call,
    body: Buffer,
  ): Promise<OpenedRequest> {
    const result = await openRequest(endpoint, request.url ?? '', request.headers, body, lookup);
    exchange.model = result.model;
    exchange.secretId = result.protection.secretId;
    exchange.opened = describe(result);
    exchange.violations.push(...consistencyViolations(result, request.headers));
    if (!isNewNonce(result.protection.nonce.toString('hex')))
      exchange.violations.push('a nonce of an earlier request');
    return result;
  }

  /** The response to one request; throws Rejection if the server refuses the request. */
  async function respond(endpoint: Endpoint, call: Call, faults: readonly ArmedFault[]): Promise<Wire> {
    const { request, signal } = call;
    checkHead(endpoint, request);
    const rate = faults.find(({ bodyBytesPerSecond }) => bodyBytesPerSecond)?.bodyBytesPerSecond;
    const body = await readBody(request, rate ?? Infinity, signal);
    const instead = faults.find((fault) => fault.instead)?.instead;
    if (instead !== undefined) return instead(request);
    const [, key] = /^Bearer (.+)$/.exec(request.headers.authorization ?? '') ?? [];
    if (!apiKeys(key)) throw new Rejection(401, 'invalid API key');
    if (endpoint.body === 'none')
      return wireOf(await model.list(endpoint, request.url ?? '', signal), inClear);

    if (endpoint.policyChecked) {
      const header = (name: string): string | undefined => request.headers[name]?.toString();
      const policy = { policy: header(PROTOCOL_HEADERS.ocspPolicy), mac: header(PROTOCOL_HEADERS.ocspMac) };
      const gpu = faults.find((fault) => fault.gpu)?.gpu ?? { status: 'good' };
      checkGpuPolicy(policy, header(PROTOCOL_HEADERS.secretId) ?? '', lookup, gpu);
    }
    const asked = await opened(endpoint, call, body);
    checkAdmission(asked);
    const response = await altered(await model.respond(asked, signal), faults);
    const nonce = faults.reduce((value, fault) => fault.nonce?.(value) ?? value, asked.protection.nonce);
    const isPlain = faults.some(({ unprotected }) => unprotected);
    const protect = protectWith(endpoint, sealerOf({ ...asked.protection, nonce }));
    return wireOf(response, isPlain ? inClear : protect);
  }

  /** The server's response, also if it is an error; undefined if a fault has already responded. */
  async function wireFor(call: Call): Promise<{ wire: Wire; faults: readonly ArmedFault[] } | undefined> {
    const { request, response, exchange } = call;
    const endpoint = endpointOf(request.url ?? '');
    if (endpoint === undefined) {
      exchange.violations.push('a path outside the API');
      return { wire: await framed(plainWire(404, NOT_FOUND_HEADERS, '404 page not found\n')), faults: [] };
    }
    exchange.violations.push(...headViolations(endpoint, request));
    const faults: ArmedFault[] = [];
    try {
      const refusal = tooOld(request, switches.get('minimum-version'));
      if (refusal !== undefined) throw new Rejection(400, refusal);
      faults.push(...faultsOf(request, endpoint));
      exchange.faults.push(...faults.map(({ asked }) => asked));
      const first = faults.find(({ beforeBody }) => beforeBody);
      if (first !== undefined) {
        await first.beforeBody?.(request, response);
        return undefined;
      }
      let wire = await respond(endpoint, call, faults);
      const place = { isWhole: !wire.streaming, terminal: endpoint.terminal };
      const inForce = faults.filter(({ streams }) => !streams || wire.streaming);
      for (const { headers, ofWire } of inForce) {
        const pieces = ofWire === undefined ? wire.pieces : changed<Buffer, Step>(wire.pieces, ofWire, place);
        wire = { ...wire, headers: { ...wire.headers, ...headers }, pieces };
      }
      wire = await framed(wire);
      for (const { delivery } of inForce) {
        if (delivery !== undefined)
          wire = { ...wire, pieces: changed<Buffer, Step>(wire.pieces, delivery, place) };
      }
      return { wire, faults };
    } catch (error) {
      if (!(error instanceof Rejection)) throw error;
      if (error.cause !== undefined) {
        const { code } = error.cause as NodeJS.ErrnoException;
        exchange.failure = `${error.message}: ${code ?? String(error.cause)}`;
      }
      return { wire: await framed(rejectionWire(error)), faults };
    }
  }

  async function serve(call: Call): Promise<void> {
    const { request, response, exchange, signal, reset } = call;
    const answered = await wireFor(call);
    if (answered === undefined) return;
    if (!request.readableEnded) {
      // A response that is sent during an upload can be lost when the connection closes after it.
      request.resume();
      await once(request, 'end', { signal });
    }
    for (const { beforeHead } of answered.faults)
      if ((await beforeHead?.(response, signal)) === 'reset') return reset();
    const written = (): void => {
      exchange.written++;
    };
    await deliver(answered.wire, request, response, { signal, reset, written });
  }

  /** Returns the record of the exchange, which goes on until the response has been closed. */
  const handle = (request: IncomingMessage, response: ServerResponse, reset: () => void): Exchange => {
    const exchange = begin(request);
    const departure = new AbortController();
    response.once('close', () => {
      if (!response.writableFinished) exchange.closedEarlyAt = Date.now();
      departure.abort();
    });
    serve({ request, response, exchange, signal: departure.signal, reset })
      .catch((error: unknown) => {
        // Either the client has left, or the source of the response failed mid-stream; only a reset can show
        // the client such a failure.
        if (!departure.signal.aborted) exchange.failure = String(error);
        reset();
      })
      .finally(() => {
        exchange.status = response.headersSent ? response.statusCode : 0;
        finish();
      });
    return exchange;
  };
  return Object.assign(handle, { exchanges: log });
}
