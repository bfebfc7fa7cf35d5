/** Renders the status of a running proxy as text for a terminal: the content of the status page, in lines. */

import type { EnforcedManifest } from '../manifest-log.ts';
import type { Notice, Severity } from '../observe/notices.ts';
import type { Finished, RefusedRequests, StatusReport, TrafficSecond } from '../observe/status-report.ts';
import type { VerificationDocument } from '../observe/verification-document.ts';
import { type Paint, painter, plural, printable, type Style } from '../text.ts';
import { linkLine } from '../verdict/chain-of-trust.ts';

export interface StatusFacts {
  readonly status: StatusReport;
  readonly verification: VerificationDocument;
}

const MOST_REQUESTS = 8;
const MOST_MANIFESTS = 5;
/** The rate of tokens is the average over this many complete seconds. */
const RATE_SECONDS = 10;

/**
 * The text, ending with a line feed. Control characters in texts of the service or of applications are
 * escaped.
 */
export function renderStatus(facts: StatusFacts, { colours }: { readonly colours: boolean }): string {
  const { status, verification } = harmless(facts) as StatusFacts;
  const paint = painter(colours);
  const parts = [
    protection(status, verification, paint),
    conditionLines(status.conditions, paint),
    failureLines(status, verification, paint),
    chainLines(verification, paint),
    trafficLines(status, paint),
    requestLines(status, paint),
    refusedLines(status.traffic.refused, status.now, paint),
    manifestLines(verification.manifests, paint),
  ];
  const shown = parts.filter((lines) => lines.length > 0).map((lines) => lines.join('\n'));
  return `${shown.join('\n\n')}\n`;
}

/** Characters. The reason of a condition names every client or fix, and the last one may matter most. */
const LONGEST_TEXT = 4_000;

/** The same value, with every text in it made safe for a terminal. */
function harmless(value: unknown): unknown {
  if (typeof value === 'string') return printable(value, LONGEST_TEXT);
  if (Array.isArray(value)) return value.map(harmless);
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([name, member]) => [name, harmless(member)]));
}

const TONES = {
  good: ['good', '✓'],
  warn: ['caution', '!'],
  bad: ['bad', '✗'],
  plain: ['plain', '…'],
} as const satisfies Record<StatusReport['standing']['tone'], readonly [Style, string]>;

function headline(
  { tone, verified, title, meaning }: StatusReport['standing'],
  roots: string | undefined,
  paint: Paint,
): string {
  if (verified && roots === 'custom')
    return paint(
      'caution',
      '! Verified under custom roots. The roots are not those of AMD and Intel: this says nothing about real hardware.',
    );
  const [style, mark] = TONES[tone];
  return paint(style, `${mark} ${title}. ${meaning}`);
}

function protection(status: StatusReport, { verdict }: VerificationDocument, paint: Paint): string[] {
  const { epoch, now, version, protocol } = status;
  const row = (name: string, value: string): string => `  ${name.padEnd(10)}${value}`;
  const lines = [headline(status.standing, verdict?.roots, paint)];
  if (epoch !== null) {
    lines.push(row('since', timeOf(epoch.attestedAt)));
    lines.push(row('until', `${timeOf(epoch.expiresAt)}, in ${duration(epoch.expiresAt - now)}`));
    lines.push(row('renewal', epoch.renewAt > now ? `in ${duration(epoch.renewAt - now)}` : 'due'));
    lines.push(row('manifest', epoch.manifestSha256));
  }
  lines.push(row('proxy', `v${version}, protocol ${protocol}`));
  return lines;
}

const SEVERITIES = {
  critical: ['bad', '✗'],
  warning: ['caution', '!'],
  info: ['plain', '·'],
} as const satisfies Record<Severity, readonly [Style, string]>;

/** Conditions that need a person's attention, other than the verification. */
function conditionLines(conditions: readonly Notice[], paint: Paint): string[] {
  if (conditions.length === 0) return [];
  const lines = conditions.flatMap(({ id, severity, since, title, reason, remedy }) => {
    const [style, mark] = SEVERITIES[severity] ?? SEVERITIES.warning;
    return [
      `  ${paint(style, `${mark} ${title}: ${reason}`)}`,
      `      ${remedy}`,
      `      ${paint('plain', `${severity}, since ${timeOf(since)} [${id}]`)}`,
    ];
  });
  return [paint('bold', 'Needs attention'), ...lines];
}

function chainLines({ chain, verdict }: VerificationDocument, paint: Paint): string[] {
  if (chain.length === 0) return [];
  return [
    paint('bold', 'Chain of trust'),
    ...chain.map((link) => `  ${linkLine(link, verdict?.roots, paint)}`),
  ];
}

/** The check for which the last verdict failed, and the error of the last renewal if it is another one. */
function failureLines(
  { lastError, standing }: StatusReport,
  { verdict, chain }: VerificationDocument,
  paint: Paint,
) {
  const failure = verdict?.failure ?? null;
  if (failure === null && lastError === null) return [];
  const heading = standing.verified ? 'The last renewal failed; the secret in force goes on' : 'What failed';
  const lines = [paint('bold', heading)];
  if (failure !== null) {
    const titles = chain.flatMap(({ checks }) => checks);
    const title = titles.find(({ id }) => id === failure.id)?.title ?? failure.id ?? failure.code;
    lines.push(`  ${paint('bad', `✗ ${title}`)}${failure.id === null ? '' : ` (${failure.id})`}`);
    if (failure.expected !== null) lines.push(`      expected  ${failure.expected}`);
    lines.push(`      found     ${failure.found}`);
  }
  if (lastError !== null) {
    // The error of a failed check repeats what the check says. A later error has another code.
    if (lastError.code !== failure?.code)
      lines.push(`  ${paint('bad', `✗ ${lastError.message}`)} [${lastError.code}]`);
    lines.push(`      ${lastError.remedy}`);
  }
  return lines;
}

