/** The whole configuration of the proxy: made from a command line and an environment, checked, and frozen. */
import { readFileSync } from 'node:fs';
import { totalmem } from 'node:os';
import { readSmallSync } from '../watch-files.ts';
import { type ApiKeySource, parseApiKey } from './api-key.ts';
import { parseArgv } from './argv.ts';
import { type Environment, withEnvironment } from './environment.ts';
import { parseSalt, type ReadFile, requireManifest } from './files.ts';
import { FLAGS, type Settings } from './flags.ts';
import { inheritedSocket } from './inherited-socket.ts';
import { readLimitsStore } from './limits-store.ts';
import { CAUTIONS, requireConsistent } from './rules.ts';
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
  /** Undefined: one random salt per process, used if prompt-cache sharing is on. */
  readonly promptCacheSalt: string | undefined;
  readonly gpuOcspRevokedGracePeriodHours: number;
  /** Memory for the bodies of all requests together. */
  readonly maxBufferedBytes: number;
  /** Checked URL of the store, which may hold a password; undefined: each process counts for itself. */
  readonly limitsStore: string | undefined;
}

export interface ParsedConfig {
  readonly config: Config;
  /** Sentences for the log. */
  readonly warnings: readonly string[];
}

/** As `configOf`, from a command line and an environment. */
export const parseConfig = (argv: readonly string[], env: Environment, readFile?: ReadFile): ParsedConfig =>
  configOf(withEnvironment(parseArgv(argv), env), env, readFile);

/**
 * Turns the given settings into a configuration. Reads the files that settings name (key, salt, store,
 * manifest), to report problems with them now instead of at the first request. `files` stands in place of the
 * disk, in tests. Throws config_invalid, naming the flag and the way out.
 */
export function configOf(given: Given, env: Environment, files?: ReadFile): ParsedConfig {
  // Node itself obeys this variable: it would switch off the check of certificates.
  if (env['NODE_TLS_REJECT_UNAUTHORIZED'] === '0') {
    throw invalid(
      'NODE_TLS_REJECT_UNAUTHORIZED=0 would switch off certificate checks: unset it, and name the CA bundle to trust in ' +
        'SSL_CERT_FILE instead',
    );
  }
  const settings = valuesOf(FLAGS, given);
  const inheritsSocket = inheritedSocket(env) !== undefined;
  const facts = { ...settings, given: new Set(given.values.keys()), inheritsSocket };
  requireConsistent(facts, given);

  // Read files last: an error in the flags alone is reported first.
  const { apiKey, gpuOcspRevokedGracePeriod, limitsStore, maxBufferedBytes, promptCacheSalt, ...unchanged } =
    settings;
  const [once, again] = [files ?? readFileSync, files ?? readSmallSync];
  const apiKeySetting = given.label('api-key');
  const config: Config = {
    ...unchanged,
    apiKey: apiKey === undefined ? undefined : parseApiKey(apiKey, again, apiKeySetting),
    apiKeySetting,
    promptCacheSalt: parseSalt(promptCacheSalt, once, given.label('prompt-cache-salt')),
    gpuOcspRevokedGracePeriodHours: gpuOcspRevokedGracePeriod,
    limitsStore: limitsStore && readLimitsStore(limitsStore, once, given.label('limits-store')),
    maxBufferedBytes: maxBufferedBytes ?? Math.floor(usableMemory() / 4),
  };
  if (config.manifestPath !== undefined)
    requireManifest(config.manifestPath, again, given.label('manifest-path'));
  for (const part of [config.apiEndpoint, config.corsAllowedOrigins, config.allowedHosts])
    Object.freeze(part);
  const cautions = CAUTIONS.filter(([applies]) => applies(facts)).map(([, message]) => message);
  return { config: Object.freeze(config), warnings: [...given.warnings, ...cautions] };
}

/** Bytes that this process may use: the memory of the machine, or what its control group allows of it. */
function usableMemory(): number {
  const allowed = process.constrainedMemory(); // 0 if unknown, more than any memory if not limited
  return allowed === 0 ? totalmem() : Math.min(totalmem(), allowed);
}
