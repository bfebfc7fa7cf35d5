/**
 * The response to `POST /v1/messages/count_tokens`. The service counts no tokens, and agents use the number to decide when to
 * compact a conversation: so it is estimated here, and nothing is forwarded.
 */
import { INERT_HEADERS, requestIdHeader } from '../api/error-format.ts';
import { asPrivatemodeError } from '../errors.ts';
import { createTokenEstimate } from '../pipeline/token-estimate.ts';
import { type Exchange, type GatewayDeps, newRequestStats } from './exchange.ts';
import { ClientGone, receiveBody } from './receive-body.ts';
import { respondError, respondWhole } from './write-response.ts';

type EstimateRequest = Pick<Exchange, 'req' | 'res' | 'requestId' | 'log' | 'signal'> & {
  /** For whatever response. */
  readonly headers: Exchange['extraHeaders'];
};

/** Responds with the estimate, or with the error of the body. Never rejects. */
export async function respondTokenEstimate(deps: GatewayDeps, request: EstimateRequest): Promise<void> {
  const { req, res, requestId, log, headers, signal } = request;
  const reservation = deps.uploadBudget.open();
  res.once('close', reservation.release);
  try {
    const estimate = await receiveBody(req, createTokenEstimate(), deps.limits, {
      stats: newRequestStats(),
      signal,
      reservation,
    });
    estimate.release();
    respondWhole(req, res, {
      status: 200,
      headers: {
        'content-type': 'application/json',
        'cache-control': 'no-store',
        'privatemode-proxy-estimate': 'true',
        ...requestIdHeader({ format: 'anthropic', requestId }),
        ...INERT_HEADERS,
        ...headers,
      },
      body: JSON.stringify({ input_tokens: estimate.tokens }),
    });
  } catch (thrown) {
    if (thrown instanceof ClientGone || res.destroyed) {
      res.destroy();
      return;
    }
    const error = asPrivatemodeError(thrown);
    log.info({ code: error.code, status: error.status, reason: error.message }, 'Request refused');
    respondError(req, res, error, { format: 'anthropic', requestId }, { headers });
  }
}
