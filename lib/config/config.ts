/**
 * The whole configuration of the proxy: made from a command line and an environment, checked against all
 * rules, and frozen.
 */
import { readFileSync } from 'node:fs';
import { totalmem } from 'node:os';
import { posix } from 'node:path';
import { isProductionHost } from '../attestation/roots/production.ts';
import { PrivatemodeError } from '../errors.ts';
import { readSmallSync } from '../watch-files.ts';
import { type ApiKeySource, parseApiKey } from './api-key.ts';
import { parseArgv } from './argv.ts';
import { type Environment, withEnvironment } from './environment.ts';
import { parseSalt, type ReadFile, readIfThere, requireManifest } from './files.ts';
import { FLAGS, type Settings } from './flags.ts';
import { inheritedSocket } from './inherited-socket.ts';
import { readLimitsStore } from './limits-store.ts';
import { CAUTIONS, CONTRADICTIONS } from './rules.ts';
import { type Given, valuesOf } from './setting.ts';
import { invalid } from './values.ts';

type Changed =
  | 'apiKey'
  | 'promptCacheSalt'
  | 'gpuOcspRevokedGracePeriod'
  | 'maxBufferedBytes'
  | 'limitsStore';

/**
 * The configuration, validated and frozen: the value of each flag, under the flag's name in camel case.
 * Durations in ms, sizes in bytes; undefined if a flag was not given and has no default.
 */
export interface Config extends Omit<Settings, Changed> {
  /** The configured key, or the file to read it from; undefined if clients send their own keys. */
  readonly apiKey: ApiKeySource | undefined;
  /** The flag or environment variable that set the key. */
  readonly apiKeySetting: string;
  /**
   * A fixed salt (literal, or read from a file); undefined: one random salt per process, used if prompt-cache
   * sharing is on.
   */
  readonly promptCacheSalt: string | undefined;
  readonly gpuOcspRevokedGracePeriodHours: number;
  /** Memory for the bodies of all requests together. */
  readonly maxBufferedBytes: number;
  /** Checked URL of the store, which may hold a password; undefined: each process counts for itself. */
  readonly limitsStore: string | undefined;
}

export interface ParsedConfig {
  readonly config: Config;
  /** Sentences for the log, in the order of the flags. */
  readonly warnings: readonly string[];
}

/** As `configOf`, from a command line and an environment. */
export const parseConfig = (argv: readonly string[], env: Environment, readFile?: ReadFile): ParsedConfig =>
  configOf(withEnvironment(parseArgv(argv), env), env, readFile);

/**
 * Turns the given settings into a configuration. Reads the files that settings name (key, salt, store,
 * manifest), to report problems with them now instead of at the first request. `files` stands in place of the
 * disk, in tests. Throws config_invalid or unsafe_roots_refused, naming the flag and the way out.
 */
export function configOf(given: Given, env: Environment, files?: ReadFile): ParsedConfig {
  const readFile: ReadFile = files ?? ((path) => readFileSync(path));
  // Node itself obeys this variable: it would switch off the check of certificates.
  if (env['NODE_TLS_REJECT_UNAUTHORIZED'] === '0') {
    throw invalid(
      'NODE_TLS_REJECT_UNAUTHORIZED=0 would switch off certificate checks: unset it, and name the CA bundle to trust in ' +
        'SSL_CERT_FILE instead',
    );
  }
  const settings = valuesOf(FLAGS, given);
  const facts = {
    ...settings,
    given: new Set(given.values.keys()),
    inheritsSocket: inheritedSocket(env) !== undefined,
  };
  const contradiction = CONTRADICTIONS.find((rule) => rule.applies(facts));
  if (contradiction !== undefined)
    throw invalid(
      contradiction.message.replace(/--([a-z-]+)/g, (flag, name) =>
        facts.given.has(name) ? given.label(name) : flag,
      ),
    );
  const { host } = settings.apiEndpoint;
  // Other roots would let anybody pass for the real service.
  if (settings.unsafeTrustRoots !== undefined && isProductionHost(host)) {
    throw new PrivatemodeError(
      'unsafe_roots_refused',
      `--unsafe-trust-roots is for simulators and is refused for --api-endpoint ${host}`,
    );
  }

  // Read files last: an error in the flags alone is reported first.
  const { apiKey, gpuOcspRevokedGracePeriod, limitsStore, maxBufferedBytes, promptCacheSalt, ...unchanged } =
    settings;
  const config: Config = {
    ...unchanged,
    apiKey:
      apiKey === undefined ? undefined : parseApiKey(apiKey, files ?? readSmallSync, given.label('api-key')),
    apiKeySetting: given.label('api-key'),
    promptCacheSalt: parseSalt(promptCacheSalt, readFile, given.label('prompt-cache-salt')),
    gpuOcspRevokedGracePeriodHours: gpuOcspRevokedGracePeriod,
    limitsStore:
      limitsStore === undefined
        ? undefined
        : readLimitsStore(limitsStore, readFile, given.label('limits-store')),
    maxBufferedBytes: maxBufferedBytes ?? Math.floor(memoryLimit(readFile) / 4),
  };
  if (config.manifestPath !== undefined)
    requireManifest(config.manifestPath, files ?? readSmallSync, given.label('manifest-path'));

  const cautions = CAUTIONS.filter((rule) => rule.applies(facts)).map((rule) => rule.message);
  for (const part of [config.apiEndpoint, config.corsAllowedOrigins, config.allowedHosts])
    Object.freeze(part);
  return { config: Object.freeze(config), warnings: [...given.warnings, ...cautions] };
}

/**
 * For control groups of version 2 and 1: the pattern that finds this process's group in /proc/self/cgroup,
 * the directory where the memory controller is mounted, and the file with the limit.
 */
const CONTROLLERS = [
  [/^0::(\/.*)$/m, '/sys/fs/cgroup', 'memory.max'],
  [/^\d+:(?:[^:\n]+,)?memory(?:,[^:\n]+)?:(\/.*)$/m, '/sys/fs/cgroup/memory', 'memory.limit_in_bytes'],
] as const;

/**
 * Bytes of memory that this process may use: the memory of the machine, or the smallest limit of this
 * process's control group (version 1 or 2) and the groups around it, if that is less. If no limit can be
 * read, the memory of the machine. `machine`: its memory in bytes.
 */
export function memoryLimit(readFile: ReadFile, machine: number = totalmem()): number {
  const read = (path: string): string => Buffer.from(readIfThere(path, readFile) ?? []).toString('latin1');
  const groups = read('/proc/self/cgroup');
  const limits = CONTROLLERS.flatMap(([line, mount, file]) =>
    groupsAround(line.exec(groups)?.[1]).map((group) => read(posix.join(mount, group, file)).trim()),
  );
  // No limit is written as "max", or in version 1 as a number larger than any memory.
  return Math.min(machine, ...limits.filter((text) => /^[1-9]\d*$/.test(text)).map(Number));
}

/** The group and all groups around it, up to `/`. A container sees its own group as `/`. */
function groupsAround(group = '/'): string[] {
  return group === '/' ? ['/'] : [group, ...groupsAround(posix.dirname(group))];
}
