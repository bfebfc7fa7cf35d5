/** `privatemode-proxy verify`: command line in, verdict out, exit code by its outcome. */
import type { Environment } from '../config/environment.ts';
import { renderJson } from '../verdict/json.ts';
import { CUSTOM_ROOTS_EXIT_CODE, OUTCOMES } from '../verdict/outcome.ts';
import { renderText } from '../verdict/text.ts';
import { verifyFiles } from './verify-files.ts';
import { parseVerifyArgv, renderVerifyHelp } from './verify-flags.ts';

/** A terminal, or what stands for one. */
interface Output {
  write(text: string): unknown;
  readonly isTTY?: boolean;
  readonly columns?: number;
}

interface VerifyDeps {
  readonly stdout: Output;
  readonly stderr: Output;
  /** Default: the system's clock. */
  readonly now?: () => Date;
}

/**
 * Gives an exit code of OUTCOMES, or CUSTOM_ROOTS_EXIT_CODE. Throws config_invalid and unsafe_roots_refused, which the
 * caller prints.
 */
export async function runVerify(
  argv: readonly string[],
  env: Environment,
  deps: VerifyDeps,
): Promise<number> {
  const request = parseVerifyArgv(argv, env);
  const { stdout, stderr } = deps;
  if (request.mode === 'help') {
    stdout.write(renderVerifyHelp());
    return 0;
  }
  for (const warning of request.warnings) stderr.write(`Warning: ${warning}\n`);
  // Somebody waits at a terminal; programs read the verdict.
  const showSteps = stderr.isTTY === true && !request.json;
  const onStep = (step: string, ms: number, holds: boolean): void => {
    if (showSteps) stderr.write(`${holds ? '✓' : '✗'} ${step} ${(ms / 1_000).toFixed(2)} s\n`);
  };
  const verifying =
    request.mode === 'offline'
      ? verifyFiles(request, deps.now?.() ?? new Date())
      : // What speaks to the network is loaded here only.
        import('./verify-live.ts').then(({ verifyLive }) => verifyLive(request, env, onStep));
  const { judgement, report, warning, keep } = await verifying;
  stderr.write(warning);
  const colours = stdout.isTTY === true && (env['NO_COLOR'] ?? '') === '' && env['TERM'] !== 'dumb';
  const columns = stdout.isTTY === true ? stdout.columns : undefined;
  stdout.write(request.json ? renderJson(judgement) : renderText(judgement, { ...report, colours, columns }));
  if (keep !== undefined) stderr.write(keep());
  const { outcome, roots } = judgement;
  const custom = outcome === 'accepted' && roots === 'custom' && !request.acceptCustomRoots;
  return custom ? CUSTOM_ROOTS_EXIT_CODE : OUTCOMES[outcome].exitCode;
}
