/** The whole configuration of the proxy: made from a command line and an environment, checked, and frozen. */
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
  /** Sentences for the log. */
  readonly warnings: readonly string[];
}

/** As `configOf`, from a command line and an environment. */
export const parseConfig = (argv: readonly string[], env: Environment, files?: ReadFile): ParsedConfig =>
  configOf(withEnvironment(parseArgv(argv), env), env, files);

/**
 * Turns the given settings into a configuration. `files` stands in place of the disk, in tests. Throws
 * config_invalid, naming the flag and the way out.
 */
export function configOf(given: Given, env: Environment, files?: ReadFile): ParsedConfig {
  // Node itself obeys this variable: it would switch off the check of certificates.
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