function trafficLines({ traffic, now, receipts }: StatusReport, paint: Paint): string[] {
  const row = (name: string, value: string): string => `  ${name.padEnd(13)}${value}`;
  const { seconds, inFlight } = traffic;
  const current = Math.floor(now / 1000) * 1000;
  const inRate = seconds.filter(({ at }) => at < current && at >= current - RATE_SECONDS * 1000);
  const rate = inRate.reduce((sum, { chunks }) => sum + chunks, 0) / RATE_SECONDS;
  const lines = [
    paint('bold', 'Traffic'),
    row('in flight', plural(inFlight, 'request')),
    row('tokens', `${rate.toFixed(1)} per second`),
    row('first token', spread(seconds, now, 'firstTokenMs')),
    row('token gap', spread(seconds, now, 'gapMs')),
  ];
  const cached = cachedOf(traffic.finished);
  if (cached !== undefined) lines.push(row('cache', cached));
  if (receipts !== undefined) {
    const lost = receipts.lost === 0 ? 'none lost' : paint('bad', `${receipts.lost} LOST`);
    lines.push(row('receipts', `${receipts.written} written, ${lost}`));
  }
  return lines;
}

/** Tokens that came from the service's prompt cache in the listed requests; undefined if no request tells. */
function cachedOf(finished: readonly Finished[]): string | undefined {
  if (finished.every(({ tokensCached }) => tokensCached === null)) return undefined;
  const sum = (of: 'tokensIn' | 'tokensCached') =>
    finished.reduce((all, request) => all + (request[of] ?? 0), 0).toLocaleString('en');
  const last = plural(finished.length, 'request');
  return `of ${sum('tokensIn')} tokens in, ${sum('tokensCached')} came from the cache, in the last ${last}`;
}

/** Median and maximum of the last minute. */
function spread(seconds: readonly TrafficSecond[], now: number, of: 'firstTokenMs' | 'gapMs'): string {
  const recent = seconds.filter(({ at }) => at > now - 60_000);
  const samples = recent.flatMap((second) => second[of]).toSorted((a, b) => a - b);
  if (samples.length === 0) return 'none in the last minute';
  const median = samples[Math.floor((samples.length - 1) / 2)] as number;
  return `median ${milliseconds(median)}, highest ${milliseconds(samples.at(-1) as number)} in the last minute`;
}

function requestLines({ traffic: { finished }, now, clientsFile }: StatusReport, paint: Paint): string[] {
  if (finished.length === 0) return [];
  const shown = finished.slice(0, MOST_REQUESTS);
  const shortTime = shortTimes(shown, now);
  const widest = Math.max(...shown.map(({ endpoint }) => endpoint.length));
  const nameOf = ({ client = '-' }: Finished): string => client;
  const widestName = Math.max(...shown.map((request) => nameOf(request).length));
  const lines = shown.map((request) => {
    const { at, outcome, code, status, endpoint, model, durationMs, tokensOut } = request;
    const facts = [
      paint('plain', shortTime(at)),
      paint(outcome === 'answered' ? 'good' : 'bad', outcome.padEnd(14)),
      String(status ?? '-').padEnd(3),
      ...(clientsFile === undefined ? [] : [nameOf(request).padEnd(widestName)]),
      endpoint.padEnd(widest),
      (model ?? '-').padEnd(24),
      milliseconds(durationMs).padStart(8),
      tokensOut === null ? '' : plural(tokensOut, 'token'),
      code ?? '',
    ];
    return `  ${facts.join('  ').trimEnd()}`;
  });
  return [paint('bold', 'Last requests'), ...lines];
}

function refusedLines(refused: readonly RefusedRequests[], now: number, paint: Paint): string[] {
  const shortTime = shortTimes(refused, now);
  const lines = refused.map(({ at, count, method, path, code }) => {
    const facts = [
      paint('plain', shortTime(at)),
      `${count} ×`.padEnd(7),
      `${method} ${path}`.padEnd(34),
      code,
    ];
    return `  ${facts.join('  ')}`;
  });
  return lines.length === 0 ? [] : [paint('bold', 'Refused requests since the start'), ...lines];
}

function manifestLines(manifests: readonly EnforcedManifest[], paint: Paint): string[] {
  if (manifests.length === 0) return [];
  const lines = manifests
    .slice(0, MOST_MANIFESTS)
    .map(({ since, sha256 }) => `  ${since}  ${sha256 ?? 'cannot be read'}`);
  const more = manifests.length - lines.length;
  if (more > 0) lines.push(paint('plain', `  and ${more} before`));
  return [paint('bold', 'Enforced manifests'), ...lines];
}

/** How to write the times of a list: without a date if all are of the day of `now`, so that columns stay. */
function shortTimes(list: readonly { readonly at: number }[], now: number): (at: number) => string {
  const isToday = list.every(({ at }) => timeOf(at).slice(0, 10) === timeOf(now).slice(0, 10));
  return (at) => timeOf(at).slice(isToday ? 11 : 0, 19);
}

/** As 2026-12-01 12:34:56 UTC. */
const timeOf = (ms: number): string => `${new Date(ms).toISOString().slice(0, 19).replace('T', ' ')} UTC`;

const milliseconds = (ms: number): string =>
  ms < 10 ? `${ms.toFixed(1)} ms` : ms < 1_000 ? `${Math.round(ms)} ms` : `${(ms / 1_000).toFixed(1)} s`;

const duration = (ms: number): string =>
  ms < 120_000 ? `${Math.max(0, Math.round(ms / 1_000))} s` : `${Math.floor(ms / 60_000)} min`;
