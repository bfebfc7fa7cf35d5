/** The service refuses a key that the operator configured: what the application is told, and what the operator is shown. */
import { PrivatemodeError } from '../errors.ts';
import type { Exchange } from './exchange.ts';

/** Where a key of the operator that the request left with comes from, for the operator; never the key itself. */
export const ownKeyOrigin = ({ deps, caller }: Exchange): string | undefined =>
  caller.client?.apiKey === undefined
    ? deps.key.origin?.()
    : 'the entry of the client in the file of --clients';

/** Notes the service's 401 to a key of the operator, and returns the error for it. Nothing authenticates that 401, so the session does not hear of it. */
export function ownKeyRefused({ deps }: Exchange): PrivatemodeError {
  deps.observeOwnKey?.('refused');
  return new PrivatemodeError('api_key_rejected', 'the service rejects the API key');
}

/**
 * The error that the application gets: api_key_rejected in other words, any other error unchanged. With --clients the application has a
 * token and no key, and a 401 would make people look at their token, so the code becomes service_key_rejected. Without --clients, the
 * message names where the configured key comes from.
 */
export function aboutOwnKey({ deps, caller }: Exchange, error: PrivatemodeError): PrivatemodeError {
  const { code, message, remedy } = error;
  if (code !== 'api_key_rejected') return error;
  if (caller.client !== undefined) {
    const told = 'the service rejects the key of this gateway';
    return new PrivatemodeError('service_key_rejected', told, { cause: error });
  }
  const origin = deps.key.value() === undefined ? undefined : deps.key.origin?.();
  if (origin === undefined) return error;
  return new PrivatemodeError(code, `${message} (the key of ${origin})`, { cause: error, remedy });
}
