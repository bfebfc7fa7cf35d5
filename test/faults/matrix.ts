/**
 * The fault matrix: what an application sees of everything that can go wrong with the service, and what the log and the
 * counters tell. matrix.test.ts asserts every cell in both dialects; docs/reliability.md is made from it.
 */
import type { InferenceFaultName } from '../../lib/simulator/inference/faults.ts';
import type { Mode } from './ask.ts';
import { brokenOff, type Cell, complete, modelError, refused, serviceError } from './cells.ts';

export interface FaultRow {
  /** The fault as a request asks for it by its model name: `fault=flip_tag:3`. */
  readonly asks: string;
  /** What identifies the row to a reader, where `asks` does not. */
  readonly label?: string;
  /** Where the fault's own line of help does not say it. */
  readonly does?: string;
  readonly cells: Readonly<Record<Mode, Cell>>;
  /**
   * `impatient`: a proxy with short time-outs. `fresh`: one of its own, for what a session allows but once in a while.
   * `strict`: one that accepts no GPU certificate but a good one.
   */
  readonly proxy?: 'impatient' | 'fresh' | 'strict';
  /** Whether the request goes out on a connection that an earlier one has used. */
  readonly connection?: 'new' | 'reused';
  /** Bytes that the request is padded to, where the fault shows on large ones. */
  readonly uploadBytes?: number;
}

type Options = Omit<FaultRow, 'asks' | 'cells'>;

const row = (asks: string, stream: Cell, unary: Cell = stream, options: Options = {}): FaultRow => ({
  asks,
  cells: { stream, unary },
  ...options,
});

const tampered = (asks: string, code: Parameters<typeof refused>[0] = 'response_not_authentic') =>
  row(`fault=${asks}`, brokenOff(code), refused(code));

/** Shows on event streams only. */
const streams = (asks: string, stream: Cell) => row(`fault=${asks}`, stream, complete());

const retried = (retry: string) => ({
  log: [`retry ${retry}`],
  counters: { upstreamRetries: { [retry]: 1 } },
});

/** The words of the retry table, and of the renewal that comes with it. */
const RENEWED = {
  log: ['retry no_secret', 'The service does not know the secret any more'],
  counters: { upstreamRetries: { no_secret: 1 }, attestations: { accepted: 1 } },
  upstream: 2,
};
const RESET = { ...retried('connection_reset'), upstream: 2 };
const STALE = { ...retried('stale_connection'), upstream: 2 };

const HOUR = 3_600;
const revokedAt = (hoursAgo: number): number => Math.floor(Date.now() / 1000) - hoursAgo * HOUR;

/** Statuses that the service or the gateway before it answers, with and without a hint when to come back. */
const STATUSES: readonly FaultRow[] = [401, 403, 409, 429, 500, 503].flatMap((status) => [
  row(`fault=status:${status}`, serviceError(status)),
  row(
    `fault=status:${status},7`,
    serviceError(status, { headers: { 'privatemode-encrypted': 'false', 'retry-after': '7' } }),
  ),
]);

/** A gateway's plain text is not shown, but its status and its hint are. */
const gatewayError = (status: number, headers: Record<string, string> = {}) =>
  refused('response_malformed', { status, headers, log: [`status ${status}`] });

