/**
 * What a status report says to a person, as sections of rows. The terminal and the status page show the same
 * view, and neither of them decides anything.
 */
import { plural, printable } from '../text.ts';
import { type ChainLink, titleOf } from '../verdict/chain-of-trust.ts';
import type { Severity } from './notices.ts';
import type { Finished, StatusReport, TrafficSecond } from './status-report.ts';

export type Tone = StatusReport['standing']['tone'];

/** How a tone looks where there is no colour. */
export const MARKS = { good: '✓', warn: '!', bad: '✗', plain: '·' } as const satisfies Record<Tone, string>;

/** A row with a tone is a statement, one without a fact. `more`: what belongs to the row. */
export interface ViewRow {
  readonly tone?: Tone;
  readonly label: string;
  readonly value?: string;
  readonly note?: string;
  readonly more?: readonly ViewRow[];
  readonly chart?: Chart;
}

/** Values of the last two minutes, oldest first, each with its seconds before now. */
export type Chart = readonly (readonly [ago: number, value: number])[];

/** `below`: a second line, where there is room for one. */
export interface Cell {
  readonly text: string;
  readonly tone?: Tone;
  readonly below?: string;
}

/** `columns` and `cells`: a table, newest first. `isFolded`: the reader asks for `more` of a row. */
export interface Section {
  readonly id: 'verdict' | 'notices' | 'chain' | 'traffic' | 'requests' | 'refused' | 'manifests' | 'details';
  readonly title: string;
  readonly note?: string;
  readonly tone?: Tone;
  readonly isFolded?: boolean;
  readonly rows?: readonly ViewRow[];
  readonly columns?: readonly { readonly title: string; readonly isNumber?: boolean }[];
  readonly cells?: readonly (readonly Cell[])[];
}

/** Characters. The reason of a notice names every client or fix, and the last one may matter most. */
const LONGEST_TEXT = 4_000;

/** Sections without content are left out. Throws if the report is not one of this version. */
export function viewOf(report: StatusReport): readonly Section[] {
  const sections = [
    verdictOf(report),
    noticesOf(report),
    chainOf(report),
    trafficOf(report),
    requestsOf(report),
    refusedOf(report),
    manifestsOf(report),
    detailsOf(report),
  ];
  const isFilled = ({ id, rows, cells }: Section) => id === 'verdict' || (rows ?? cells ?? []).length > 0;
  return harmless(sections.filter(isFilled)) as readonly Section[];
}

/** The same value; every text in it, whoever wrote it, has no character that steers a terminal or hides. */
function harmless(value: unknown): unknown {
  if (typeof value === 'string') return printable(value, LONGEST_TEXT);
  if (Array.isArray(value)) return value.map(harmless);
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([name, member]) => [name, harmless(member)]));
}

/** Whatever the state says, an expired secret protects nothing, and other roots prove nothing. */
function headlineOf({ standing, epoch, now, verification: { verdict } }: StatusReport) {
  if (!standing.verified) return standing;
  if (epoch !== null && epoch.expiresAt <= now)
    return {
      tone: 'bad',
      title: 'Not verified',
      meaning: 'The attestation has expired. No request leaves this machine.',
    } as const;
  if (verdict?.roots === 'custom')
    return {
      tone: 'warn',
      title: 'Verified under custom roots',
      meaning: 'The roots are not those of AMD and Intel: this says nothing about real hardware.',
    } as const;
  return standing;
}

function verdictOf(report: StatusReport): Section {
  const { epoch, now, lastError, verification } = report;
  const { tone, title, meaning } = headlineOf(report);
  const failure = verification.verdict?.failure ?? null;
  const rows: ViewRow[] = [];
  if (lastError !== null) rows.push({ tone: 'plain', label: 'What to do', value: lastError.remedy });
  if (failure !== null) {
    const { id, code, expected, found } = failure;
    const more = [...(expected === null ? [] : [row('Expected', expected)]), row('Found', found)];
    rows.push({
      tone: 'bad',
      label: 'Failed check',
      value: id === null ? code : `${titleOf(id)} (${id})`,
      more,
    });
  }
  // The error of a failed check repeats what the check says. A later error has another code.
  if (lastError !== null && lastError.code !== failure?.code)
    rows.push({ tone: 'bad', label: 'Error', value: `${lastError.message} [${lastError.code}]` });
  if (epoch !== null) {
    const left = epoch.expiresAt - now;
    rows.push(row('Attested', utc(epoch.attestedAt), `${span(now - epoch.attestedAt)} ago`));
    rows.push(
      left > 0
        ? row('Valid until', utc(epoch.expiresAt), `${span(left)} left`)
        : row('Expired', utc(epoch.expiresAt), `${span(-left)} ago`),
    );
  }
  return { id: 'verdict', tone, title, note: meaning, rows: [...rows, row('As of', utc(now))] };
}

const row = (label: string, value: string, note?: string): ViewRow => ({
  label,
  value,
  ...(note === undefined ? {} : { note }),
});

