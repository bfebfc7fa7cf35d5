/**
 * Turns a status report into sections of rows for people. The terminal and the status page show the same
 * sections, and neither of them decides anything.
 */
import { plural, printable } from '../text.ts';
import { titleOf } from '../verdict/chain-of-trust.ts';
import type { Verdict } from '../verdict/verdict.ts';
import type { Finished, StatusReport } from './status-report.ts';

export type Tone = StatusReport['standing']['tone'];

/** The mark that stands for a tone where there is no colour. */
export const MARKS = { good: '✓', warn: '!', bad: '✗', plain: '·' } as const satisfies Record<Tone, string>;

/** A row with a tone is a statement; a row without a tone is a fact. `more`: the rows below. */
export interface ViewRow {
  readonly tone?: Tone;
  readonly label: string;
  readonly value?: string;
  readonly note?: string | undefined;
  readonly more?: readonly ViewRow[];
  readonly chart?: Chart;
}

/** A value for each of the last 120 seconds, oldest first; undefined if nothing was measured then. */
export type Chart = readonly (number | undefined)[];

/** `isFolded`: a row shows its `more` only when opened. `table`: lines of cells with the same labels. */
export interface Section {
  readonly id: 'verdict' | 'notices' | 'chain' | 'traffic' | 'requests';
  readonly title: string;
  readonly note?: string | undefined;
  readonly tone?: Tone;
  readonly isFolded?: boolean;
  readonly rows?: readonly ViewRow[];
  readonly table?: readonly (readonly ViewRow[])[];
}

/** The most characters of a text. The limit is high: the last part of a notice's reason may matter most. */
const LONGEST_TEXT = 4_000;

/** Returns the sections that have content. Throws for a report that this version did not make. */
export function viewOf(report: StatusReport): readonly Section[] {
  const parts = [verdictOf, noticesOf, chainOf, trafficOf, requestsOf];
  const sections: readonly Section[] = parts.map((part) => part(report));
  const filled = sections.filter(({ rows = [], table = [] }) => rows.length + table.length > 0);
  return harmless(filled) as readonly Section[];
}

/** Copies a value, and escapes in its texts every character that steers a terminal or is invisible. */
function harmless(value: unknown): unknown {
  if (typeof value === 'string') return printable(value, LONGEST_TEXT);
  if (Array.isArray(value)) return value.map(harmless);
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([name, member]) => [name, harmless(member)]));
}

/** The headline may overrule the state: expired secrets protect nothing, custom roots prove nothing. */
function headlineOf(report: StatusReport): readonly [tone: Tone, title: string, meaning: string] {
  const { verified, tone, title, meaning } = report.standing;
  const { epoch, verdict } = report.verification;
  if (verified && epoch !== null && Date.parse(epoch.expiresAt) <= report.now)
    return ['bad', 'Not verified', 'The attestation has expired. No request leaves this machine.'];
  const custom = 'The roots are not those of AMD and Intel: this says nothing about real hardware.';
  if (verified && verdict?.roots === 'custom') return ['warn', 'Verified under custom roots', custom];
  const failing = 'Verified, but the service cannot be reached';
  if (verified && report.conditions.some(({ id }) => id === 'service_failing'))
    return ['warn', failing, 'Requests fail until it answers again.'];
  return [tone, title, meaning];
}

const row = (label: string, value: string, note?: string): ViewRow => ({ label, value, note });

function verdictOf(report: StatusReport): Section {
  const { now, lastError, verification } = report;
  const { epoch, verdict, version, protocol } = verification;
  const [tone, title, note] = headlineOf(report);
  const rows: ViewRow[] = [];
  if (lastError !== null) rows.push({ tone: 'plain', label: 'What to do', value: lastError.remedy });
  const failure = verdict?.failure ?? null;
  if (failure !== null) {
    const value = failure.id === null ? failure.code : `${titleOf(failure.id)} (${failure.id})`;
    const more = [row('Expected', failure.expected ?? '–'), row('Found', failure.found)];
    rows.push({ tone: 'bad', label: 'Failed check', value, more });
  }
  // An error with the code of the failed check would only repeat the check, so such an error is not shown. A
  // later error has another code.
  if (lastError !== null && lastError.code !== failure?.code)
    rows.push({ tone: 'bad', label: 'Error', value: `${lastError.message} [${lastError.code}]` });
  if (epoch !== null) {
    const left = Math.floor((Date.parse(epoch.expiresAt) - now) / 60_000);
    const age = Math.floor((now - Date.parse(epoch.attestedAt)) / 60_000);
    rows.push(row('Attested', utc(epoch.attestedAt), `${age} min ago`));
    rows.push(row('Valid until', utc(epoch.expiresAt), left < 0 ? 'expired' : `${left} min left`));
  }
  rows.push(row('As of', utc(now), `version ${version}, protocol ${protocol}`));
  if (epoch !== null) rows.push(row('Manifest, SHA-256', epoch.manifestSha256));
  return { id: 'verdict', tone, title, note, rows };
}

/** The tone of each severity, and of each outcome of checks and requests. A word not listed is plain. */
const LOOKS: readonly (readonly [tone: Tone, words: readonly string[]])[] = [
  ['bad', ['critical', 'fail', 'failed', 'broken_off']],
  ['warn', ['warning', 'service_error', 'refused']],
  ['good', ['pass', 'answered']],
];
const toneOf = (word: string): Tone => LOOKS.find(([, words]) => words.includes(word))?.[0] ?? 'plain';

