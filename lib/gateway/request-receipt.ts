/** The receipt of a request: what is noted for it along the exchange, and what it says at the end (docs/receipts.md). */
import { AUDIT_HEADERS } from '../exchange/headers.ts';
import type { TokenUsage } from '../pipeline/token-usage.ts';
import type { Epoch } from '../session/session.ts';
import type { ReceiptOutcome, RequestReceipt } from '../transparency/receipt.ts';
import { BodyHash, type DigestedResponse } from './digested-response.ts';
import { addHeaders, type Exchange } from './exchange.ts';
import type { Outcome } from './request-log.ts';

/**
 * The request gets a receipt, and its response the header that names it. `endpoint`: its id; null where the request is not admitted: such
 * ones are only counted (lib/transparency/receipt-log.ts), so there is no line to name.
 */
export function beginReceipt(exchange: Exchange, endpoint: string | null): void {
  const { deps, requestId } = exchange;
  if (deps.receipts === undefined) return;
  exchange.receipt = { endpoint, request: new BodyHash(), epoch: undefined };
  if (endpoint === null) return;
  addHeaders(exchange, { last: { [AUDIT_HEADERS.receipt]: `${deps.receipts.instance}/${requestId}` } });
}

/** From the outcomes of the log to those of receipts. */
const OUTCOMES: Readonly<Record<Outcome, ReceiptOutcome>> = {
  answered: 'complete',
  service_error: 'failed',
  refused: 'refused',
  failed: 'failed',
  broken_off: 'truncated',
  client_aborted: 'aborted',
};

/** Hands over the receipt of an exchange that is over, where it gets one. */
export function addReceipt(exchange: Exchange, outcome: Outcome): void {
  const { deps, requestId, res, stats, receipt, client } = exchange;
  if (receipt === undefined) return;
  const { startedAt, endedAt, usage, error } = stats;
  const { endpoint, request, epoch } = receipt;
  const response = (res as DigestedResponse).body.digest();
  deps.receipts?.add({
    id: requestId,
    time: new Date(Date.now() - (endedAt - startedAt)).toISOString(),
    durationMs: Math.round(endedAt - startedAt),
    endpoint,
    client: client?.name ?? null,
    model: stats.model ?? null,
    status: res.headersSent ? res.statusCode : null,
    request: request.digest(),
    response: { ...response, events: stats.events },
    tokens: usage === undefined ? null : tokensOf(usage),
    epoch: epoch === undefined ? null : epochOf(epoch),
    outcome: OUTCOMES[outcome],
    code: error?.code ?? null,
  });
}

const tokensOf = ({ prompt, completion, cached }: TokenUsage): RequestReceipt['tokens'] => ({
  in: prompt ?? null,
  out: completion ?? null,
  cached: cached ?? null,
});

const epochOf = ({ secretId, manifestSha256, verdictSha256 }: Epoch): RequestReceipt['epoch'] => ({
  secretId,
  manifestSha256,
  verdictSha256,
});