const SEVERITIES: Readonly<Record<Severity, Tone>> = { critical: 'bad', warning: 'warn', info: 'plain' };

const noticesOf = ({ conditions }: StatusReport): Section => ({
  id: 'notices',
  title: 'Needs attention',
  note: 'The worst first.',
  rows: conditions.map(({ id, severity, since, title, reason, remedy }) => ({
    tone: SEVERITIES[severity] ?? 'warn',
    label: `${title}: ${reason}`,
    more: [row('What to do', remedy), row('Since', `${utc(since)}, ${severity} [${id}]`)],
  })),
});

/** How the outcome of a check or of a link looks and reads; failed checks come first. */
const OUTCOMES: Readonly<Record<string, readonly [tone: Tone, words: string]>> = {
  fail: ['bad', 'failed'],
  'not-evaluated': ['plain', 'could not be made'],
  unknown: ['plain', 'not established'],
  pass: ['good', 'passed'],
  'not-applicable': ['plain', 'does not apply'],
};
const RANKS = Object.keys(OUTCOMES);
const look = (outcome: string) => OUTCOMES[outcome] ?? (['plain', outcome] as const);

function chainOf({ verification: { chain, verdict } }: StatusReport): Section {
  const made = new Map(verdict?.checks.map((check) => [check.id, check]));
  const linkOf = ({ id, title, meaning, outcome, checks }: ChainLink): ViewRow => {
    const own = checks.flatMap((check) => made.get(check.id) ?? []);
    const isCustom = id === 'hardware' && outcome === 'pass' && verdict?.roots === 'custom';
    const [tone, words] = look(outcome);
    const count = plural(checks.length, 'check');
    const failed = own.filter((check) => check.outcome === 'fail').length;
    const tally = {
      pass: `${count}${isCustom ? ' under custom roots' : ''}`,
      fail: `${failed} of ${count} failed`,
    };
    return {
      tone: isCustom ? 'warn' : tone,
      label: title,
      value: outcome === 'unknown' ? words : tally[outcome],
      note: meaning,
      more: own
        .toSorted((a, b) => RANKS.indexOf(a.outcome) - RANKS.indexOf(b.outcome))
        .map((check) => ({
          tone: look(check.outcome)[0],
          label: titleOf(check.id),
          value: look(check.outcome)[1],
          more: [
            row('Expected', check.expected),
            row('Found', check.found),
            row('Source', `${check.source}, ${check.id}`),
          ],
        })),
    };
  };
  const note = 'Each link vouches for the next.';
  return { id: 'chain', title: 'Chain of trust', note, isFolded: true, rows: chain.map(linkOf) };
}

/** Seconds that a chart shows, and over how many of them the rate of tokens is the average. */
const [CHARTED, RATED] = [120, 10];

function trafficOf({ now, startedAt, traffic }: StatusReport): Section {
  const end = Math.floor(now / 1000) * 1000; // the second that runs
  const seconds = new Map(traffic.seconds.map((second) => [second.at, second]));
  const agos = Array.from({ length: CHARTED }, (_, i) => CHARTED - i);
  const whole = agos.filter((ago) => end - ago * 1000 >= startedAt - 1000);
  const of = (name: 'inFlight' | 'chunks'): Chart =>
    whole.map((ago) => [ago, seconds.get(end - ago * 1000)?.[name] ?? 0]);
  const counted = (label: string, chart: Chart, value: string): ViewRow => {
    const highest = Math.max(0, ...chart.map(([, count]) => count));
    return { label, value, note: `highest ${highest}`, chart };
  };
  const sampled = (label: string, name: 'firstTokenMs' | 'gapMs'): ViewRow => {
    const filled = traffic.seconds.filter((second) => second[name].length > 0);
    const all = filled.flatMap((second) => second[name]);
    if (all.length === 0) return { label, value: 'none', chart: [] };
    const chart = filled.map((second): Chart[number] => [(end - second.at) / 1000, median(second[name])]);
    return { ...row(label, milliseconds(median(all)), `highest ${milliseconds(Math.max(...all))}`), chart };
  };
  const chunks = of('chunks');
  const recent = chunks.slice(-RATED).reduce((sum, [, count]) => sum + count, 0);
  return {
    id: 'traffic',
    title: 'Traffic',
    note: 'The last two minutes.',
    rows: [
      counted('Requests in flight', of('inFlight'), `${traffic.inFlight}`),
      counted('Tokens per second', chunks, (recent / RATED).toFixed(1)),
      sampled('Time to first token', 'firstTokenMs'),
      sampled('Gap between tokens', 'gapMs'),
    ],
  };
}

const median = (values: TrafficSecond['gapMs']): number =>
  values.toSorted((a, b) => a - b)[(values.length - 1) >> 1] ?? 0;

/** Outcomes of requests, as in the log: tone and words. */
const ENDS: Readonly<Record<string, readonly [Tone, string]>> = {
  answered: ['good', 'answered'],
  service_error: ['warn', 'service error'],
  refused: ['warn', 'refused'],
  failed: ['bad', 'failed'],
  broken_off: ['bad', 'broken off'],
  client_aborted: ['plain', 'client left'],
};

