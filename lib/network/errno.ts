/**
 * The proxy's code and message for each error code with which Node or undici fail before a response begins.
 */
import type { ErrorCode } from '../errors.ts';

type Words = readonly [code: ErrorCode, text: string];
/**
 * `host`: the text on the control path, which follows the name of the host. `service`: the text on the data
 * path.
 */
type Meaning = Readonly<Partial<Record<'host' | 'service', Words>>>;

export const CLOSED_DURING_UPLOAD: Words = [
  'upstream_closed_during_upload',
  'the service closed the connection while the request was sent',
];
export const NO_RESPONSE: Words = ['first_byte_timeout', 'the service did not begin to answer in time'];
export const RESET = {
  host: ['upstream_reset', 'closed the connection before it answered'],
  service: ['upstream_reset', 'the service closed the connection before it answered'],
} as const satisfies Meaning;
const CONNECT_TIMEOUT: Meaning = {
  host: ['upstream_connect_timeout', 'could not be connected to in time'],
  service: ['upstream_connect_timeout', 'the connection to the service timed out'],
};
const NO_ROUTE: Meaning = { service: ['upstream_unreachable', 'no route to the service'] };
const NOT_TLS: Meaning = { host: ['upstream_unreachable', 'does not speak TLS'] };
const exhausted = (what: string): Meaning => ({
  service: ['resources_exhausted', `no ${what} is left for a connection to the service`],
});

/** What the codes of Node's and undici's errors mean before there is a response. */
export const ERRNO: Readonly<Record<string, Meaning>> = {
  ECONNREFUSED: {
    host: ['upstream_unreachable', 'refused the connection'],
    service: ['upstream_unreachable', 'the service refused the connection'],
  },
  ENOTFOUND: {
    host: ['upstream_unreachable', 'does not resolve'],
    service: ['upstream_unreachable', 'the host name of the service does not resolve'],
  },
  EAI_AGAIN: {
    host: ['upstream_unreachable', 'does not resolve now'],
    service: ['upstream_unreachable', 'the host name of the service does not resolve now'],
  },
  EHOSTUNREACH: NO_ROUTE,
  ENETUNREACH: NO_ROUTE,
  ERR_SSL_WRONG_VERSION_NUMBER: NOT_TLS,
  ERR_SSL_PACKET_LENGTH_TOO_LONG: NOT_TLS,
  ECONNRESET: RESET,
  EPIPE: { host: RESET.host, service: CLOSED_DURING_UPLOAD },
  UND_ERR_SOCKET: RESET,
  ETIMEDOUT: CONNECT_TIMEOUT,
  UND_ERR_CONNECT_TIMEOUT: CONNECT_TIMEOUT,
  EMFILE: exhausted('file descriptor'),
  ENFILE: exhausted('file descriptor'),
  EADDRNOTAVAIL: exhausted('local port'),
};
