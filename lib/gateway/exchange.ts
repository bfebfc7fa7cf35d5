/** One request of an application and its response, whole. */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Offered } from '../api/endpoints.ts';
import type { ErrorFormat } from '../api/error-format.ts';
import type { EndpointMatch } from '../api/match-endpoint.ts';
import { newRequestId } from '../api/request-id.ts';
import type { Client } from '../clients/authenticate.ts';
import { AUDIT_HEADERS, leftOutHeader } from '../exchange/headers.ts';
import type { Logger } from '../observe/log.ts';
import type { Asked } from '../pipeline/decrypter.ts';
import type { Translator } from '../responses/translator.ts';
import { Accounts } from './accounts.ts';
import { type Admission, admit } from './admission.ts';
import { corsHeaders } from './cors.ts';
import type { GatewayDeps } from './deps.ts';
import { Life } from './life.ts';
import type { HeldRoom } from './memory-budget.ts';
import type { ObservedResponse } from './observed-response.ts';

/** Its parts are made by admission, and nobody replaces them. `life` and `accounts` change by their methods. */
export interface Exchange {
  readonly deps: GatewayDeps;
  readonly req: IncomingMessage;
  readonly res: ServerResponse;
  readonly caller: Caller;
  /** Where it is forwarded; undefined: answered here. */
  readonly match: EndpointMatch | undefined;
  readonly life: Life;
  readonly accounts: Accounts;
}

/** An exchange with the service. */
export interface ForwardedExchange extends Exchange {
  readonly match: EndpointMatch;
}

/** Who asks, and how that is answered. */
export interface Caller {
  readonly requestId: string;
  /** Has the ids of the request in each line, and with --clients the client's name. */
  readonly log: Logger;
  /** With --clients. */
  readonly client: Client | undefined;
  /** How the application understands errors. */
  readonly format: ErrorFormat;
  /** Go into every response: CORS headers, the id that the application gave its request, the name of its receipt. */
  readonly headers: Readonly<Record<string, string>>;
}

/** What a request asks for. Made by taking it in (receive-body.ts), and passed along. */
export interface Requested {
  /** The kind of response that the body asks for. */
  readonly asked: Asked;
  /** Translates the response; undefined: it goes to the application as it was decrypted. */
  readonly translator: Translator | undefined;
  /** Memory for what its response repeats of the request. */
  readonly repeated?: HeldRoom | undefined;
  /** The model that is asked about, where an alias covers it: the service is asked for its list, and the entry made of that. */
  readonly aboutModel: string | undefined;
}

/** Nothing that could end a header or a line of a log, or hold a prompt. */
const CLIENT_ID = /^[\w.:-]{1,128}$/;

/** Admission threw: the program has a fault. */
interface Fault {
  readonly kind: 'fault';
  readonly thrown: unknown;
}

/**
 * Begins an exchange: admits its request, or not. It has two ids: its own, and the one that the application gave it in `x-request-id`,
 * if any. Responses show the latter where the application looks for it, with ours beside it; it never goes to the remote, because it may
 * name a person or a session. An `x-request-id` that was sent more than once counts as none. Never throws.
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
      receiptOf === undefined ? undefined : { endpoint: receiptOf, res: res as ObservedResponse },
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
 * The endpoint that the receipt of a request names; undefined: it gets none. Null for one that is not admitted: such ones are only counted
 * (lib/transparency/receipt-log.ts), so there is no line for a header to name.
 */
function endpointOfReceipt(admission: Admission | Fault): string | null | undefined {
  if (admission.kind === 'endpoint') return admission.endpoint.id;
  if (admission.kind === 'refusal') return null;
  return admission.kind === 'local' && admission.id === 'count_tokens' ? admission.id : undefined;
}

/** Our headers of any response: those of the caller and, once the body was translated, the tools that were left out. */
export const ownHeaders = ({ caller, accounts }: Exchange): Readonly<Record<string, string>> => {
  const { toolsLeftOut } = accounts.noted;
  return toolsLeftOut === undefined ? caller.headers : { ...caller.headers, ...leftOutHeader(toolsLeftOut) };
};
