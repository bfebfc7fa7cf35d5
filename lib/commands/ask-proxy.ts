/** What commands ask a running proxy: whether it is ready, and the routes of its admin listener. */
import { get as getPlain, type IncomingHttpHeaders, type IncomingMessage } from 'node:http';
import { get as getTls, type RequestOptions } from 'node:https';
import { abortAfter, type Clock } from '../clock.ts';
import { invalid, socketPath } from '../config/values.ts';
import { reachableHost, urlHost } from '../network/addresses.ts';

export interface Address {
  readonly host: string;
  readonly port: number;
}

interface Answer {
  readonly status: number | undefined;
  readonly headers: IncomingHttpHeaders;
  readonly body: string;
}

const MOST_BYTES = 64 * 1024 * 1024;

/**
 * The response to a GET to a proxy on this network. `fetch` would refuse some ports, and go through an HTTP
 * proxy of the environment. Throws what Node throws, and if the response is not there in time or is too long.
 */
export async function getText(clock: Clock, target: RequestOptions, timeoutMs: number): Promise<Answer> {
  const signal = abortAfter(clock, timeoutMs);
  const get = target.protocol === 'https:' ? getTls : getPlain;
  try {
    const response = await new Promise<IncomingMessage>((resolve, reject) => {
      get({ ...target, agent: false, signal }, resolve).on('error', reject);
    });
    let body = '';
    response.setEncoding('utf8');
    for await (const text of response) {
      body += text;
      if (body.length > MOST_BYTES) throw new Error('the answer is too long');
    }
    return { status: response.statusCode, headers: response.headers, body };
  } catch (thrown) {
    throw signal.aborted ? new Error(`no answer within ${timeoutMs} ms`) : thrown;
  }
}

export function parsedJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

export const nameOf = ({ host, port }: Address): string => `${host} port ${port}`;

/**
 * The JSON of one route of the admin listener at `address`. Throws config_invalid with a message that says
 * what to do.
 */
export async function askFor(address: Address, path: string, clock: Clock): Promise<unknown> {
  const asked = { host: reachableHost(address.host), port: address.port };
  let answer: Answer;
  try {
    answer = await getText(clock, { ...asked, path }, clock.times.statusTimeout);
  } catch (thrown) {
    const { code, message } = thrown as NodeJS.ErrnoException;
    if (code === 'ECONNREFUSED') {
      throw invalid(
        `nothing listens on ${nameOf(asked)} (ECONNREFUSED): start the proxy with --admin-address ${urlHost(address.host)}:${address.port}, ` +
          'or give the address that it was started with',
      );
    }
    throw invalid(`${nameOf(asked)} cannot be asked: ${message}; give the --admin-address of the proxy`);
  }
  const parsed = answer.status === 200 ? parsedJson(answer.body) : undefined;
  if (parsed !== undefined) return parsed;
  throw invalid(
    `the program that listens on ${nameOf(asked)} does not serve ${path} (status ${answer.status}): give the --admin-address of the proxy, ` +
      'not the port for applications; the proxy and this command must have the same version',
  );
}

/** Characters of /readyz that are shown. */
const LONGEST_REASON = 1_000;

interface Readiness {
  readonly ready: boolean;
  /** Message for a person. */
  readonly message: string;
  readonly failure?: 'nothing-listens';
}

/**
 * Asks a proxy on this machine whether it is ready. `listenAddress`: as configured; if it means every
 * interface, the request goes to loopback. Resolves with the text of /readyz, or with the reason why the
 * proxy could not be asked; never rejects.
 */
export async function probe({
  listenAddress,
  port,
  tls,
  clock,
}: {
  readonly listenAddress: string;
  readonly port: number;
  readonly tls: boolean;
  readonly clock: Clock;
}): Promise<Readiness> {
  const socket = socketPath(listenAddress);
  const address = { host: reachableHost(listenAddress), port };
  const [where, target, flags] =
    socket === undefined
      ? [nameOf(address), address, '--listen-address and --port']
      : [socket, { socketPath: socket }, '--listen-address'];
  const which = `give the ${flags} of the proxy`;
  try {
    // The certificate is the operator's own and need not name loopback; this request holds no secret.
    const overTls = { protocol: 'https:', rejectUnauthorized: false };
    const asked = { ...target, path: '/readyz', ...(tls && overTls) };
    const { status, headers, body } = await getText(clock, asked, clock.times.healthcheckTimeout);
    // A request for /readyz counts as malformed only if it is plain HTTP on a TLS port.
    if (!tls && headers['privatemode-proxy-error'] === 'malformed_request') {
      const message = `the proxy on ${where} serves HTTPS: give its --tls-cert-path here too`;
      return { ready: false, message };
    }
    if (status === 204) return { ready: true, message: 'ready' };
    return { ready: false, message: `not ready (status ${status}): ${body.trim().slice(0, LONGEST_REASON)}` };
  } catch (thrown) {
    const { code, message } = thrown as NodeJS.ErrnoException;
    if (code === 'ECONNREFUSED' || (socket !== undefined && code === 'ENOENT')) {
      const nothing = `nothing listens on ${where} (${code}); ${which}`;
      return { ready: false, message: nothing, failure: 'nothing-listens' };
    }
    const said =
      tls && code === 'EPROTO'
        ? `speaks no TLS; leave out --tls-cert-path, or ${which}`
        : `gave no answer (${code ?? message}); ${which}`;
    return { ready: false, message: `what listens on ${where} ${said}` };
  }
}
