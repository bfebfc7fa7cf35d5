import { readFileSync } from 'node:fs';
import { availableParallelism, totalmem } from 'node:os';
import { posix } from 'node:path';
import { PrivatemodeError } from '../errors.ts';
import { type ApiKeySource, parseApiKey } from './api-key.ts';
import { parseArgv } from './argv.ts';
import { type Environment, withEnvironment } from './environment.ts';
import { parseSalt, type ReadFile, requireManifest } from './files.ts';
import { FLAGS, type FlagName } from './flags.ts';
import { CAUTIONS, CONTRADICTIONS } from './rules.ts';
import {
  type HostPort,
  invalid,
  isProductionHost,
  parseBaseUrl,
  parseChoice,
  parseDuration,
  parseHost,
  parseHostPort,
  parseInteger,
  parseLogLevel,
  parseOrigin,
  parseOwnHost,
  parsePort,
} from './values.ts';

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

type Parse<T, Rest extends readonly unknown[]> = (flag: string, text: string, ...rest: Rest) => T;

const DEFAULTS: ReadonlyMap<string, string | undefined> = new Map(
  FLAGS.map((flag) => [flag.name, flag.default]),
);

/**
 * Command line and environment → configuration. Reads the files that settings name (key, salt, manifest), to complain about
 * them now rather than with the first request. Throws config_invalid or unsafe_roots_refused, with the flag and the way out.
 */
export function parseConfig(
  argv: readonly string[],
  env: Environment,
  readFile: ReadFile = (path) => readFileSync(path),
): ParsedConfig {
  refuseUnsafeEnvironment(env);
  const { values, warnings, label } = withEnvironment(parseArgv(argv), env);
  /** A setting as `parse` reads it, or its default. */
  const of = <T, Rest extends readonly unknown[]>(name: FlagName, parse: Parse<T, Rest>, ...rest: Rest): T =>
    parse(label(name), values.get(name) ?? (DEFAULTS.get(name) as string), ...rest);
  /** A setting as `parse` reads it, or undefined. */
  const ifGiven = <T, Rest extends readonly unknown[]>(
    name: FlagName,
    parse: Parse<T, Rest>,
    ...rest: Rest
  ): T | undefined => (values.has(name) ? of(name, parse, ...rest) : undefined);
  const isOn = (name: FlagName): boolean => of(name, (_, text) => text === 'true');

  const settings = {
    apiEndpoint: of('api-endpoint', parseHostPort, 443),
    apiKeyFallback: of('api-key-fallback', parseChoice, ['never', 'always', 'if-placeholder'] as const),
    corsAllowedOrigins: ifGiven('cors-allowed-origins', parseList, parseOrigin) ?? [],
    allowedHosts: ifGiven('allowed-hosts', parseList, parseOwnHost) ?? [],
    disablePromptCache: isOn('disable-prompt-cache'),
    dumpRequests: isOn('dump-requests'),
    listenAddress: of('listen-address', parseHost),
    port: of('port', parsePort),
    logFormat: of('log-format', parseChoice, ['json', 'text'] as const),
    logLevel: of('log-level', parseLogLevel),
    manifestPath: ifGiven('manifest-path', parsePath),
    cdnBaseUrl: of('cdn-base-url', parseBaseUrl),
    gpuOcspAllowUnknown: isOn('gpu-ocsp-allow-unknown'),
    gpuOcspRevokedGracePeriodHours: of('gpu-ocsp-revoked-grace-period', parseInteger, 0),
    tlsCertPath: ifGiven('tls-cert-path', parsePath),
    tlsKeyPath: ifGiven('tls-key-path', parsePath),
    workspace: of('workspace', parsePath),
    unsafeTrustRoots: ifGiven('unsafe-trust-roots', parsePath),
    amdKdsUrl: of('amd-kds-url', parseBaseUrl),
    intelPcsUrl: of('intel-pcs-url', parseBaseUrl),
    maxBodyBytes: of('max-body-bytes', parseInteger, 1),
    maxBufferedBytes: ifGiven('max-buffered-bytes', parseInteger, 1) ?? Math.floor(memoryLimit(readFile) / 4),
    minUploadRate: of('min-upload-rate', parseInteger, 0),
    connectTimeout: of('connect-timeout', parseDuration, 1),
    firstByteTimeout: of('first-byte-timeout', parseDuration, 1),
    streamIdleTimeout: of('stream-idle-timeout', parseDuration, 1),
    streamKeepalive: of('stream-keepalive', parseDuration, 0),
    shutdownGrace: of('shutdown-grace', parseDuration, 0),
    workers: of('workers', parseWorkers),
    metricsAddress: ifGiven('metrics-address', parseHostPort, undefined),
  };

  const facts = {
    ...settings,
    given: new Set(values.keys()),
    promptCacheSalt: values.get('prompt-cache-salt'),
  };
  const contradiction = CONTRADICTIONS.find((rule) => rule.applies(facts));
  if (contradiction !== undefined) throw invalid(contradiction.message);
  if (settings.unsafeTrustRoots !== undefined) refuseUnsafeRoots(settings.apiEndpoint.host);

  // Files come last: an error in the flags alone is reported first.
  const config: Config = {
    ...settings,
    apiKey: ifGiven('api-key', (flag, text) => parseApiKey(text, readFile, flag)),
    promptCacheSalt: of('prompt-cache-salt', (_, text) => parseSalt(text, readFile)),
  };
  if (config.manifestPath !== undefined) requireManifest(config.manifestPath, readFile);

  const cautions = CAUTIONS.filter((rule) => rule.applies(facts)).map((rule) => rule.message);
  for (const part of [config.apiEndpoint, config.corsAllowedOrigins, config.allowedHosts])
    Object.freeze(part);
  return { config: Object.freeze(config), warnings: [...warnings, ...cautions] };
}

