/**
 * The fault matrix: what an application sees of everything that can go wrong with an answer, and what the log
 * and the counters tell. matrix.test.ts asserts every cell.
 */
import type { InferenceFaultName } from '../../simulator/inference/faults.ts';
import { DOOR } from '../support/doors/library-door.ts';
import type { Mode } from './ask.ts';
import { brokenOff, type Cell, complete, modelError, refused, serviceError } from './cells.ts';

export interface FaultRow {
  /** The fault as a request asks for it by its model name: `fault=flip_tag:3`. */
  readonly asks: string;
  /** What goes wrong, for a reader who does not know the simulator. */
  readonly does: string;
  readonly cells: Readonly<Record<Mode, Cell>>;
  /** What identifies the row, where `asks` does not. */
  readonly label?: string;
  /**
   * `impatient`: a proxy with short time-outs. `fresh`: one of its own, for what a session allows but once in
   * a while. `strict`: one that accepts no GPU certificate but a good one.
   */
  readonly proxy?: 'impatient' | 'fresh' | 'strict';
  /** Whether the request goes out on a connection that an earlier one has used. */
  readonly connection?: 'new' | 'reused';
  /** Bytes that the request is padded to, where the fault shows on large ones. */
  readonly uploadBytes?: number;
}

/** The proxies that serve many rows, by what starts them. */
export const PROXIES = {
  patient: [],
  impatient: ['--first-byte-timeout=400ms', '--stream-idle-timeout=400ms'],
  strict: ['--gpu-ocsp-allow-unknown=false', '--gpu-ocsp-revoked-grace-period=0'],
} as const satisfies Readonly<Record<string, readonly string[]>>;

type Options = Omit<FaultRow, 'asks' | 'does' | 'cells'>;

const row = (
  asks: string,
  does: string,
  cells: Cell | readonly [stream: Cell, unary: Cell],
  options: Options = {},
): FaultRow => {
  const [stream, unary] = 'status' in cells ? [cells, cells] : cells;
  return { asks, does, cells: { stream, unary }, ...options };
};

/** The answer comes, and cannot be opened. */
const unopened = (code: Parameters<typeof refused>[0]) => [brokenOff(code), refused(code)] as const;

const FORGED = unopened('response_not_authentic');
const MALFORMED = unopened('response_malformed');
const CUT_OFF = unopened('stream_unfinished');

/** Shows on event streams only. */
const onStreams = (stream: Cell) => [stream, complete()] as const;

const retried = (retry: string) => ({
  log: [`retry ${retry}`],
  counters: { upstreamRetries: { [retry]: 1 } },
});
const RESET = { ...retried('connection_reset'), upstream: 2 };
const STALE = { ...retried('stale_connection'), upstream: 2 };
/** The words of the retry table, and of the renewal that comes with it. */
const RENEWED = {
  log: ['The service does not know the secret any more', 'retry no_secret'],
  counters: { upstreamRetries: { no_secret: 1 }, attestations: { accepted: 1 } },
  upstream: 2,
};

const HOUR = 3_600;
const revokedAt = (hoursAgo: number): number => Math.floor(Date.now() / 1000) - hoursAgo * HOUR;

/**
 * The proxy speaks of its own key itself, without the service's hints; the library's is the application's.
 */
const REJECTED_KEY =
  DOOR === 'library' ? serviceError(401) : { ...refused('api_key_rejected'), log: ['status 401'] };

/** Statuses that the service answers, with and without a hint when to come back. */
const STATUSES: readonly FaultRow[] = [403, 409, 429, 500, 503].flatMap((status) => [
  row(`fault=status:${status}`, `the service answers ${status}`, serviceError(status)),
  row(
    `fault=status:${status},7`,
    `the service answers ${status} and says when to come back`,
    serviceError(status, { headers: { 'privatemode-encrypted': 'false', 'retry-after': '7' } }),
  ),
]);

/** A gateway's plain text is not shown, but its status and its hint are. It is no failure to decrypt. */
const gatewayError = (status: number, headers: Record<string, string> = {}): Cell => ({
  ...refused('response_malformed', { status, headers, log: [`status ${status}`] }),
  counters: {},
});

