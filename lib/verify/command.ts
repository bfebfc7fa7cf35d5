/** `privatemode-proxy verify`: command line in, verdict out, exit code by its outcome. */
import type { Environment } from '../network/trust-store.ts';
import type { Circumstances } from './advice.ts';
import { type LiveRequest, type OfflineRequest, parseVerifyArgv } from './flags.ts';
import { renderVerifyHelp } from './help.ts';
import { renderJson } from './json-report.ts';
import type { Judgement } from './judge.ts';
import { verifyFiles } from './offline.ts';
import { CUSTOM_ROOTS_EXIT_CODE, OUTCOMES } from './outcome.ts';
import { renderText, type TextReport } from './text-report.ts';

/** A terminal, or what stands for one. */
export interface Output {
  write(text: string): unknown;
  readonly isTTY?: boolean;
  readonly columns?: number;
}

export interface VerifyIo {
  readonly stdout: Output;
  readonly stderr: Output;
  /** Default: the system's clock. */
  readonly now?: () => Date;
}

type Sources = Pick<TextReport, 'subject' | 'manifestFrom' | 'rootsFrom' | keyof Circumstances>;

/** Exit code of OUTCOMES, or CUSTOM_ROOTS_EXIT_CODE. Throws config_invalid and unsafe_roots_refused, for the caller to show. */
export async function runVerify(argv: readonly string[], env: Environment, io: VerifyIo): Promise<number> {
  const request = parseVerifyArgv(argv, env);
  if (request.mode === 'help') {
    io.stdout.write(renderVerifyHelp());
    return 0;
  }
  for (const warning of request.warnings) io.stderr.write(`Warning: ${warning}\n`);
  const show = (judgement: Judgement, sources: Sources): number => {
    const { stdout } = io;
    const colours = stdout.isTTY === true && (env['NO_COLOR'] ?? '') === '' && env['TERM'] !== 'dumb';
    const columns = stdout.isTTY === true ? stdout.columns : undefined;
    stdout.write(
      request.json ? renderJson(judgement) : renderText(judgement, { ...sources, colours, columns }),
    );
    return exitCodeOf(judgement, request.acceptCustomRoots);
  };
  return request.mode === 'offline' ? offline(request, io, show) : live(request, env, io, show);
}

function exitCodeOf({ outcome, roots }: Judgement, acceptCustomRoots: boolean): number {
  if (outcome === 'accepted' && roots === 'custom' && !acceptCustomRoots) return CUSTOM_ROOTS_EXIT_CODE;
  return OUTCOMES[outcome].exitCode;
}

type Show = (judgement: Judgement, sources: Sources) => number;

async function offline(request: OfflineRequest, io: VerifyIo, show: Show): Promise<number> {
  const { roots, evidence, manifest, at } = request;
  const now = io.now?.() ?? new Date();
  if (at !== undefined && at > now) {
    io.stderr.write(
      `Warning: --at ${at.toISOString()} lies in the future: what is in force then is not known yet.\n`,
    );
  }
  if (roots !== undefined) io.stderr.write(foreignRoots(`--roots ${roots}`));
  const judgement = await verifyFiles(request, now);
  return show(judgement, {
    mode: 'offline',
    subject: `${evidence} (offline)`,
    manifestFrom: manifest,
    manifest: 'static',
    rootsFrom: rootsFrom(roots),
    saved: false,
    atGiven: at !== undefined,
  });
}

/** What speaks to the network is loaded only here. */
async function live(request: LiveRequest, env: Environment, io: VerifyIo, show: Show): Promise<number> {
  const { verifyLive } = await import('./live.ts');
  const { prepareSave, saveExchange } = await import('./save.ts');
  const { save, manifestPath } = request;
  if (save !== undefined) prepareSave(save);
  const { judgement, config, exchange } = await verifyLive(request, env);
  const { apiEndpoint, cdnBaseUrl, unsafeTrustRoots } = config;
  if (unsafeTrustRoots !== undefined)
    io.stderr.write(foreignRoots(`--unsafe-trust-roots ${unsafeTrustRoots}`));
  const endpoint = `https://${authority(apiEndpoint)}`;
  const code = show(judgement, {
    mode: 'live',
    subject: endpoint,
    manifestFrom: manifestPath ?? `the newest one published at ${cdnBaseUrl}`,
    manifest: manifestPath === undefined ? 'managed' : 'static',
    rootsFrom: rootsFrom(unsafeTrustRoots),
    saved: save !== undefined && exchange !== undefined,
    atGiven: false,
  });
  if (save !== undefined && exchange === undefined) {
    io.stderr.write(`Nothing was saved in ${save}: the service did not answer.\n`);
  } else if (save !== undefined && exchange !== undefined) {
    saveExchange(save, exchange, judgement, endpoint);
    io.stderr.write(`The exchange was saved in ${save}; README.txt there says how to verify it again.\n`);
  }
  return code;
}

const authority = ({ host, port }: { readonly host: string; readonly port: number }): string =>
  `${host.includes(':') ? `[${host}]` : host}:${port}`;

const rootsFrom = (directory: string | undefined): string =>
  directory === undefined ? 'AMD and Intel, built in' : `${directory}, NOT those of AMD and Intel`;

const foreignRoots = (flag: string): string => `
!! WARNING: ${flag}
!! The built-in hardware roots of AMD and Intel are not used. Whoever holds the keys of these roots can make
!! evidence that is accepted, without any protected hardware.

`;
