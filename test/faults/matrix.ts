/**
 * The fault matrix: what an application sees of everything that can go wrong with an answer, and what the log
 * and the counters tell. matrix.test.ts asserts every cell.
 */
import type { InferenceFaultName } from '../../simulator/inference/faults.ts';
import { DOOR } from '../support/doors/library-door.ts';
import type { Mode } from './ask.ts';
import { brokenOff, type Cell, complete, modelError, refused, serviceError } from './cells.ts';

interface Options {
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

export interface FaultRow extends Options {
  /** What goes wrong, for a reader who does not know the simulator. */
  readonly does: string;
  /** The fault as a request asks for it by its model name: `fault=flip_tag:3`. */
  readonly asks: string;
  readonly cells: Readonly<Record<Mode, Cell>>;
}

type Cells = Cell | readonly [stream: Cell, unary: Cell];

/** The proxies that serve many rows, by what starts them. */
export const PROXIES = {
  patient: [],
  impatient: ['--first-byte-timeout=400ms', '--stream-idle-timeout=400ms'],
  strict: ['--gpu-ocsp-allow-unknown=false', '--gpu-ocsp-revoked-grace-period=0'],
} as const satisfies Readonly<Record<string, readonly string[]>>;

/** The answer comes, and cannot be opened. */
const unopened = (code: Parameters<typeof refused>[0]) => [brokenOff(code), refused(code)] as const;

const FORGED = unopened('response_not_authentic');
const MALFORMED = unopened('response_malformed');
const CUT_OFF = unopened('stream_unfinished');

/** Shows on event streams only. */
const onStreams = (stream: Cell) => [stream, complete()] as const;
const LOST = onStreams(brokenOff('response_not_authentic'));
const UNFINISHED = onStreams(brokenOff('stream_unfinished'));

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

/** Seconds since 1970. */
const hoursAgo = (hours: number): number => Math.floor(Date.now() / 1000) - hours * 3_600;

/** A gateway's plain text is not shown, but its status and its hint are. It is no failure to decrypt. */
const gatewayError = (status: number, headers: Record<string, string> = {}): Cell => ({
  ...refused('response_malformed', { status, headers, log: [`status ${status}`] }),
  counters: {},
});

/**
 * The proxy speaks of its own key itself, without the service's hints; the library's is the application's.
 */
const OWN_KEY = { ...refused('api_key_rejected'), log: ['status 401'] };
const IMPATIENT = { proxy: 'impatient' } as const;
const FRESH = { proxy: 'fresh' } as const;
const NEW = { connection: 'new' } as const;
const REUSED = { connection: 'reused' } as const;
const HINT = { 'privatemode-encrypted': 'false', 'retry-after': '7' };

const ROWS: Readonly<Record<string, readonly [asks: string, cells: Cells, options?: Options]>> = {
  // Answers in place of the model's.
  'the service rejects the key': ['fault=status:401', DOOR === 'library' ? serviceError(401) : OWN_KEY],
  'the service answers 403': ['fault=status:403', serviceError(403)],
  'the service answers 429, and when to come back': [
    'fault=status:429,7',
    serviceError(429, { headers: HINT }),
  ],
  'the service answers 503': ['fault=status:503', serviceError(503)],
  'a gateway rejects the key': ['fault=gateway_status:401', DOOR === 'library' ? gatewayError(401) : OWN_KEY],
  'a gateway answers 502 in plain text': ['fault=gateway_status:502', gatewayError(502)],
  'a gateway answers 429, and when to come back': [
    'fault=gateway_status:429,7',
    gatewayError(429, { 'retry-after': '7' }),
  ],
  'the service redirects': ['fault=redirect', refused('upstream_redirect')],
  'the worker does not know the secret': ['fault-once=no_secret', complete(RENEWED), FRESH],
  'the worker knows no secret at all': ['fault=no_secret', refused('secret_denied', RENEWED), FRESH],
  "the worker's GPU certificate is good": ['fault=gpu_status:good', complete()],
  'nobody knows the status of that certificate': ['fault=gpu_status:unknown', complete()],
  'nobody knows it, and the flags do not allow that': [
    'fault=gpu_status:unknown',
    serviceError(500),
    { proxy: 'strict' },
  ],
  'it was revoked within the grace period': [`fault=gpu_status:revoked,${hoursAgo(47)}`, complete()],
  'it was revoked before that': [`fault=gpu_status:revoked,${hoursAgo(49)}`, serviceError(500)],
  'the service answers 413 before the body arrived': ['fault=early_413', serviceError(413)],
  'the service answers 413 while 4 MiB are under way': [
    'fault=early_413',
    serviceError(413),
    { uploadBytes: 4 << 20 },
  ],
  'the service answers 413 and closes at once': ['fault=early_413_abrupt', serviceError(413)],
  'the service closes while 16 MiB are under way, and its answer is lost': [
    'fault=early_413_abrupt',
    refused('upstream_closed_during_upload'),
    { uploadBytes: 16 << 20 },
  ],

  // Delivery: late, in pieces, or not all of it.
  'the service reads the upload slowly': ['fault=slow_drain', complete()],
  'the service does not begin to answer': ['fault=stall_before', refused('first_byte_timeout'), IMPATIENT],
  'a new connection is reset before the answer': ['fault-once=reset_before_headers', complete(RESET), NEW],
  'a connection that was kept is reset before the answer: it may have been closed meanwhile': [
    'fault-once=reset_before_headers',
    complete(STALE),
    REUSED,
  ],
  'every connection is reset before the answer': [
    'fault=reset_before_headers',
    refused('upstream_reset', RESET),
    NEW,
  ],
  'every connection is reset before the answer, the first of which was kept': [
    'fault=reset_before_headers',
    refused('upstream_reset', STALE),
    REUSED,
  ],
  'a burst of 1xx answers comes first': ['fault=informational', complete()],
  'the connection is reset after the head': ['fault=reset_after_headers', CUT_OFF],
  'the connection is reset inside an event': ['fault=reset_mid_event', CUT_OFF],
  'the service closes its side inside an event': ['fault=half_close', CUT_OFF],
  'the answer stops inside an event': ['fault=stall_mid', unopened('stream_idle_timeout'), IMPATIENT],
  'every byte comes on its own': ['fault=trickle', complete()],
  'every event comes in two, cut at each place in turn': ['fault=split_events', complete()],

  // Protection: messages altered, marks forged, plaintext where none may be.
  'one bit of a tag is flipped': ['fault=flip_tag', FORGED],
  'an iv is a byte too short': ['fault=short_iv', MALFORMED],
  'a plaintext stands where a message belongs': ['fault=plain_member', MALFORMED],
  'the answer is encrypted under another nonce': ['fault=wrong_nonce', FORGED],
  'another secret and nonce are named, which are only labels': ['fault=foreign_labels', complete()],
  'the answer is in clear': ['fault=plain_unmarked', FORGED],
  'the answer is in clear, and marked as such': ['fault=plain_marked', refused('response_not_encrypted')],
  'the answer is encrypted, and marked as clear': ['fault=sealed_marked', refused('response_not_encrypted')],
  'the answer is compressed, unasked': ['fault=gzip', refused('response_malformed')],

  // The sequence of events: lost, doubled, swapped, ended too soon, too long, or oddly framed.
  'one event is a line of 10 MiB': ['fault=huge_line', complete()],
  'one event is a line of 40 MiB, beyond the limit': [
    'fault=huge_line:41943040',
    onStreams(brokenOff('response_too_large')),
  ],
  'an event comes twice': ['fault=replay', LOST],
  'two events are swapped': ['fault=reorder', LOST],
  'an event is left out': ['fault=drop', LOST],
  'the terminal event is missing': ['fault=missing_terminal', UNFINISHED],
  'the terminal event comes twice': ['fault=duplicate_terminal', onStreams(complete())],
  'the stream ends cleanly in the middle': ['fault=truncate', UNFINISHED],
  'the stream ends in the middle, with a forged terminal event': ['fault=forged_terminal', UNFINISHED],
  'the model server breaks off with an error event': ['fault=error_event', onStreams(modelError())],
  'lines end with CR LF': ['fault=crlf', onStreams(complete())],
  'comments, ids and retry lines stand between the events': ['fault=comments', onStreams(complete())],
};

export const MATRIX: readonly FaultRow[] = Object.entries(ROWS).map(([does, [asks, cells, options]]) => {
  const [stream, unary] = 'status' in cells ? [cells, cells] : cells;
  return { does, asks, cells: { stream, unary }, ...options };
});

/** The fault's name in the table of the simulator. */
export const faultName = ({ asks }: Pick<FaultRow, 'asks'>): InferenceFaultName =>
  /=([a-z0-9_]+)/.exec(asks)?.[1] as InferenceFaultName;
