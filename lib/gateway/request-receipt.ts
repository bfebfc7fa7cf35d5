/** The receipt of a request, made when its exchange is over (docs/receipts.md). */
import type { TokenUsage } from '../pipeline/token-usage.ts';
import type { ReceiptOutcome, RequestReceipt } from '../receipts/receipt.ts';
import type { Epoch } from '../session/session.ts';
import type { RequestOutcome } from './request-log.ts';
import type { Exchange } from './request-state.ts';

/** The outcome in the receipt for each outcome in the log. */
const OUTCOMES: Readonly<Record<RequestOutcome, ReceiptOutcome>> = {
  answered: 'complete',
  service_error: 'failed',
  refused: 'refused',
  failed: 'failed',
  broken_off: 'truncated',
  client_aborted: 'aborted',
};

/** Adds the receipt of an exchange that is over to the receipt log, if the exchange gets one. */
export function addReceipt(exchange: Exchange, outcome: RequestOutcome): void {
  const { deps, caller, res, accounts } = exchange;
  const { stats, receipt } = accounts;
  if (receipt === undefined) return;
  const { startedAt, endedAt, usage, error } = stats;
  const { endpoint, request, response, epoch } = receipt;
  deps.receipts?.add({
    id: caller.requestId,
    time: new Date(Date.now() - (endedAt - startedAt)).toISOString(),
    durationMs: Math.round(endedAt - startedAt),
    endpoint,
    client: caller.client?.name ?? null,
    model: stats.model ?? null,
    status: res.headersSent ? res.statusCode : null,
    request: request.digest(),
    response: { ...response.digest(), events: stats.events },
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

const epochOf = ({
  secretId,
  manifestSha256,
  verdictSha256,
  exchangeSha256,
}: Epoch): RequestReceipt['epoch'] => ({
  secretId,
  manifestSha256,
  verdictSha256,
  ...(exchangeSha256 === undefined ? {} : { exchangeSha256 }),
});
