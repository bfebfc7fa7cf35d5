/** One attempt: the encrypted request, by the given fetch, and the head of its response. */
import type { EndpointMatch } from '../api/match-endpoint.ts';
import { protectionHeaders, type RequestCipher } from '../envelope/protection.ts';
import type { PrivatemodeError } from '../errors.ts';
import { type EncryptedBody, encryptBody, sealedSlices } from '../pipeline/encrypt-body.ts';
import type { SaltedBody } from '../pipeline/inject-salt.ts';
import { requestHeaders } from '../pipeline/rewrite-auth.ts';
import type { Epoch } from '../session/session.ts';
import { HERE_ONLY, unreachable } from './fetch-call.ts';
import type { ClientConfig } from './options.ts';

export interface OutgoingAttempt {
  readonly match: EndpointMatch;
  readonly epoch: Epoch;
  readonly cipher: RequestCipher | undefined;
  readonly body: SaltedBody | undefined;
  readonly requestId: string;
}

/** What an attempt led to. */
export interface Attempt {
  readonly epoch: Epoch;
  readonly cipher: RequestCipher | undefined;
  /** Undefined where none came: `failure` says why. */
  readonly response: Response | undefined;
  readonly failure: PrivatemodeError | undefined;
  /** The body of a plain 500, which may ask for a retry. */
  readonly plainBody: Uint8Array | undefined;
  /** Whether the connection was reset before a response, which only some runtimes tell. */
  readonly connectionReset: boolean;
  /** Ends the connection of the response. */
  readonly abort: () => void;
}

/** Sends one attempt. Rejects with the reason of the request's signal. */
export async function send(
  config: ClientConfig,
  request: Request,
  outgoing: OutgoingAttempt,
): Promise<Attempt> {
  const { match, epoch, cipher, body, requestId } = outgoing;
  const encrypted = body && cipher && encryptBody(body, cipher);
  const headers = requestHeaders({
    client: 'SDK',
    host: undefined,
    rawHeaders: [...request.headers].flat(),
    requestId,
    authorization: `Bearer ${config.apiKey}`,
  });
  if (match.endpoint.encrypted) {
    const { secretId, key } = epoch;
    const { model, shardKey } = body ?? {};
    const protection = { secretId, key, model, shardKey, gpuPolicy: config.gpuPolicy, nowMs: Date.now() };
    Object.assign(headers, protectionHeaders(protection));
  }
  if (encrypted === undefined) delete headers['content-type'];
  else if (encrypted.contentType !== undefined) headers['content-type'] = encrypted.contentType;

  const control = new AbortController();
  const signal = AbortSignal.any([control.signal, request.signal]);
  const sent = { epoch, cipher, abort: () => control.abort() };
  try {
    const response = await config.fetch(new URL(match.target, config.apiEndpoint), {
      method: request.method,
      headers,
      ...(encrypted && { body: bytesOf(encrypted) }),
      signal,
      ...HERE_ONLY,
    });
    const plain = response.status === 500 && response.headers.get('privatemode-encrypted') === 'false';
    const plainBody = plain ? new Uint8Array(await response.arrayBuffer()) : undefined;
    return { ...sent, response, plainBody, failure: undefined, connectionReset: false };
  } catch (thrown) {
    request.signal.throwIfAborted();
    const connectionReset = (thrown as { cause?: { code?: unknown } }).cause?.code === 'ECONNRESET';
    const failure = unreachable(config.apiEndpoint.host, thrown);
    return { ...sent, response: undefined, plainBody: undefined, failure, connectionReset };
  }
}

/** All of the body: browsers send no stream over HTTP/1.1. */
function bytesOf(encrypted: EncryptedBody): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(encrypted.contentLength);
  let filled = 0;
  for (const slice of sealedSlices(encrypted, [])) {
    bytes.set(slice, filled);
    filled += slice.length;
  }
  return bytes;
}