const noticesOf = ({ conditions }: StatusReport): Section => ({
  id: 'notices',
  title: 'Needs attention',
  rows: conditions.map(({ id, severity, since, title, reason, remedy }) => ({
    tone: toneOf(severity),
    label: `${title}: ${reason}`,
    more: [row('What to do', remedy), row('Since', `${utc(since)}, ${severity} [${id}]`)],
  })),
});

function chainOf({ verification: { chain, verdict } }: StatusReport): Section {
  const rows = chain.map(({ id, title, meaning, outcome, checks }): ViewRow => {
    const own = (verdict?.checks ?? []).filter((check) => checks.some(({ id }) => id === check.id));
    const failed = own.filter((check) => check.outcome === 'fail');
    const count = plural(checks.length, 'check');
    const tally = failed.length > 0 ? `${failed.length} of ${count} failed` : count;
    const isCustom = id === 'hardware' && outcome === 'pass' && verdict?.roots === 'custom';
    return {
      tone: isCustom ? 'warn' : toneOf(outcome),
      label: title,
      value: outcome === 'unknown' ? 'not established' : tally,
      note: meaning,
      more: [...new Set([...failed, ...own])].map(checkOf),
    };
  });
  return { id: 'chain', title: 'Chain of trust', note: 'Each vouches for the next.', isFolded: true, rows };
}

const checkOf = ({ id, outcome, expected, found, source }: Verdict['checks'][number]): ViewRow => ({
  tone: toneOf(outcome),
  label: titleOf(id),
  value: outcome.replace('-', ' '),
  more: [row('Expected', expected), row('Found', found), row('Source', `${source}, ${id}`)],
});

/** How many seconds a chart shows, and over how many seconds the rate of tokens is averaged. */
const [CHARTED, RATED] = [120, 10];

function trafficOf({ now, traffic: { inFlight, seconds } }: StatusReport): Section {
  const running = Math.floor(now / 1000); // the present second, which is not over
  const known = new Map(seconds.map((second) => [second.at / 1000, second]));
  const charted = Array.from({ length: CHARTED }, (_, i) => known.get(running - CHARTED + i));
  const graph = (label: string, chart: Chart, words: (value?: number) => string, value?: string): ViewRow => {
    const sorted = chart.filter((one) => one !== undefined).sort((a, b) => a - b);
    return {
      ...row(label, value ?? words(sorted[sorted.length >> 1]), `highest ${words(sorted.at(-1))}`),
      chart,
    };
  };
  const counts = (name: 'inFlight' | 'chunks') => charted.map((second) => second?.[name] ?? 0);
  const samples = (name: 'firstTokenMs' | 'gapMs') => charted.map((second) => second?.[name] ?? undefined);
  const chunks = counts('chunks');
  const rate = chunks.slice(-RATED).reduce((sum, count) => sum + count) / RATED;
  const rows = [
    graph('Requests in flight', counts('inFlight'), String, String(inFlight)),
    graph('Tokens per second', chunks, String, rate.toFixed(1)),
    graph('Time to first token', samples('firstTokenMs'), milliseconds),
    graph('Gap between tokens', samples('gapMs'), milliseconds),
  ];
  return { id: 'traffic', title: 'Traffic', note: 'The last two minutes.', rows };
}

function requestsOf({ traffic: { finished }, now, clientsFile }: StatusReport): Section {
  const today = utc(now).slice(0, 11);
  const cellsOf = (request: Finished): readonly ViewRow[] => {
    const { id, endpoint, method, path, status, outcome, code, tokensIn, tokensOut } = request;
    const end = `${status ?? '–'} ${outcome.replace('_', ' ')}${code === null ? '' : `: ${code}`}`;
    return [
      row('Time (UTC)', utc(request.at).slice(0, 19).replace(today, '')),
      row('Endpoint', endpoint === 'none' ? `${method} ${path}` : endpoint, id),
      row('Model', request.model ?? '–'),
      ...(clientsFile === undefined ? [] : [row('Client', request.client ?? '–')]),
      { tone: toneOf(outcome), label: 'Outcome', value: end },
      row('First token', milliseconds(request.firstTokenMs)),
      row('Tokens in / out', `${tokensIn ?? '–'} / ${tokensOut ?? '–'}`),
      row('Duration', milliseconds(request.durationMs)),
    ];
  };
  const sum = (of: 'tokensIn' | 'tokensCached'): string =>
    finished.reduce((all, request) => all + (request[of] ?? 0), 0).toLocaleString('en');
  const saved = `Of ${sum('tokensIn')} tokens in, ${sum('tokensCached')} came from the cache.`;
  const note = finished.some(({ tokensCached }) => tokensCached !== null) ? saved : undefined;
  return { id: 'requests', title: 'Last requests', note, table: finished.map(cellsOf) };
}

/** Writes a time, in ms since 1970 or in RFC 3339, as 2026-12-01 12:34:56 UTC. */
const utc = (at: number | string): string =>
  `${new Date(at).toISOString().slice(0, 19).replace('T', ' ')} UTC`;

function milliseconds(ms?: number | null): string {
  if (ms === null || ms === undefined) return '–';
  return ms < 1_000 ? `${ms.toFixed(ms < 10 ? 1 : 0)} ms` : `${(ms / 1_000).toFixed(2)} s`;
}
