/** Sends the requests of commands to a running proxy. */
import { get as getPlain, type IncomingHttpHeaders, type IncomingMessage } from 'node:http';
import { get as getTls, type RequestOptions } from 'node:https';
import { urlToHttpOptions } from 'node:url';
import type { Clock } from '../clock.ts';
import { type HostPort, invalid } from '../config/values.ts';
import { reachableHost, urlHost } from '../network/addresses.ts';
import type { StatusReport } from '../observe/status-report.ts';
import { printable } from '../text.ts';

interface Answer {
  readonly status: number | undefined;
  readonly headers: IncomingHttpHeaders;
  readonly body: string;
}

const MOST_BYTES = 64 * 1024 * 1024;

/**
 * Sends a GET to a proxy on this network, and returns the response. `fetch` is not used: it refuses some
 * ports, and obeys proxy variables. Throws Node's errors, and an error if the response is late or too long.
 */
export async function getText(clock: Clock, target: RequestOptions, timeoutMs: number): Promise<Answer> {
  const control = new AbortController();
  const { signal } = control;
  clock.after(timeoutMs, () => control.abort());
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

/**
 * Asks the admin listener at `address` for its report, and returns what `read` makes of the report. Throws
 * config_invalid with a message that says what to do.
 */
export async function askStatus<T>(
  { host, port }: HostPort,
  clock: Clock,
  read: (report: StatusReport) => T,
): Promise<T> {
  const target = { host: reachableHost(host), port, path: '/status' };
  const where = `${target.host} port ${port}`;
  let status: number | undefined;
  try {
    const answer = await getText(clock, target, clock.times.statusTimeout);
    status = answer.status;
    if (status === 200) return read(JSON.parse(answer.body));
  } catch (thrown) {
    const { code, message } = thrown as NodeJS.ErrnoException;
    if (status === undefined)
      throw invalid(
        `nothing answers on ${where} (${code ?? message}): start the proxy with --admin-address ${urlHost(host)}:${port}, ` +
          'or give the address that it was started with',
      );
  }
  throw invalid(
    `what listens on ${where} gives no status of a proxy of this version (HTTP status ${status}): give the --admin-address of the proxy, ` +
      'not its port for applications',
  );
}

/** The proxy as `run` reaches it. */
export interface Reached {
  /** The URL of the proxy: http://HOST:PORT, or https://HOST:PORT of a gateway. */
  readonly url: string;
  /** The headers with the key of the agent. The key is the token of --token, if given, or the placeholder. */
  readonly headers: Readonly<Record<string, string>>;
  /** The authorities to trust (PEM); undefined for plain HTTP. */
  readonly ca: readonly string[] | undefined;
}

/** What GET /v1 says about the proxy. `model_aliases`: the aliases that the proxy was started with. */
interface About {
  readonly name?: string;
  readonly endpoints?: readonly string[];
  readonly model_aliases?: readonly string[];
}

/** Asks which program listens. Throws config_invalid unless the proxy listens. */
export async function aboutProxy(proxy: Reached, clock: Clock): Promise<About> {
  const about = (await ask(proxy, '/v1', clock, clock.times.ownModelsTimeout)) as About | null | undefined;
  if (about?.name === 'privatemode-proxy') return about;
  throw invalid(
    `another program than the proxy answers on ${proxy.url}: start the proxy there, or give its --port, which is not that of --admin-address`,
  );
}

/**
 * Sends a GET with the key of the agent. Returns the parsed response, or undefined if it is no JSON. Throws
 * config_invalid if there is no response, or an error of the proxy; the message says what to do.
 */
export async function ask({ url, headers, ca }: Reached, path: string, clock: Clock, timeoutMs: number) {
  const target = { ...urlToHttpOptions(new URL(`${url}${path}`)), headers, ...(ca && { ca: [...ca] }) };
  const { status = 0, body } = await getText(clock, target, timeoutMs).catch((thrown: Error) => {
    throw invalid(
      `the proxy on ${url} does not answer (${printable(thrown.message)}): start it on this port, in another terminal; one with HTTPS is given as --url`,
    );
  });
  const json = parsedJson(body);
  const isProgramKnown = path !== '/v1' || status === 401;
  if (status < 300 || !isProgramKnown) return json;
  const { message = body.trim() } = (json as { error?: { message?: unknown } } | null)?.error ?? {};
  const remedy =
    path === '/v1'
      ? 'Give your token as --token @FILE'
      : 'Start the proxy with --api-key, and not with --api-key-fallback never';
  throw invalid(
    `the proxy on ${url} cannot be used: GET ${path}: status ${status}: ${printable(String(message))}${status === 401 ? `. ${remedy}` : ''}`,
  );
}
