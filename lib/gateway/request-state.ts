/** The state of an exchange: one request of an application with its whole response. */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Client } from '../access/authenticate.ts';
import type { Offered } from '../api/endpoints.ts';
import type { ErrorFormat } from '../api/error-response.ts';
import { newRequestId } from '../api/ids.ts';
import type { EndpointMatch } from '../api/match-endpoint.ts';
import { AUDIT_HEADERS, leftOutHeader } from '../http-rules/headers.ts';
import type { Logger } from '../observe/log.ts';
import type { RequestFacts } from '../pipeline/decrypter.ts';
import type { Translator } from '../responses-api/translator.ts';
import { Accounts } from './accounts.ts';
import { type Admission, admit } from './admission.ts';
import type { AppResponse } from './app-response.ts';
import { corsHeaders } from './cors.ts';
import type { GatewayDeps } from './deps.ts';
import { Life } from './life.ts';
import type { HeldRoom } from './memory-budget.ts';

/** `newExchange` makes its parts, and nobody replaces them. `life` and `accounts` change by their methods. */
export interface Exchange {
  readonly deps: GatewayDeps;
  readonly req: IncomingMessage;
  readonly res: ServerResponse;
  readonly caller: Caller;
  /** The endpoint that the request is forwarded to; undefined: the proxy responds by itself. */
  readonly match: EndpointMatch | undefined;
  readonly life: Life;
  readonly accounts: Accounts;
}

/** An exchange whose request is forwarded to the service. */
export interface ForwardedExchange extends Exchange {
  readonly match: EndpointMatch;
}

/** Who sends the request, and how the proxy responds to it. */
export interface Caller {
  readonly requestId: string;
  /** Has the ids of the request in each line, and with --clients the client's name. */
  readonly log: Logger;
  /** The client that was identified; undefined without --clients. */
  readonly client: Client | undefined;
  /** The error format that the application understands. */
  readonly format: ErrorFormat;
  /**
   * Go into every response: CORS headers, the id that the application gave its request, the name of its
   * receipt.
   */
  readonly headers: Readonly<Record<string, string>>;
}

/** What a request asks for. `takeIn` (receive-body.ts) makes it, and the later steps get it. */
export interface Requested {
  /** The kind of response that the body asks for. */
  readonly asked: RequestFacts;
  /** Translates the response; undefined: it goes to the application as it was decrypted. */
  readonly translator: Translator | undefined;
  /** Memory for the parts of the request that its response repeats. */
  readonly repeated?: HeldRoom | undefined;
}

/** An id that can neither end a header or a line of the log, nor hold a prompt. */
const CLIENT_ID = /^[\w.:-]{1,128}$/;

/** Admission threw: the program has a fault. */
interface Fault {
  readonly kind: 'fault';
  readonly thrown: unknown;
}

/**
 * Begins an exchange, and decides whether its request is admitted. A request has two ids: ours and, if the
 * application gave it one in `x-request-id`, that one. Responses show the application's id where the
 * application looks for it, with ours beside it. The application's id never goes to the service, because it
 * may name a person or a session. An `x-request-id` that was sent more than once counts as none. Never
 * throws.
 */
export function newExchange(
  deps: GatewayDeps,
  { req, res, offered }: Pick<Exchange, 'req' | 'res'> & { readonly offered: readonly Offered[] },
): { readonly exchange: Exchange; readonly admission: Admission | Fault } {
  const requestId = newRequestId('proxy');
  const sent = req.headers['x-request-id'];
  const clientRequestId = typeof sent === 'string' && CLIENT_ID.test(sent) ? sent : undefined;
  const ids: Record<string, string> = clientRequestId
    ? { 'x-request-id': clientRequestId, [AUDIT_HEADERS.requestId]: requestId }
    : {};
  const { admission, client, cors } = admitted(deps, req, offered);
  const receiptOf = deps.receipts && endpointOfReceipt(admission);
  const receipt: Record<string, string> = receiptOf
    ? { [AUDIT_HEADERS.receipt]: `${deps.receipts?.instance}/${requestId}` }
    : {};
  const log = deps.log.child({ requestId, clientRequestId, client: client?.name });
  const exchange: Exchange = {
    deps,
    req,
    res,
    caller: {
      requestId,
      log,
      client,
      format: admission.kind === 'fault' ? 'plain' : admission.format,
      headers: { ...cors, ...ids, ...receipt },
    },
    match: admission.kind === 'endpoint' ? admission : undefined,
    life: new Life(res),
    accounts: new Accounts(
      { log, counters: deps.metrics.counters },
      receiptOf === undefined ? undefined : { endpoint: receiptOf, res: res as AppResponse },
    ),
  };
  return { exchange, admission };
}

function admitted(deps: GatewayDeps, req: IncomingMessage, offered: readonly Offered[]) {
  try {
    const policy = deps.cors();
    const keys = {
      clients: deps.clients,
      configuredKey: deps.key.value,
      fallback: deps.settings.apiKeyFallback,
    };
    return { ...admit(req, policy, { offered, ...keys }), cors: corsHeaders(req.headers.origin, policy) };
  } catch (thrown) {
    return { admission: { kind: 'fault', thrown } as const, client: undefined, cors: {} };
  }
}

/**
 * The endpoint that the receipt of a request names; undefined: the request gets no receipt. Null for a
 * request that is not admitted: such requests are only counted (lib/receipts/receipt-log.ts), so there is no
 * receipt that a header could name.
 */
function endpointOfReceipt(admission: Admission | Fault): string | null | undefined {
  if (admission.kind === 'endpoint') return admission.endpoint.id;
  if (admission.kind === 'refusal') return null;
  return admission.kind === 'local' && admission.id === 'count_tokens' ? admission.id : undefined;
}

/**
 * The headers that we add to any response: those of the caller and, once the body was translated, the tools
 * that the translation left out.
 */
export const ownHeaders = ({ caller, accounts }: Exchange): Readonly<Record<string, string>> => {
  const { toolsLeftOut } = accounts.noted;
  return toolsLeftOut === undefined ? caller.headers : { ...caller.headers, ...leftOutHeader(toolsLeftOut) };
};
