/** `privatemode-proxy verify`: prints the verdict, and exits with the exit code of the verdict's outcome. */
import { hasColours } from '../text.ts';
import { foreignRoots, renderText } from '../verdict/text.ts';
import { CUSTOM_ROOTS_EXIT_CODE, OUTCOMES, verdictText } from '../verdict/verdict.ts';
import type { Command, Invocation } from './command.ts';
import { renderVerifyHelp, VERIFY_FLAGS, verifyRequest } from './verify-flags.ts';
import { verifySaved } from './verify-saved.ts';

export const VERIFY: Command = { flags: VERIFY_FLAGS, help: renderVerifyHelp, run: printVerdict };

/**
 * Returns an exit code of OUTCOMES, or CUSTOM_ROOTS_EXIT_CODE. Throws config_invalid and
 * unsafe_roots_refused.
 */
async function printVerdict({ given, env, io }: Invocation): Promise<number> {
  const { stdout, stderr, clock } = io;
  const request = verifyRequest(given, env);
  if (request.mode === 'live')
    for (const warning of request.given.warnings) stderr.write(`Warning: ${warning}\n`);
  // A person at a terminal sees what the command waits for; programs read only the verdict.
  const showSteps = stderr.isTTY === true && !request.json;
  const onStep = (step: string) => showSteps && stderr.write(`${step} …\n`);
  const { verdict, report, warnings, keep } =
    request.mode === 'record'
      ? await verifySaved(request, new Date(clock.now()))
      : // Load the network code only to verify a live service.
        await (await import('./verify-live.ts')).verifyLive(request, env, clock, onStep);
  for (const warning of [...warnings, report.roots && foreignRoots(report.roots)])
    if (warning) stderr.write(`${warning}\n`);
  const text = renderText(verdict, report, hasColours(stdout, env), request.verbose);
  stdout.write(request.json ? verdictText(verdict) : text);
  if (keep !== undefined) stderr.write(await keep());
  const { outcome, roots } = verdict;
  const custom = outcome === 'accepted' && roots === 'custom' && !request.acceptCustomRoots;
  return custom ? CUSTOM_ROOTS_EXIT_CODE : OUTCOMES[outcome].exitCode;
}
