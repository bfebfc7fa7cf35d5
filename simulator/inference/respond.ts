/**
 * Turns a whole request into its response: applies the server's checks in their order, asks the model, and
 * encrypts.
 */
import type { IncomingMessage } from 'node:http';
import type { InferenceContext } from '../context.ts';
import { checkAdmission } from './admission.ts';
import type { Endpoint } from './endpoints.ts';
import { createSealer, type Protection, type Sealer } from './envelope.ts';
import type { Exchange } from './exchanges.ts';
import type { ArmedFault } from './faults.ts';
import { checkGpuPolicy } from './gpu-policy.ts';
import type { Model } from './model.ts';
import { Rejection } from './rejection.ts';
import { consistencyViolations, type OpenedRequest, openRequest } from './request.ts';
import { type Protect, protectWith, wireOf } from './sealed-response.ts';
import type { Wire } from './wire.ts';
import { missingProtocolHeaders, PROTOCOL_HEADERS } from './wire-rules.ts';

/** How much of a decrypted request is kept for tests, in UTF-16 units. */
const OPENED_LIMIT = 16_384;

const inClear: Protect = (text) => text;

/** Checks what the server needs before it reads a body. Throws Rejection. */
export function checkHead(endpoint: Endpoint, request: IncomingMessage): void {
  if (request.method !== endpoint.method) throw new Rejection(405, 'method not allowed');
  if (endpoint.body === 'none') return;
  if (request.headers['content-length'] === undefined) throw new Rejection(411, 'Content-Length is required');
  const missing = missingProtocolHeaders(endpoint, request);
  if (missing.length > 0) throw new Rejection(400, `missing header ${missing[0]}`);
}

function describe({ body }: OpenedRequest): string {
  if (body.kind === 'json') return body.text.slice(0, OPENED_LIMIT);
  if (body.kind === 'raw') return body.bytes.toString('latin1').slice(0, OPENED_LIMIT);
  return body.parts.map(({ name }) => name).join(' ');
}

/** Beyond this many nonces, the oldest is dropped. */
const REMEMBERED_NONCES = 100_000;

/**
 * Returns a function that remembers a nonce and tells whether it is new: a nonce must never protect two
 * requests (docs/protocol/inference.md 4).
 */
function createNonceMemory(): (nonce: Buffer) => boolean {
  const seen = new Set<string>();
  return (nonce) => {
    const hex = nonce.toString('hex');
    if (seen.has(hex)) return false;
    seen.add(hex);
    if (seen.size > REMEMBERED_NONCES) seen.delete(seen.values().next().value!);
    return true;
  };
}

/** Makes the response to one request; throws Rejection if the server refuses the request. */
export type Responder = (
  endpoint: Endpoint,
  request: IncomingMessage,
  body: Buffer,
  exchange: Exchange,
  faults: readonly ArmedFault[],
  signal: AbortSignal,
) => Promise<Wire>;

export function createResponder(context: InferenceContext, model: Model): Responder {
  const noteNonce = createNonceMemory();
  const lookup = (id: string): Uint8Array | undefined => context.secrets.lookup(id);

  /**
   * A sealer that looks the secret up again for each message, as the server does (docs/protocol/inference.md
   * 10).
   */
  function sealerOf(protection: Protection): Sealer {
    const seal = createSealer(protection);
    const { secretId } = protection;
    return (plaintext) => {
      if (lookup(secretId) !== undefined) return seal(plaintext);
      throw new Rejection(500, `encrypting response: getting secret: no secret for ID "${secretId}"`);
    };
  }

  function checkPolicy(request: IncomingMessage, faults: readonly ArmedFault[]): void {
    const header = (name: string): string | undefined => request.headers[name]?.toString();
    const headers = { policy: header(PROTOCOL_HEADERS.ocspPolicy), mac: header(PROTOCOL_HEADERS.ocspMac) };
    const gpu = faults.find((fault) => fault.gpu !== undefined)?.gpu ?? { status: 'good' };
    checkGpuPolicy(headers, header(PROTOCOL_HEADERS.secretId) ?? '', lookup, gpu);
  }

  function open(
    endpoint: Endpoint,
    request: IncomingMessage,
    body: Buffer,
    exchange: Exchange,
  ): OpenedRequest {
    const opened = openRequest(endpoint, request.url ?? '', request.headers, body, lookup);
    exchange.model = opened.model;
    exchange.secretId = opened.protection.secretId;
    exchange.opened = describe(opened);
    exchange.violations.push(...consistencyViolations(opened, request.headers));
    if (!noteNonce(opened.protection.nonce)) exchange.violations.push('a nonce of an earlier request');
    return opened;
  }

  return async (endpoint, request, body, exchange, faults, signal) => {
    const instead = faults.find((fault) => fault.instead !== undefined)?.instead;
    if (instead !== undefined) return instead(request);
    const [, key] = /^Bearer (.+)$/.exec(request.headers.authorization ?? '') ?? [];
    if (!context.apiKeys(key)) throw new Rejection(401, 'invalid API key');
    if (endpoint.body === 'none') {
      return wireOf(await model.list(endpoint, request.url ?? '', signal), inClear);
    }

    if (endpoint.policyChecked) checkPolicy(request, faults);
    const opened = open(endpoint, request, body, exchange);
    checkAdmission(opened);

    let response = await model.respond(opened, signal);
    let { nonce } = opened.protection;
    for (const fault of faults) {
      response = fault.modelResponse?.(response) ?? response;
      nonce = fault.nonce?.(nonce) ?? nonce;
    }
    const unprotected = faults.some((fault) => fault.unprotected);
    const seal = sealerOf({ ...opened.protection, nonce });
    return wireOf(response, unprotected ? inClear : protectWith(endpoint, seal));
  };
}
