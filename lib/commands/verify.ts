/** `privatemode-proxy verify`: command line in, verdict out, exit code by its outcome. */
import { hasColours } from '../text.ts';
import { renderJson } from '../verdict/json.ts';
import { CUSTOM_ROOTS_EXIT_CODE, OUTCOMES } from '../verdict/outcome.ts';
import { renderText } from '../verdict/text.ts';
import type { Asked, Command } from './command.ts';
import { verifyFiles } from './verify-files.ts';
import { renderVerifyHelp, VERIFY_FLAGS, verifyRequest } from './verify-flags.ts';

export const VERIFY: Command = { flags: VERIFY_FLAGS, help: renderVerifyHelp, run: printVerdict };

/** Gives an exit code of OUTCOMES, or CUSTOM_ROOTS_EXIT_CODE. Throws config_invalid and unsafe_roots_refused. */
async function printVerdict({
  given,
  env,
  io: { stdout, stderr, now = () => new Date() },
}: Asked): Promise<number> {
  const request = verifyRequest(given, env);
  for (const warning of request.warnings) stderr.write(`Warning: ${warning}\n`);
  // Somebody waits at a terminal; programs read the verdict.
  const showSteps = stderr.isTTY === true && !request.json;
  const onStep = (step: string, ms: number, holds: boolean): void => {
    if (showSteps) stderr.write(`${holds ? '✓' : '✗'} ${step} ${(ms / 1_000).toFixed(2)} s\n`);
  };
  const verifying =
    request.mode === 'offline'
      ? verifyFiles(request, now())
      : // What speaks to the network is loaded here only.
        import('./verify-live.ts').then(({ verifyLive }) => verifyLive(request, env, onStep));
  const { judgement, report, warning, keep } = await verifying;
  stderr.write(warning);
  const colours = hasColours(stdout, env);
  const columns = stdout.isTTY === true ? stdout.columns : undefined;
  stdout.write(request.json ? renderJson(judgement) : renderText(judgement, { ...report, colours, columns }));
  if (keep !== undefined) stderr.write(await keep());
  const { outcome, roots } = judgement;
  const custom = outcome === 'accepted' && roots === 'custom' && !request.acceptCustomRoots;
  return custom ? CUSTOM_ROOTS_EXIT_CODE : OUTCOMES[outcome].exitCode;
}