function requestsOf({ traffic: { finished }, now, clientsFile }: StatusReport): Section {
  const shortTime = shortTimes(finished, now);
  const names = finished.some(({ client }) => client !== undefined) || clientsFile !== undefined;
  const sum = (of: 'tokensIn' | 'tokensCached'): string =>
    finished.reduce((all, request) => all + (request[of] ?? 0), 0).toLocaleString('en');
  const isCacheTold = finished.some(({ tokensCached }) => tokensCached !== null);
  const cellsOf = (request: Finished): readonly Cell[] => {
    const { id, at, client, endpoint, model, status, outcome, code } = request;
    const { firstTokenMs, tokensIn, tokensOut, durationMs } = request;
    const [tone, words] = ENDS[outcome] ?? (['plain', outcome] as const);
    return [
      { text: shortTime(at) },
      { text: endpoint, below: id },
      { text: model ?? '–' },
      ...(names ? [{ text: client ?? '–' }] : []),
      { text: `${status ?? '–'}` },
      { text: code === null ? words : `${words}: ${code}`, tone },
      { text: firstTokenMs === null ? '–' : milliseconds(firstTokenMs) },
      { text: `${tokensIn ?? '–'} / ${tokensOut ?? '–'}` },
      { text: milliseconds(durationMs) },
    ];
  };
  const words = ['Time (UTC)', 'Endpoint', 'Model', ...(names ? ['Client'] : []), 'Status', 'Outcome'];
  const numbers = ['First token', 'Tokens in / out', 'Duration'];
  return {
    id: 'requests',
    title: 'Last requests',
    ...(isCacheTold && {
      note: `Of ${sum('tokensIn')} tokens in, ${sum('tokensCached')} came from the cache.`,
    }),
    columns: [...words.map((title) => ({ title })), ...numbers.map((title) => ({ title, isNumber: true }))],
    cells: finished.map(cellsOf),
  };
}

function refusedOf({ traffic: { refused }, now }: StatusReport): Section {
  const shortTime = shortTimes(refused, now);
  return {
    id: 'refused',
    title: 'Refused requests',
    note: 'Since the start: mistakes of clients, such as a wrong base URL or token.',
    columns: ['Last (UTC)', 'Request', 'Error', 'Times'].map((title) => ({ title })),
    cells: refused.map(({ at, count, method, path, code }) => [
      { text: shortTime(at) },
      { text: `${method} ${path}` },
      { text: code, tone: 'warn' },
      { text: `${count}` },
    ]),
  };
}

const manifestsOf = ({ verification: { manifests } }: StatusReport): Section => ({
  id: 'manifests',
  title: 'Enforced manifests',
  columns: ['Since', 'SHA-256'].map((title) => ({ title })),
  cells: manifests.map(({ since, sha256, file }) => [
    { text: since },
    sha256 === null ? { text: `${file} cannot be read`, tone: 'warn' } : { text: sha256 },
  ]),
});

function detailsOf({ version, protocol, startedAt, now, epoch, receipts }: StatusReport): Section {
  const rows = [
    row('Version', `${version}, protocol ${protocol}`),
    row('Running for', span(now - startedAt)),
  ];
  if (receipts !== undefined)
    rows.push(row('Receipts', `${receipts.written} written, ${receipts.lost} lost`));
  if (epoch !== null) {
    rows.push(row('Next renewal', utc(epoch.renewAt)), row('Secret id', epoch.secretId));
    rows.push(row('Manifest, SHA-256', epoch.manifestSha256), row('Verdict, SHA-256', epoch.verdictSha256));
  }
  return { id: 'details', title: 'Details', rows };
}

/** How to write the times of a list: without a date if all are of the day of `now`. */
function shortTimes(list: readonly { readonly at: number }[], now: number): (at: number) => string {
  const isToday = list.every(({ at }) => utc(at).slice(0, 10) === utc(now).slice(0, 10));
  return (at) => utc(at).slice(isToday ? 11 : 0, 19);
}

/** As 2026-12-01 12:34:56 UTC. */
const utc = (ms: number): string => `${new Date(ms).toISOString().slice(0, 19).replace('T', ' ')} UTC`;

const milliseconds = (ms: number): string =>
  ms < 10 ? `${ms.toFixed(1)} ms` : ms < 1_000 ? `${Math.round(ms)} ms` : `${(ms / 1_000).toFixed(2)} s`;

function span(ms: number): string {
  const minutes = Math.floor(ms / 60_000);
  if (minutes < 2) return `${Math.max(0, Math.round(ms / 1_000))} s`;
  if (minutes < 60) return `${minutes} min`;
  return minutes < 48 * 60
    ? `${Math.floor(minutes / 60)} h ${minutes % 60} min`
    : `${Math.floor(minutes / 1_440)} days`;
}
