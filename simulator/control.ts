/**
 * The control endpoint: through it a script sets faults, time and manifest while clients are connected. It
 * accepts requests of this machine only, none of a web page, and they are never recorded.
 */
import type { IncomingHttpHeaders } from 'node:http';
import { PrivatemodeError } from '../lib/errors.ts';
import type { Faults } from './faults.ts';
import type { ExchangeLog } from './inference/exchanges.ts';
import { HttpError, readJsonObject, sendJson } from './json-http.ts';
import type { RecordedRequest, Recorder } from './recorder.ts';
import type { Exchange, Route } from './route.ts';
import type { MutableSecretStore } from './secrets.ts';

export const CONTROL_PREFIX = '/_simulator/';

/** What the control endpoint shows and changes. */
export interface Controls {
  readonly secrets: MutableSecretStore;
  readonly recorder: Recorder;
  readonly exchanges: ExchangeLog;
  readonly faults: Faults;
  /** Requests per service since the start. */
  readonly counts: Readonly<Record<string, number>>;
  manifestSha256(): string;
  rotateManifest(): Promise<void>;
  rotateMesh(): void;
  clockSkew(): number;
  setClockSkew(milliseconds: number): void;
  /** undefined: accept any key. */
  setApiKeys(keys: readonly string[] | undefined): void;
}

type Command = (exchange: Exchange) => unknown;

export function controlRoutes(controls: Controls): readonly Route[] {
  const { secrets, recorder, faults, counts } = controls;

  const state = (): unknown => ({
    manifestSha256: controls.manifestSha256(),
    secrets: secrets.ids(),
    recorded: recorder.requests().length,
    counts,
    faults: faults.entries(),
    clockSkewMs: controls.clockSkew(),
  });

  /** Every command responds with what it found, or with the state after its change. */
  const commands: Record<string, Command> = {
    'GET state': state,
    'GET recorder': ({ url }) => {
      const needle = url.searchParams.get('contains');
      const requests = needle === null ? recorder.requests() : recorder.containing(needle);
      return requests.map(describeRequest);
    },
    'DELETE recorder': () => {
      recorder.clear();
      controls.exchanges.clear();
      return state();
    },
    'GET exchanges': () => controls.exchanges.all(),
    'PUT faults': async ({ request }) => {
      const wanted = Object.entries(await readJsonObject(request));
      const before = Object.entries(faults.entries());
      faults.clear();
      try {
        for (const [name, value] of wanted) faults.parse(name, value);
      } catch (refusal) {
        faults.clear();
        for (const [name, value] of before) faults.parse(name, value);
        throw refusal;
      }
      return state();
    },
    'POST drop-secrets': () => {
      secrets.dropAll();
      return state();
    },
    'POST rotate-manifest': async () => {
      await controls.rotateManifest();
      return state();
    },
    'POST rotate-mesh': () => {
      controls.rotateMesh();
      return state();
    },
    'POST clock-skew': async ({ request }) => {
      const { ms } = await readJsonObject(request);
      if (typeof ms !== 'number' || !Number.isSafeInteger(ms)) {
        throw new HttpError(400, 'ms must be a whole number of milliseconds');
      }
      controls.setClockSkew(ms);
      return state();
    },
    'POST api-keys': async ({ request }) => {
      const { keys } = await readJsonObject(request);
      if (keys !== null && !isStrings(keys))
        throw new HttpError(400, 'keys must be a list of strings, or null');
      controls.setApiKeys(keys ?? undefined);
      return state();
    },
  };

  return Object.entries(commands).map(([key, command]) => {
    const [method, name] = key.split(' ') as [Route['method'], string];
    return {
      method,
      path: `${CONTROL_PREFIX}${name}`,
      async handle(exchange) {
        if (!isLoopback(exchange.request.socket.remoteAddress)) {
          throw new HttpError(403, 'the control endpoint answers to this machine only');
        }
        if (isOfPage(exchange.request.headers)) {
          throw new HttpError(
            403,
            'the control endpoint does not answer to web pages: use curl, as --help shows',
          );
        }
        sendJson(exchange.response, 200, await runCommand(command, exchange));
      },
    };
  });
}

async function runCommand(command: Command, exchange: Exchange): Promise<unknown> {
  try {
    return await command(exchange);
  } catch (error) {
    if (error instanceof PrivatemodeError) throw new HttpError(400, error.message);
    throw error;
  }
}

const isStrings = (value: unknown): value is string[] =>
  Array.isArray(value) && value.every((item) => typeof item === 'string');

export function isLoopback(address: string | undefined): boolean {
  return address !== undefined && /^(127\.|::1$|::ffff:127\.)/.test(address);
}

/**
 * Whether a browser sent this for a page: the record holds credentials, and a page can send a POST without
 * being allowed to. `none` is an address that a person typed (Fetch Metadata 2.3).
 */
const isOfPage = (headers: IncomingHttpHeaders): boolean =>
  headers.origin !== undefined || (headers['sec-fetch-site'] ?? 'none') !== 'none';

const describeRequest = (request: RecordedRequest): unknown => ({
  method: request.method,
  path: request.path,
  headers: request.headers,
  rawHeaders: request.rawHeaders,
  bodyBytes: request.bodyBytes,
  body: request.body.toString('base64'),
  receivedAt: request.receivedAt,
});
