/** The life of one inference request in the simulated deployment. */
import { once } from 'node:events';
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { InferenceContext } from '../context.ts';
import { tooOld } from '../minimum-version.ts';
import { endpointOf } from './endpoints.ts';
import { createExchangeLog, type Exchange, type ExchangeLog } from './exchanges.ts';
import { type ArmedFault, createFaultPicker } from './faults.ts';
import { createModel } from './model.ts';
import { pause } from './pacing.ts';
import { Rejection } from './rejection.ts';
import { checkHead, createResponder } from './respond.ts';
import { plainWire, rejectionWire } from './sealed-response.ts';
import { deliver, type Framed, frame } from './wire.ts';
import { headViolations } from './wire-rules.ts';

/** Handles every request to the inference API, and logs each. */
export interface InferenceHandler {
  /** Returns the record of the exchange, which goes on until the response has been closed. */
  (request: IncomingMessage, response: ServerResponse): Exchange;
  readonly exchanges: ExchangeLog;
}

/** The server's limit (docs/protocol/inference.md 11). */
const MAX_BODY_BYTES = 128 * 1024 * 1024;

/**
 * Reads the whole body, at no more than `bytesPerSecond`. Throws Rejection (413) beyond the size limit; the
 * caller must then drain the rest.
 */
async function readBody(
  request: IncomingMessage,
  bytesPerSecond: number,
  signal: AbortSignal,
): Promise<Buffer> {
  const chunks: Buffer[] = [];
  let total = 0;
  for await (const chunk of request.iterator({ destroyOnReturn: false })) {
    total += (chunk as Buffer).length;
    if (total > MAX_BODY_BYTES) throw new Rejection(413, 'maximum request size exceeded');
    chunks.push(chunk as Buffer);
    if (bytesPerSecond !== Number.POSITIVE_INFINITY) {
      await pause(((chunk as Buffer).length / bytesPerSecond) * 1000, signal);
    }
  }
  return Buffer.concat(chunks, total);
}

/**
 * Discards the unread rest of a body. A response that is sent during an upload can be lost when the
 * connection closes after it.
 */
async function drain(request: IncomingMessage, signal: AbortSignal): Promise<void> {
  if (request.readableEnded) return;
  request.resume();
  await once(request, 'end', { signal });
}

const NOT_FOUND_HEADERS = {
  'Content-Type': 'text/plain; charset=utf-8',
  'X-Content-Type-Options': 'nosniff',
};

const codeOf = (cause: unknown): string => (cause as NodeJS.ErrnoException).code ?? String(cause);

/** Throws config_invalid if the transcripts of `context.model` cannot be read. */
export function createInferenceHandler(context: InferenceContext): InferenceHandler {
  const { log, begin, finish } = createExchangeLog();
  const respond = createResponder(context, createModel(context.model, context.now));
  const faultsOf = createFaultPicker(context.faults);

  /** The server's response, also if it is an error; undefined if a fault has already responded. */
  async function framedResponse(
    request: IncomingMessage,
    response: ServerResponse,
    exchange: Exchange,
    faults: ArmedFault[],
    signal: AbortSignal,
  ): Promise<Framed | undefined> {
    const endpoint = endpointOf(request.url ?? '');
    if (endpoint === undefined) {
      exchange.violations.push('a path outside the API');
      return frame(plainWire(404, NOT_FOUND_HEADERS, '404 page not found\n'));
    }
    exchange.violations.push(...headViolations(endpoint, request));
    try {
      const refusal = tooOld(request, context.faults.get('minimum-version'));
      if (refusal !== undefined) throw new Rejection(400, refusal);
      faults.push(...faultsOf(request, endpoint));
      exchange.faults.push(...faults.map(({ asked }) => asked));
      for (const { beforeBody } of faults) {
        if ((await beforeBody?.(request, response)) === 'answered') return undefined;
      }
      checkHead(endpoint, request);
      const rate = faults.find((fault) => fault.bodyBytesPerSecond !== undefined)?.bodyBytesPerSecond;
      const body = await readBody(request, rate ?? Number.POSITIVE_INFINITY, signal);
      let wire = await respond(endpoint, request, body, exchange, faults, signal);
      for (const fault of faults) wire = fault.wire?.(wire, endpoint.terminal) ?? wire;
      return await frame(wire);
    } catch (error) {
      if (!(error instanceof Rejection)) throw error;
      exchange.rejection = error.message;
      if (error.cause !== undefined) exchange.failure = `${error.message}: ${codeOf(error.cause)}`;
      return frame(rejectionWire(error));
    }
  }

  async function serve(
    request: IncomingMessage,
    response: ServerResponse,
    exchange: Exchange,
    signal: AbortSignal,
  ): Promise<void> {
    const faults: ArmedFault[] = [];
    const framed = await framedResponse(request, response, exchange, faults, signal);
    if (framed === undefined) return;
    await drain(request, signal);
    for (const { beforeHead } of faults) {
      if ((await beforeHead?.(request, response, signal)) === 'reset') return context.reset(request);
    }
    const steps = faults.reduce((value, fault) => fault.steps?.(value, framed) ?? value, framed.steps);
    await deliver(
      { ...framed, steps },
      {
        request,
        response,
        signal,
        reset: () => context.reset(request),
        written: () => {
          exchange.written++;
        },
      },
    );
  }

  const handle = (request: IncomingMessage, response: ServerResponse): Exchange => {
    const exchange = begin(request.method ?? '', request.url ?? '');
    const departure = new AbortController();
    response.once('close', () => {
      if (!response.writableFinished) exchange.closedEarlyAt = Date.now();
      departure.abort();
    });
    serve(request, response, exchange, departure.signal)
      .catch((error: unknown) => {
        // Either the client has left, or the source of the response failed mid-stream; only a reset can show
        // the client such a failure.
        if (!departure.signal.aborted) exchange.failure = String(error);
        context.reset(request);
      })
      .finally(() => {
        exchange.status = response.headersSent ? response.statusCode : 0;
        finish(exchange);
      });
    return exchange;
  };
  return Object.assign(handle, { exchanges: log });
}
