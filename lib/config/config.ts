/** Makes the whole configuration of the proxy from a command line and an environment, checked and frozen. */
import { parseArgv } from './argv.ts';
import { type Environment, withEnvironment } from './environment.ts';
import { type Config, FLAGS } from './flags.ts';
import { inheritedSocket } from './inherited-socket.ts';
import { CAUTIONS, requireConsistent } from './rules.ts';
import { type Given, valuesOf } from './setting.ts';
import { invalid, type ReadFile } from './values.ts';

export type { Config };

export interface ParsedConfig {
  readonly config: Config;
  /** Sentences for the log, each about one setting. */
  readonly warnings: readonly string[];
}

/** Makes the configuration from a command line and environment variables, as `configOf` does. */
export const parseConfig = (argv: readonly string[], env: Environment, files?: ReadFile): ParsedConfig =>
  configOf(withEnvironment(parseArgv(argv), env), env, files);

/**
 * Turns the given settings into a configuration. `files` replaces the file system in tests. Throws
 * config_invalid with a message that names the flag and says what to do.
 */
export function configOf(given: Given, env: Environment, files?: ReadFile): ParsedConfig {
  // Node itself reads this variable, and would then check no TLS certificates.
  if (env['NODE_TLS_REJECT_UNAUTHORIZED'] === '0')
    throw invalid(
      'NODE_TLS_REJECT_UNAUTHORIZED=0 would switch off certificate checks: name the CA bundle in SSL_CERT_FILE instead',
    );
  const config = valuesOf(FLAGS, given, files);
  requireConsistent({ ...config, inheritsSocket: inheritedSocket(env) !== undefined }, given);
  for (const part of [config, config.apiEndpoint, config.corsAllowedOrigins, config.allowedHosts])
    Object.freeze(part);
  const cautions = CAUTIONS.filter(([applies]) => applies(config)).map(([, message]) => message);
  return { config, warnings: [...given.warnings, ...cautions] };
}
