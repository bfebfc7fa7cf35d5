/** What the application and the operator learn if the service refuses a key that the operator configured. */
import { PrivatemodeError } from '../errors.ts';
import type { Exchange } from './request-state.ts';

/** Where the key comes from that the request left with: a text for the operator, never the key itself. */
export function keyOriginOf(
  exchange: Exchange,
  { ownKey, hasKey }: { readonly ownKey: string | undefined; readonly hasKey: boolean },
): string | undefined {
  if (ownKey === undefined) return hasKey ? 'the request itself' : 'none: the request left without a key';
  return keyOwner(exchange) === undefined
    ? exchange.deps.key.origin?.()
    : 'the entry of the client in the file of --clients';
}

/** The client whose entry has the key of the operator that the request left with; undefined: none. */
const keyOwner = ({ caller: { client } }: Exchange): string | undefined =>
  client?.apiKey === undefined ? undefined : client.name;

/** Notes what the service did with the key of the operator that the request left with. */
export const noteOwnKey = (exchange: Exchange, what: 'refused' | 'answered', key: string): void =>
  exchange.deps.ownKeys?.[what](keyOwner(exchange), key);

/**
 * Notes the service's 401 to a key of the operator, and returns the error for it. Nothing authenticates that
 * 401, so the session does not hear of it.
 */
export function ownKeyRefused(exchange: Exchange, key: string): PrivatemodeError {
  noteOwnKey(exchange, 'refused', key);
  return new PrivatemodeError('api_key_rejected', 'the service rejects the API key');
}

/**
 * The error that the application gets. api_key_rejected is rewritten; any other error stays as it is. With
 * --clients the application has a token and no key, and a 401 would make people look at their token, so the
 * code becomes service_key_rejected. Without --clients, the message names where the configured key comes
 * from.
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
