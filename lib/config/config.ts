import { readFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { PrivatemodeError } from '../errors.ts';
import { type ApiKeySource, parseApiKey, type ReadFile } from './api-key.ts';
import { parseArgv } from './argv.ts';
import { type Environment, withEnvironment } from './environment.ts';
import { FLAGS, type FlagName } from './flags.ts';
import { whyNoManifest } from './manifest-file.ts';
import { memoryLimit } from './memory-limit.ts';
import {
  type HostPort,
  isProductionHost,
  parseBaseUrl,
  parseHost,
  parseHostPort,
  parseOrigin,
  parseOwnHost,
} from './network.ts';
import { CAUTIONS, CONTRADICTIONS } from './rules.ts';
import { parseSalt } from './salt.ts';
import { parseChoice, parseDuration, parseInteger, parseLogLevel, parsePort } from './values.ts';

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
  /** 0: none. */
  readonly streamKeepalive: number;
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

const DEFAULTS: ReadonlyMap<string, string> = new Map(
  FLAGS.flatMap((flag) => (flag.default === undefined ? [] : [[flag.name, flag.default]])),
);

/**
 * Command line and environment → configuration. Reads the files that settings name (key, salt, manifest), to complain about them now
 * rather than with the first request. Throws config_invalid or unsafe_roots_refused, with the flag and the way out.
 */
export function parseConfig(
  argv: readonly string[],
  env: Environment,
  readFile: ReadFile = (path) => readFileSync(path),
): ParsedConfig {
  refuseUnsafeEnvironment(env);
  const { values, warnings, label } = withEnvironment(parseArgv(argv), env);
  const given = (name: FlagName): string | undefined => values.get(name);
  const text = (name: FlagName): string => values.get(name) ?? (DEFAULTS.get(name) as string);

  const bool = (name: FlagName): boolean => text(name) === 'true';
  const integer = (name: FlagName, minimum: number): number => parseInteger(label(name), text(name), minimum);
  const duration = (name: FlagName, minimumMs: number): number =>
    parseDuration(label(name), text(name), minimumMs);
  const url = (name: FlagName): string => parseBaseUrl(label(name), text(name));
  const path = (name: FlagName): string | undefined => parsePath(label(name), given(name));

  const apiKeyText = given('api-key');
  const settings = {
    apiEndpoint: parseHostPort(label('api-endpoint'), text('api-endpoint'), 443),
    apiKeyFallback: parseChoice(label('api-key-fallback'), text('api-key-fallback'), [
      'never',
      'always',
      'if-placeholder',
    ]),
    corsAllowedOrigins: listOf(given('cors-allowed-origins'), (origin) =>
      parseOrigin(label('cors-allowed-origins'), origin),
    ),
    allowedHosts: listOf(given('allowed-hosts'), (host) => parseOwnHost(label('allowed-hosts'), host)),
    disablePromptCache: bool('disable-prompt-cache'),
    dumpRequests: bool('dump-requests'),
    listenAddress: parseHost(label('listen-address'), text('listen-address')),
    port: parsePort(label('port'), text('port')),
    logFormat: parseChoice(label('log-format'), text('log-format'), ['json', 'text']),
    logLevel: parseLogLevel(label('log-level'), text('log-level')),
    manifestPath: path('manifest-path'),
    cdnBaseUrl: url('cdn-base-url'),
    gpuOcspAllowUnknown: bool('gpu-ocsp-allow-unknown'),
    gpuOcspRevokedGracePeriodHours: integer('gpu-ocsp-revoked-grace-period', 0),
    tlsCertPath: path('tls-cert-path'),
    tlsKeyPath: path('tls-key-path'),
    workspace: parsePath(label('workspace'), text('workspace')) as string,
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
    streamKeepalive: duration('stream-keepalive', 0),
    shutdownGrace: duration('shutdown-grace', 0),
    workers: parseWorkers(label('workers'), text('workers')),
    metricsAddress: optional(given('metrics-address'), (value) =>
      parseHostPort(label('metrics-address'), value, undefined),
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
    apiKey: optional(apiKeyText, (value) => parseApiKey(value, readFile, label('api-key'))),
    promptCacheSalt: parseSalt(text('prompt-cache-salt'), readFile),
  };
  if (config.manifestPath !== undefined) requireManifest(config.manifestPath, readFile);

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

function parseWorkers(flag: string, text: string): number {
  return text === 'auto' ? availableParallelism() : parseInteger(flag, text, 1);
}

function parsePath(flag: string, text: string | undefined): string | undefined {
  if (text === '' || text?.includes('\0')) {
    throw new PrivatemodeError('config_invalid', `${flag} wants a path, and got none`);
  }
  return text;
}

/** Refuses, at start, a file that is no manifest at all. The session judges whether it is a good one. */
function requireManifest(path: string, readFile: ReadFile): void {
  const name = JSON.stringify(path);
  const refuse = (words: string): PrivatemodeError => new PrivatemodeError('config_invalid', words);
  let bytes: Uint8Array;
  try {
    bytes = readFile(path);
  } catch (thrown) {
    throw refuse(`failed to read manifest file ${name}: ${(thrown as Error).message}`);
  }
  const what = whyNoManifest(bytes);
  if (what !== undefined) throw refuse(`the manifest file ${name} ${what}`);
}

const optional = <T>(text: string | undefined, parse: (text: string) => T): T | undefined =>
  text === undefined ? undefined : parse(text);