export const MATRIX: readonly FaultRow[] = [
  // Answers in place of the model's.
  row('fault=status:401', 'the service rejects the key', REJECTED_KEY),
  ...STATUSES,
  row(
    'fault=gateway_status:401',
    'a gateway in between rejects the key',
    DOOR === 'library' ? gatewayError(401) : REJECTED_KEY,
  ),
  row('fault=gateway_status:502', 'a gateway in between answers 502 in plain text', gatewayError(502)),
  row(
    'fault=gateway_status:429,7',
    'a gateway in between answers 429 and says when to come back',
    gatewayError(429, { 'retry-after': '7' }),
  ),
  row('fault=gateway_status:503', 'a gateway in between answers 503', gatewayError(503)),
  row('fault=redirect', 'the service redirects', refused('upstream_redirect')),
  row('fault-once=no_secret', 'the worker does not know the secret', complete(RENEWED), { proxy: 'fresh' }),
  row('fault=no_secret', 'the worker knows no secret at all', refused('secret_denied', RENEWED), {
    proxy: 'fresh',
  }),
  row('fault=gpu_status:good', "the worker's GPU certificate is good", complete()),
  row('fault=gpu_status:unknown', "nobody knows the status of the worker's GPU certificate", complete()),
  row(
    'fault=gpu_status:unknown',
    "nobody knows the status of the worker's GPU certificate, and the flags do not allow that",
    serviceError(500),
    {
      proxy: 'strict',
    },
  ),
  row(
    `fault=gpu_status:revoked,${revokedAt(47)}`,
    "the worker's GPU certificate was revoked an hour less ago than the grace period",
    complete(),
    {
      label: 'gpu_status:revoked 47 hours ago',
    },
  ),
  row(
    `fault=gpu_status:revoked,${revokedAt(49)}`,
    "the worker's GPU certificate was revoked an hour longer ago than the grace period",
    serviceError(500),
    { label: 'gpu_status:revoked 49 hours ago' },
  ),
  row('fault=early_413', 'the service answers 413 before the body arrived', serviceError(413)),
  row('fault=early_413', 'the service answers 413 while a large upload is under way', serviceError(413), {
    uploadBytes: 4 << 20,
  }),
  row('fault=early_413_abrupt', 'the service answers 413 and closes at once', serviceError(413)),
  row(
    'fault=early_413_abrupt',
    'the service closes while a large upload is under way, and its answer is lost',
    refused('upstream_closed_during_upload'),
    { uploadBytes: 16 << 20 },
  ),

  // Delivery: late, in pieces, or not all of it.
  row('fault=slow_drain', 'the service reads the upload slowly', complete()),
  row('fault=stall_before', 'the service does not begin to answer', refused('first_byte_timeout'), {
    proxy: 'impatient',
  }),
  row(
    'fault-once=reset_before_headers',
    'a new connection is reset before the answer begins',
    complete(RESET),
    {
      connection: 'new',
    },
  ),
  row(
    'fault-once=reset_before_headers',
    'a connection that was kept alive is reset before the answer begins: it may have been closed meanwhile',
    complete(STALE),
    { connection: 'reused' },
  ),
  row(
    'fault=reset_before_headers',
    'every connection is reset before the answer begins',
    refused('upstream_reset', RESET),
    {
      connection: 'new',
    },
  ),
  row(
    'fault=reset_before_headers',
    'every connection is reset before the answer begins, the first of which was kept alive',
    refused('upstream_reset', STALE),
    {
      connection: 'reused',
    },
  ),
  row('fault=informational', 'a burst of 1xx answers comes first', complete()),
  row('fault=reset_after_headers', 'the connection is reset after the head', CUT_OFF),
  row('fault=reset_mid_event', 'the connection is reset inside an event', CUT_OFF),
  row('fault=half_close', 'the service closes its side inside an event', CUT_OFF),
  row('fault=stall_mid', 'the answer stops inside an event', unopened('stream_idle_timeout'), {
    proxy: 'impatient',
  }),
  row('fault=trickle', 'every byte comes on its own', complete()),
  row('fault=split_events', 'every event comes in two, cut at each place in turn', complete()),

  // Protection: messages altered, marks forged, plaintext where none may be.
  row('fault=flip_tag', 'one bit of a tag is flipped', FORGED),
  row('fault=short_iv', 'an iv is a byte too short', MALFORMED),
  row('fault=plain_member', 'a plaintext stands where a message belongs', MALFORMED),
  row('fault=wrong_nonce', 'the answer is encrypted under another nonce', FORGED),
  row(
    'fault=foreign_labels',
    'the messages name another secret and nonce, which are only labels',
    complete(),
  ),
  row('fault=plain_unmarked', 'the answer is in clear', FORGED),
  row(
    'fault=plain_marked',
    'the answer is in clear, and marked as such: a forged success',
    refused('response_not_encrypted'),
  ),
  row(
    'fault=sealed_marked',
    'the answer is encrypted, and marked as clear',
    refused('response_not_encrypted'),
  ),
  row('fault=gzip', 'the answer is compressed, which was not asked for', refused('response_malformed')),

  // The sequence of events: lost, doubled, swapped, ended too soon, too long, or oddly framed.
  row('fault=huge_line', 'one event is a line of 10 MiB', complete()),
  row(
    'fault=huge_line:41943040',
    'one event is a line of 40 MiB, beyond the limit',
    onStreams(brokenOff('response_too_large')),
  ),
  row('fault=replay', 'an event comes twice', onStreams(brokenOff('response_not_authentic'))),
  row('fault=reorder', 'two events are swapped', onStreams(brokenOff('response_not_authentic'))),
  row('fault=drop', 'an event is left out', onStreams(brokenOff('response_not_authentic'))),
  row('fault=missing_terminal', 'the terminal event is missing', onStreams(brokenOff('stream_unfinished'))),
  row('fault=duplicate_terminal', 'the terminal event comes twice', onStreams(complete())),
  row('fault=truncate', 'the stream ends cleanly in the middle', onStreams(brokenOff('stream_unfinished'))),
  row(
    'fault=forged_terminal',
    'the stream ends in the middle, with a forged terminal event',
    onStreams(brokenOff('stream_unfinished')),
  ),
  row('fault=error_event', 'the model server breaks off with an error event', onStreams(modelError())),
  row('fault=crlf', 'lines end with CR LF', onStreams(complete())),
  row('fault=comments', 'comments, ids and retry lines stand between the events', onStreams(complete())),
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
