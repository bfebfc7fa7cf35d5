import { readFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { type ApiKeySource, parseApiKey, type ReadFile } from './config/api-key.ts';
import { parseArgv } from './config/argv.ts';
import { FLAGS, type FlagName } from './config/flags.ts';
import { memoryLimit } from './config/memory-limit.ts';
import {
  type HostPort,
  isProductionHost,
  parseBaseUrl,
  parseHost,
  parseHostPort,
  parseOrigin,
  parseOwnHost,
} from './config/network.ts';
import { CAUTIONS, CONTRADICTIONS } from './config/rules.ts';
import { parseSalt } from './config/salt.ts';
import { parseChoice, parseDuration, parseInteger, parseLogLevel, parsePort } from './config/values.ts';
import { PrivatemodeError } from './errors.ts';

/** The whole configuration, validated and frozen. Durations in ms, sizes in bytes. */
export interface Config {
  /** host:port of the remote API, normalised (lower case, no trailing dot, port always present). */
  readonly apiEndpoint: HostPort;
  /** The configured key, or where to read it from; undefined = clients bring their own. */
  readonly apiKey: ApiKeySource | undefined;
  readonly apiKeyFallback: 'never' | 'always' | 'if-placeholder';
  /** As browsers send them: lower case, the scheme's own port left out; or `*`. */
  readonly corsAllowedOrigins: readonly string[];
  /** Host names that are ours, as `name` or `name:port`: lower case, no trailing dot. */
  readonly allowedHosts: readonly string[];
  readonly disablePromptCache: boolean;
  /** A fixed salt (literal, or read from a file); undefined = random per process where sharing is on. */
  readonly promptCacheSalt: string | undefined;
  readonly dumpRequests: boolean;
  readonly listenAddress: string;
  /** 0: any free one. */
  readonly port: number;
  readonly logFormat: 'text' | 'json';
  /** pino level number: 20 debug, 30 info, 40 warn, 50 error; slog numbers are mapped onto these. */
  readonly logLevel: number;
  readonly manifestPath: string | undefined;
  readonly cdnBaseUrl: string;
  readonly gpuOcspAllowUnknown: boolean;
  readonly gpuOcspRevokedGracePeriodHours: number;
  readonly tlsCertPath: string | undefined;
  readonly tlsKeyPath: string | undefined;
  readonly workspace: string;
  readonly unsafeTrustRoots: string | undefined;
  readonly amdKdsUrl: string;
  readonly intelPcsUrl: string;
  readonly maxBodyBytes: number;
  /** Of the bodies of all requests together, in all workers. */
  readonly maxBufferedBytes: number;
  /** Bytes per second; 0: no minimum. */
  readonly minUploadRate: number;
  readonly connectTimeout: number;
  readonly firstByteTimeout: number;
  readonly streamIdleTimeout: number;
  readonly shutdownGrace: number;
  readonly workers: number;
  /** Where /metrics, /healthz and /readyz are served besides; undefined: nowhere. */
  readonly metricsAddress: HostPort | undefined;
}

export interface ParsedConfig {
  readonly config: Config;
  /** Sentences for the log, in the order of the flags. */
  readonly warnings: readonly string[];
}

type Environment = Readonly<Record<string, string | undefined>>;

const DEFAULTS: ReadonlyMap<string, string> = new Map(
  FLAGS.flatMap((flag) => (flag.default === undefined ? [] : [[flag.name, flag.default]])),
);

/**
 * Command line → configuration. Reads the files that settings name (key, salt, manifest), to complain about them now
 * rather than with the first request. Throws config_invalid or unsafe_roots_refused, with the flag and the way out.
 */
export function parseConfig(
  argv: readonly string[],
  env: Environment,
  readFile: ReadFile = (path) => readFileSync(path),
): ParsedConfig {
  refuseUnsafeEnvironment(env);
  const { values, warnings } = parseArgv(argv);
  const given = (name: FlagName): string | undefined => values.get(name);
  const text = (name: FlagName): string => values.get(name) ?? (DEFAULTS.get(name) as string);

  const bool = (name: FlagName): boolean => text(name) === 'true';
  const integer = (name: FlagName, minimum: number): number => parseInteger(`--${name}`, text(name), minimum);
  const duration = (name: FlagName, minimumMs: number): number =>
    parseDuration(`--${name}`, text(name), minimumMs);
  const url = (name: FlagName): string => parseBaseUrl(`--${name}`, text(name));
  const path = (name: FlagName): string | undefined => parsePath(`--${name}`, given(name));

  const apiKeyText = given('api-key');
  const settings = {
    apiEndpoint: parseHostPort('--api-endpoint', text('api-endpoint'), 443),
    apiKeyFallback: parseChoice('--api-key-fallback', text('api-key-fallback'), [
      'never',
      'always',
      'if-placeholder',
    ]),
    corsAllowedOrigins: listOf(given('cors-allowed-origins'), (origin) =>
      parseOrigin('--cors-allowed-origins', origin),
    ),
    allowedHosts: listOf(given('allowed-hosts'), (host) => parseOwnHost('--allowed-hosts', host)),
    disablePromptCache: bool('disable-prompt-cache'),
    dumpRequests: bool('dump-requests'),
    listenAddress: parseHost('--listen-address', text('listen-address')),
    port: parsePort('--port', text('port')),
    logFormat: parseChoice('--log-format', text('log-format'), ['json', 'text']),
    logLevel: parseLogLevel('--log-level', text('log-level')),
    manifestPath: path('manifest-path'),
    cdnBaseUrl: url('cdn-base-url'),
    gpuOcspAllowUnknown: bool('gpu-ocsp-allow-unknown'),
    gpuOcspRevokedGracePeriodHours: integer('gpu-ocsp-revoked-grace-period', 0),
    tlsCertPath: path('tls-cert-path'),
    tlsKeyPath: path('tls-key-path'),
    workspace: parsePath('--workspace', text('workspace')) as string,
    unsafeTrustRoots: path('unsafe-trust-roots'),
    amdKdsUrl: url('amd-kds-url'),
    intelPcsUrl: url('intel-pcs-url'),
    maxBodyBytes: integer('max-body-bytes', 1),
    maxBufferedBytes:
      given('max-buffered-bytes') === undefined
        ? Math.floor(memoryLimit(readFile) / 4)
        : integer('max-buffered-bytes', 1),
    minUploadRate: integer('min-upload-rate', 0),
    connectTimeout: duration('connect-timeout', 1),
    firstByteTimeout: duration('first-byte-timeout', 1),
    streamIdleTimeout: duration('stream-idle-timeout', 1),
    shutdownGrace: duration('shutdown-grace', 0),
    workers: parseWorkers(text('workers')),
    metricsAddress: optional(given('metrics-address'), (value) =>
      parseHostPort('--metrics-address', value, undefined),
    ),
  } as const;

  const facts = {
    ...settings,
    given: new Set(values.keys()),
    apiKeyConfigured: apiKeyText !== undefined,
    promptCacheSalt: text('prompt-cache-salt'),
  };
  const contradiction = CONTRADICTIONS.find((rule) => rule.applies(facts));
  if (contradiction !== undefined) throw new PrivatemodeError('config_invalid', contradiction.words);
  if (settings.unsafeTrustRoots !== undefined) refuseUnsafeRoots(settings.apiEndpoint.host);

  // Files come last: what the flags alone get wrong is told first.
  const config: Config = {
    ...settings,
    apiKey: optional(apiKeyText, (value) => parseApiKey(value, readFile)),
    promptCacheSalt: parseSalt(text('prompt-cache-salt'), readFile),
  };
  if (config.manifestPath !== undefined) requireReadable('manifest file', config.manifestPath, readFile);

  const cautions = CAUTIONS.filter((rule) => rule.applies(facts)).map((rule) => rule.words);
  Object.freeze(config.apiEndpoint);
  Object.freeze(config.corsAllowedOrigins);
  Object.freeze(config.allowedHosts);
  return { config: Object.freeze(config), warnings: [...warnings, ...cautions] };
}

/** Node would read this one behind our back. */
function refuseUnsafeEnvironment(env: Environment): void {
  if (env['NODE_TLS_REJECT_UNAUTHORIZED'] !== '0') return;
  const words =
    'NODE_TLS_REJECT_UNAUTHORIZED=0 would switch off certificate checks: unset it, and name the CA bundle to trust in ' +
    'SSL_CERT_FILE instead';
  throw new PrivatemodeError('config_invalid', words);
}

/** Design decision 8. */
function refuseUnsafeRoots(host: string): void {
  if (!isProductionHost(host)) return;
  throw new PrivatemodeError(
    'unsafe_roots_refused',
    `--unsafe-trust-roots is for simulators and is refused for --api-endpoint ${host}`,
  );
}

/** The items of a comma-separated list, each once; empty ones are left out. */
function listOf(text: string | undefined, parse: (item: string) => string): string[] {
  const items = (text ?? '').split(',').map((item) => item.trim());
  return [...new Set(items.filter((item) => item !== '').map(parse))];
}

function parseWorkers(text: string): number {
  return text === 'auto' ? availableParallelism() : parseInteger('--workers', text, 1);
}

function parsePath(flag: string, text: string | undefined): string | undefined {
  if (text === '' || text?.includes('\0')) {
    throw new PrivatemodeError('config_invalid', `${flag} wants a path, and got none`);
  }
  return text;
}

function requireReadable(what: string, path: string, readFile: ReadFile): void {
  try {
    readFile(path);
  } catch (thrown) {
    const words = `failed to read ${what} ${JSON.stringify(path)}: ${(thrown as Error).message}`;
    throw new PrivatemodeError('config_invalid', words);
  }
}

const optional = <T>(text: string | undefined, parse: (text: string) => T): T | undefined =>
  text === undefined ? undefined : parse(text);