/** Node itself would obey this variable. */
function refuseUnsafeEnvironment(env: Environment): void {
  if (env['NODE_TLS_REJECT_UNAUTHORIZED'] !== '0') return;
  throw invalid(
    'NODE_TLS_REJECT_UNAUTHORIZED=0 would switch off certificate checks: unset it, and name the CA bundle to trust in ' +
      'SSL_CERT_FILE instead',
  );
}

/** Other roots would let anybody pass for the real service. */
function refuseUnsafeRoots(host: string): void {
  if (!isProductionHost(host)) return;
  throw new PrivatemodeError(
    'unsafe_roots_refused',
    `--unsafe-trust-roots is for simulators and is refused for --api-endpoint ${host}`,
  );
}

/** The items of a comma-separated list, each once; empty ones are left out. */
function parseList(flag: string, text: string, parse: Parse<string, []>): string[] {
  const items = text.split(',').map((item) => item.trim());
  return [...new Set(items.filter((item) => item !== '').map((item) => parse(flag, item)))];
}

const parseWorkers = (flag: string, text: string): number =>
  text === 'auto' ? availableParallelism() : parseInteger(flag, text, 1);

function parsePath(flag: string, text: string): string {
  if (text === '' || text.includes('\0')) throw invalid(`${flag} wants a path, and got none`);
  return text;
}

/** Where a memory controller is mounted, and its file; `line` finds the group of this process in /proc/self/cgroup. */
const CONTROLLERS = [
  { line: /^0::(\/.*)$/m, mount: '/sys/fs/cgroup', file: 'memory.max' },
  {
    line: /^\d+:(?:[^:\n]+,)?memory(?:,[^:\n]+)?:(\/.*)$/m,
    mount: '/sys/fs/cgroup/memory',
    file: 'memory.limit_in_bytes',
  },
];

/**
 * Bytes of memory that this process may use: those of the machine, or the smallest limit of its control group (version 1 or 2)
 * and of the groups around it. Where nothing is known of groups, the machine's.
 */
export function memoryLimit(readFile: ReadFile, machine: number = totalmem()): number {
  const read = (path: string): string => {
    try {
      return Buffer.from(readFile(path)).toString('latin1');
    } catch {
      return '';
    }
  };
  const groups = read('/proc/self/cgroup');
  const limits = CONTROLLERS.flatMap(({ line, mount, file }) =>
    groupsAround(line.exec(groups)?.[1]).map((group) => read(posix.join(mount, group, file)).trim()),
  );
  // "max", and a number beyond all memory in version 1, mean that there is none.
  return Math.min(machine, ...limits.filter((text) => /^[1-9]\d*$/.test(text)).map(Number));
}

/** The group and those it is in, up to `/`, which is what a container sees of its own. */
function groupsAround(group = '/'): string[] {
  return group === '/' ? ['/'] : [group, ...groupsAround(posix.dirname(group))];
}
