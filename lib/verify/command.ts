/** `privatemode-proxy verify`: command line in, verdict out, exit code by its outcome. */
import type { Environment } from '../network/trust-store.ts';
import type { Circumstances } from './advice.ts';
import { type LiveRequest, type OfflineRequest, parseVerifyArgv, renderVerifyHelp } from './flags.ts';
import { renderJson } from './json-report.ts';
import type { Judgement } from './judge.ts';
import { verifyFiles } from './offline.ts';
import { CUSTOM_ROOTS_EXIT_CODE, OUTCOMES } from './outcome.ts';
import { type Heading, renderText } from './text-report.ts';

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

/** Prints the judgement; gives the exit code. */
type Show = (judgement: Judgement, report: Circumstances & Heading) => number;

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
  const show: Show = (judgement, report) => {
    const colours = stdout.isTTY === true && (env['NO_COLOR'] ?? '') === '' && env['TERM'] !== 'dumb';
    const columns = stdout.isTTY === true ? stdout.columns : undefined;
    stdout.write(
      request.json ? renderJson(judgement) : renderText(judgement, { ...report, colours, columns }),
    );
    const { outcome, roots } = judgement;
    const custom = outcome === 'accepted' && roots === 'custom' && !request.acceptCustomRoots;
    return custom ? CUSTOM_ROOTS_EXIT_CODE : OUTCOMES[outcome].exitCode;
  };
  return request.mode === 'offline' ? offline(request, deps, show) : live(request, env, deps, show);
}

async function offline(
  request: OfflineRequest,
  { stderr, now: clock }: VerifyDeps,
  show: Show,
): Promise<number> {
  const { roots, evidence, manifest, at } = request;
  const now = clock?.() ?? new Date();
  if (at !== undefined && at > now) {
    stderr.write(
      `Warning: --at ${at.toISOString()} lies in the future: what is in force then is not known yet.\n`,
    );
  }
  if (roots !== undefined) stderr.write(foreignRoots(`--roots ${roots}`));
  return show(await verifyFiles(request, now), {
    mode: 'offline',
    subject: `${evidence} (offline)`,
    manifestFrom: manifest,
    rootsFrom: rootsFrom(roots),
    atGiven: at !== undefined,
  });
}

/** Loads what speaks to the network, which nothing else in this room does. */
async function live(
  request: LiveRequest,
  env: Environment,
  { stderr }: VerifyDeps,
  show: Show,
): Promise<number> {
  const { verifyLive } = await import('./live.ts');
  const { prepareSave, saveExchange } = await import('./save.ts');
  const { save, manifestPath } = request;
  if (save !== undefined) prepareSave(save);
  const { judgement, config, exchange } = await verifyLive(request, env);
  const { apiEndpoint, cdnBaseUrl, unsafeTrustRoots } = config;
  if (unsafeTrustRoots !== undefined) {
    stderr.write(foreignRoots(`--unsafe-trust-roots ${unsafeTrustRoots}`));
  }
  const host = apiEndpoint.host.includes(':') ? `[${apiEndpoint.host}]` : apiEndpoint.host;
  const subject = `https://${host}:${apiEndpoint.port}`;
  const exitCode = show(judgement, {
    mode: 'live',
    subject,
    manifestFrom: manifestPath ?? `the newest one published at ${cdnBaseUrl}`,
    manifest: manifestPath === undefined ? 'managed' : 'static',
    rootsFrom: rootsFrom(unsafeTrustRoots),
    saved: save !== undefined && exchange !== undefined,
  });
  if (save !== undefined && exchange === undefined) {
    stderr.write(`Nothing was saved in ${save}: the service did not answer.\n`);
  } else if (save !== undefined && exchange !== undefined) {
    saveExchange(save, exchange, judgement, subject);
    stderr.write(`The exchange was saved in ${save}; README.txt there says how to verify it again.\n`);
  }
  return exitCode;
}

const rootsFrom = (directory: string | undefined): string =>
  directory === undefined ? 'AMD and Intel, built in' : `${directory}, NOT those of AMD and Intel`;

const foreignRoots = (flag: string): string => `
!! WARNING: ${flag}
!! The built-in hardware roots of AMD and Intel are not used. Whoever holds the keys of these roots can make
!! evidence that is accepted, without any protected hardware.

`;