export const MATRIX: readonly FaultRow[] = [
  // Answers in place of the model's.
  ...STATUSES,
  row('fault=gateway_status', gatewayError(502)),
  row('fault=gateway_status:429,7', gatewayError(429, { 'retry-after': '7' })),
  row('fault=gateway_status:503', gatewayError(503)),
  row('fault=redirect', refused('upstream_redirect')),
  row('fault-once=no_secret', complete(RENEWED), complete(RENEWED), {
    proxy: 'fresh',
    does: 'the worker does not know the secret, once',
  }),
  row('fault=no_secret', serviceError(500, RENEWED), serviceError(500, RENEWED), {
    proxy: 'fresh',
    does: 'the worker knows no secret at all',
  }),
  row('fault=gpu_status:good', complete()),
  row('fault=gpu_status:unknown', complete()),
  row('fault=gpu_status:unknown', serviceError(500), serviceError(500), {
    proxy: 'strict',
    does: 'the same, and the flags allow no unknown status',
  }),
  row(`fault=gpu_status:revoked,${revokedAt(47)}`, complete(), complete(), {
    label: 'gpu_status:revoked, 47 hours ago',
    does: "the worker's GPU certificate was revoked 47 hours ago, an hour within the grace period",
  }),
  row(`fault=gpu_status:revoked,${revokedAt(49)}`, serviceError(500), serviceError(500), {
    label: 'gpu_status:revoked, 49 hours ago',
    does: "the worker's GPU certificate was revoked 49 hours ago, an hour after the grace period",
  }),
  row('fault=early_413', serviceError(413)),
  row('fault=early_413', serviceError(413), serviceError(413), {
    uploadBytes: 4 << 20,
    does: 'the same, while a large upload is under way',
  }),
  row('fault=early_413_abrupt', serviceError(413), serviceError(413)),
  row(
    'fault=early_413_abrupt',
    refused('upstream_closed_during_upload'),
    refused('upstream_closed_during_upload'),
    { uploadBytes: 16 << 20, does: 'the same, while a large upload is under way: the answer is lost' },
  ),

  // Delivery: late, in pieces, or not all of it.
  row('fault=slow_drain', complete()),
  row('fault=stall_before', refused('first_byte_timeout'), refused('first_byte_timeout'), {
    proxy: 'impatient',
  }),
  row('fault-once=reset_before_headers', complete(RESET), complete(RESET), {
    connection: 'new',
    does: 'resets a new connection after the request was read, once',
  }),
  row('fault-once=reset_before_headers', complete(STALE), complete(STALE), {
    connection: 'reused',
    does: 'the same on a connection that was kept alive, where it may have been closed meanwhile',
  }),
  row('fault=reset_before_headers', refused('upstream_reset', RESET), refused('upstream_reset', RESET), {
    connection: 'new',
  }),
  row('fault=reset_before_headers', refused('upstream_reset', STALE), refused('upstream_reset', STALE), {
    connection: 'reused',
  }),
  row('fault=informational', complete()),
  row('fault=reset_after_headers', brokenOff('stream_unfinished'), refused('stream_unfinished')),
  row('fault=reset_mid_event', brokenOff('stream_unfinished'), refused('stream_unfinished')),
  row('fault=half_close', brokenOff('stream_unfinished'), refused('stream_unfinished')),
  row('fault=stall_mid', brokenOff('stream_idle_timeout'), refused('stream_idle_timeout'), {
    proxy: 'impatient',
  }),
  row('fault=trickle', complete()),
  row('fault=split_events', complete()),

  // Protection: messages altered, marks forged, plaintext where none may be.
  tampered('flip_tag'),
  tampered('short_iv', 'response_malformed'),
  tampered('plain_member', 'response_malformed'),
  tampered('wrong_nonce'),
  row('fault=foreign_labels', complete()),
  tampered('plain_unmarked'),
  row('fault=plain_marked', refused('response_not_encrypted')),
  row('fault=sealed_marked', refused('response_not_encrypted')),
  row('fault=gzip', refused('response_malformed')),

  // The sequence of events: lost, doubled, swapped, ended too soon, too long, or oddly framed.
  row('fault=huge_line', complete()),
  row('fault=huge_line:41943040', brokenOff('response_too_large'), complete(), {
    does: 'makes one event an authentic line of 40 MiB, beyond the limit of an event',
  }),
  streams('replay', brokenOff('response_not_authentic')),
  streams('reorder', brokenOff('response_not_authentic')),
  streams('drop', brokenOff('response_not_authentic')),
  streams('missing_terminal', brokenOff('stream_unfinished')),
  streams('duplicate_terminal', complete()),
  streams('truncate', brokenOff('stream_unfinished')),
  streams('forged_terminal', brokenOff('stream_unfinished')),
  streams('error_event', modelError()),
  streams('crlf', complete()),
  streams('comments', complete()),
];

/** What the row is called; no two rows have the same name. */
export function nameOf({ asks, label, proxy, connection, uploadBytes }: FaultRow): string {
  const fault = label ?? asks.replace(/^fault=/, '').replace(/^fault-once=(.*)/, '$1, once');
  const large = uploadBytes === undefined ? '' : `, ${uploadBytes >> 20} MiB under way`;
  const reused = connection === undefined ? '' : `, ${connection} connection`;
  return `${fault}${large}${reused}${proxy === 'strict' ? ', strict flags' : ''}`;
}

/** The fault's name in the table of the simulator. */
export const faultName = ({ asks }: Pick<FaultRow, 'asks'>): InferenceFaultName =>
  /=([a-z0-9_]+)/.exec(asks)?.[1] as InferenceFaultName;
