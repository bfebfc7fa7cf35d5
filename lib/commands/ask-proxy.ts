/** Sends the requests of commands to a running proxy. */
import { get as getPlain, type IncomingHttpHeaders, type IncomingMessage } from 'node:http';
import { get as getTls, type RequestOptions } from 'node:https';
import type { Clock } from '../clock.ts';
import { type HostPort, invalid } from '../config/values.ts';
import { reachableHost, urlHost } from '../network/addresses.ts';
import type { StatusReport } from '../observe/status-report.ts';

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
