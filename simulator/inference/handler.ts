/** The life of one inference request in the simulated deployment. */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { InferenceContext } from '../context.ts';
import { checkHead, createAnswerer } from './answer.ts';
import { drain, readBody } from './body.ts';
import { endpointOf } from './endpoints.ts';
import { createExchangeLog, type Exchange, type ExchangeLog } from './exchanges.ts';
import { type ArmedFault, createFaultPicker } from './faults.ts';
import { createModel } from './model.ts';
import { Rejection } from './rejection.ts';
import { plainWire, rejectionWire } from './response.ts';
import { deliver, type Framed, frame } from './wire.ts';
import { headViolations } from './wire-rules.ts';

/** Handles every request of the inference API, and keeps account of them. */
export interface InferenceHandler {
  (request: IncomingMessage, response: ServerResponse): void;
  readonly exchanges: ExchangeLog;
}

const NOT_FOUND_HEADERS = {
  'Content-Type': 'text/plain; charset=utf-8',
  'X-Content-Type-Options': 'nosniff',
};

/** Throws config_invalid if the transcripts of `context.model` cannot be read. */
export function createInferenceHandler(context: InferenceContext): InferenceHandler {
  const { log, begin, finish } = createExchangeLog();
  const answer = createAnswerer(context, createModel(context.model, context.now));
  const faultsOf = createFaultPicker(context.faults);

  /** The answer of the server, whatever it is; undefined where a fault has answered already. */
  async function respond(
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
      faults.push(...faultsOf(request));
      exchange.faults.push(...faults.map(({ asked }) => asked));
      for (const { beforeBody } of faults) {
        if ((await beforeBody?.(request, response)) === 'answered') return undefined;
      }
      checkHead(endpoint, request);
      const rate = faults.find((fault) => fault.bodyBytesPerSecond !== undefined)?.bodyBytesPerSecond;
      const body = await readBody(request, rate ?? Number.POSITIVE_INFINITY, signal);
      let wire = await answer(endpoint, request, body, exchange, faults, signal);
      for (const fault of faults) wire = fault.wire?.(wire, endpoint.terminal) ?? wire;
      return await frame(wire);
    } catch (error) {
      if (!(error instanceof Rejection)) throw error;
      exchange.rejection = error.message;
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
    const framed = await respond(request, response, exchange, faults, signal);
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

  const handle = (request: IncomingMessage, response: ServerResponse): void => {
    const exchange = begin(request.method ?? '', request.url ?? '');
    const departure = new AbortController();
    response.once('close', () => {
      if (!response.writableFinished) exchange.closedEarlyAt = Date.now();
      departure.abort();
    });
    serve(request, response, exchange, departure.signal)
      .catch((error: unknown) => {
        // Either the client has left, or the source of an answer broke: nothing more can be said to it.
        if (!departure.signal.aborted) exchange.failure = String(error);
        context.reset(request);
      })
      .finally(() => {
        exchange.status = response.headersSent ? response.statusCode : 0;
        finish(exchange);
      });
  };
  return Object.assign(handle, { exchanges: log });
}
