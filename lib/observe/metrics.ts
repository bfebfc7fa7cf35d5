/**
 * The Prometheus metrics: which there are, and how they follow from the counters, the state and each finished
 * request.
 */
import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from 'prom-client';
import type { Clock } from '../clock.ts';
import { ERRORS } from '../errors.ts';
import type { Epoch } from '../session/session.ts';
import type { Standing } from '../session/standing.ts';
import { VERSION } from '../version.ts';
import { type Counters, meanGapMs, type RequestStats, UNDECRYPTABLE } from './counters.ts';
import type { Notice } from './notices.ts';

/** The facts about one request when it is over. */
export interface RequestObservation {
  /**
   * Id of the endpoint in the endpoint table; `none`: the proxy refused the request before it found an
   * endpoint.
   */
  readonly route: string;
  /** As in the log. */
  readonly path: string;
  readonly method: string;
  /** 0: no response. */
  readonly status: number;
  /** `gen_ai.operation.name`; undefined for endpoints that are not encrypted, where nothing is inferred. */
  readonly operation: string | undefined;
  readonly stats: RequestStats;
  /** Name of the client in the file of --clients; undefined without that flag. */
  readonly client?: string | undefined;
  readonly requestId: string;
  /** As in the log: lib/gateway/end-of-request.ts. */
  readonly outcome: string;
  /** ms; undefined if nothing was streamed. */
  readonly firstTokenMs: number | undefined;
}

/** What protects requests now; times in ms since 1970. */
export type ProtectionStatus = Pick<Epoch, 'manifestSha256' | 'attestedAt' | 'expiresAt'>;

export type Metrics = ReturnType<typeof createMetrics>;

const PREFIX = 'privatemode_proxy_';
/**
 * Model names that become labels. Clients choose these names, so without a cap they could fill the memory and
 * the database of the operator. A name becomes a label when the service has sent a successful response for it
 * once, so that names of models that do not exist use up no labels.
 */
const MOST_MODELS = 100;
/**
 * Gauges of prom-client that `promtool check metrics` rejects, because only counters may end in _total. Each
 * is the sum of another gauge, such as nodejs_active_handles, over its types.
 */
const MISNAMED = ['handles', 'requests', 'resources'].map((kind) => `nodejs_active_${kind}_total`);
const GEN_AI_LABELS = [
  'gen_ai_operation_name',
  'gen_ai_provider_name',
  'gen_ai_request_model',
  'server_address',
];

/**
 * Bucket bounds in seconds, each double the one before, as the OpenTelemetry conventions for generative AI
 * ask.
 */
const DURATIONS = [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92];
const FIRST_CHUNK = [0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10];
const PER_CHUNK = [0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5];
/** Bucket bounds in tokens, powers of 4, by the same conventions. */
const TOKENS = Array.from({ length: 14 }, (_, power) => 4 ** power);
const ADDED = [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1, 2.5, 5, 10, 30];

/**
 * Creates the Prometheus metrics. Some take the values of the counters at each scrape; others add up the
 * requests that `observe` gets. `protection` is called at each scrape. `render` gives the text of /metrics.
 */
export function createMetrics(options: {
  readonly counters: Counters;
  readonly protection: () => ProtectionStatus | undefined;
  /** The state of the session; undefined: it is not shown. */
  readonly standing?: (() => Pick<Standing, 'state' | 'verified'>) | undefined;
  readonly serverAddress: string;
  /** Bytes that buffered_bytes may reach. Default: 0, without a limit to show. */
  readonly maxBufferedBytes?: number;
  /** What holds now. Default: nothing. */
  readonly notices?: (() => readonly Pick<Notice, 'id' | 'severity' | 'since'>[]) | undefined;
  /** When the TLS certificate expires, in ms since 1970; undefined without TLS. */
  readonly certificateEnds?: (() => number | undefined) | undefined;
  /** Whether --clients is set. Without it no metric has the label client. */
  readonly clients?: boolean;
  /**
   * Whether to add the metrics of the Node process. Default: true; false where several registries live in one
   * process, as in tests.
   */
  readonly processMetrics?: boolean;
  readonly clock: Clock;
}) {
  const registry = new Registry();
  const registers = [registry];
  if (options.processMetrics ?? true) collectDefaultMetrics({ register: registry });
  for (const name of MISNAMED) registry.removeSingleMetric(name);
  exposeCounters(options.counters, registers);
  exposeErrors(options.counters, registers, options.clients === true);
  const { now } = options.clock;
  exposeProtection(options.protection, now, registers);
  exposeConditions(options.notices ?? (() => []), now, registers);
  exposeCertificate(options.certificateEnds ?? (() => undefined), now, registers);
  exposeBufferedBytes(options.counters, options.maxBufferedBytes ?? 0, registers);
  const { standing } = options;
  if (standing !== undefined) {
    const verifiedHelp = 'Whether the service is verified: 1 or 0.';
    scraped(registers, Gauge, 'verified', verifiedHelp, () => [[standing().verified ? 1 : 0]]);
    const awaits = (): Values => [[standing().state === 'awaiting-key' ? 1 : 0]];
    const awaitsHelp = 'Whether only the API key of a client is missing for the verification: 1 or 0.';
    scraped(registers, Gauge, 'awaiting_key', awaitsHelp, awaits);
  }

  const counter = (name: string, help: string, ...labelNames: string[]): Counter =>
    new Counter({ name: PREFIX + name, help, labelNames, registers });
  const histogram = (name: string, help: string, buckets: number[], ...labelNames: string[]): Histogram =>
    new Histogram({ name, help, buckets, labelNames, registers });
  const genAi = (name: string, help: string, buckets: number[], ...labels: string[]): Histogram =>
    histogram(`gen_ai_client_${name}`, help, buckets, ...GEN_AI_LABELS, ...labels);

  const requests = counter(
    'requests_total',
    'Requests answered, of those admitted.',
    'route',
    'method',
    'code',
    'client',
  );
  const tokensTotal = counter(
    'tokens_total',
    'Tokens, as counted by the service; cached ones are part of the input.',
    'route',
    'model',
    'type',
    'client',
  );
  const bytes = counter('bytes_total', 'Bytes of bodies, by direction and side.', 'direction', 'leg');
  const addedHelp =
    'Time from the last byte of a request body until all of it has left encrypted; waits for a verified service included.';
  const added = histogram(`${PREFIX}added_first_byte_seconds`, addedHelp, ADDED);
  const durationHelp =
    'Duration of an operation; error_type is the code of an error of the proxy, the status of an error of the service, service_error for its error in a stream, else empty.';
  const duration = genAi('operation_duration_seconds', durationHelp, DURATIONS, 'error_type');
  const firstChunkHelp = 'Time to the first event of a stream.';
  const firstChunk = genAi('operation_time_to_first_chunk_seconds', firstChunkHelp, FIRST_CHUNK);
  const perChunkHelp = 'Mean time between the events of a stream; an event is one token or a few.';
  const perChunk = genAi('operation_time_per_output_chunk_seconds', perChunkHelp, PER_CHUNK);
  const tokensHelp = 'Tokens per request, as counted by the service; cached ones are part of the input.';
  const tokens = genAi('token_usage', tokensHelp, TOKENS, 'gen_ai_token_type');
  // This metric has no model and error labels: together with the clients they would make too many series.
  const clientDurationHelp = 'Duration of requests, per client.';
  const clientDuration = options.clients
    ? histogram(`${PREFIX}client_request_duration_seconds`, clientDurationHelp, DURATIONS, 'client')
    : undefined;
  const modelLabel = cappedLabel(MOST_MODELS);

  return {
    /** All metrics, for the table in docs/monitoring.md. */
    all: () => registry.getMetricsAsArray(),
    contentType: registry.contentType,
    render: (): Promise<string> => registry.metrics(),
    /** Called once per request, never per token. */
    observe(observation: RequestObservation): void {
      const { route, method, status, operation, stats, client, firstTokenMs } = observation;
      const { startedAt, uploadedAt, sentAt, firstChunkAt, endedAt } = stats;
      // prom-client leaves out a label that has no value.
      const ofClient = client === undefined ? undefined : { client };
      requests.inc({ route, method, code: String(status), ...ofClient });
      if (ofClient !== undefined) clientDuration?.observe(ofClient, (endedAt - startedAt) / 1000);
      bytes.inc({ direction: 'in', leg: 'client' }, stats.bytes.fromClient);
      bytes.inc({ direction: 'out', leg: 'remote' }, stats.bytes.toRemote);
      bytes.inc({ direction: 'in', leg: 'remote' }, stats.bytes.fromRemote);
      bytes.inc({ direction: 'out', leg: 'client' }, stats.bytes.toClient);
      if (uploadedAt !== undefined && sentAt !== undefined) added.observe((sentAt - uploadedAt) / 1000);
      if (operation === undefined) return;

      const model = modelLabel(stats.model ?? '', isAuthenticSuccess(observation));
      const labels = {
        gen_ai_operation_name: operation,
        gen_ai_provider_name: 'privatemode',
        gen_ai_request_model: model,
        server_address: options.serverAddress,
      };
      duration.observe({ ...labels, error_type: errorType(observation) }, (endedAt - startedAt) / 1000);
      const { prompt: input, completion: output, cached } = stats.usage ?? {};
      const counts = { input, output, cached };
      for (const [type, count] of Object.entries(counts)) {
        if (count === undefined) continue;
        tokens.observe({ ...labels, gen_ai_token_type: type }, count);
        tokensTotal.inc({ route, model, type, ...ofClient }, count);
      }
      if (firstTokenMs === undefined || firstChunkAt === undefined) return; // not a stream
      firstChunk.observe(labels, (firstChunkAt - startedAt) / 1000);
      const gapMs = meanGapMs(stats);
      if (gapMs !== undefined) perChunk.observe(labels, gapMs / 1000);
    },
  };
}

function exposeCounters(counters: Counters, registers: Registry[]): void {
  const total = (kind: Kind, name: string, help: string, value: () => number): void =>
    scraped(registers, kind, name, help, () => [[value()]]);
  const counted = (name: string, help: string, label: string, map: ReadonlyMap<unknown, number>): void => {
    const values = () => Array.from(map, ([key, value]) => [value, { [label]: String(key) }] as const);
    scraped(registers, Counter, name, help, values, label);
  };
  total(
    Counter,
    'requests_received_total',
    'Requests admitted; refusals before that are in errors_total.',
    () => counters.requests,
  );
  total(Counter, 'stream_events_total', 'Stream events decrypted.', () => counters.streamEvents);
  const truncated = 'Streams that ended before they were complete.';
  total(Counter, 'truncated_streams_total', truncated, () => counters.truncatedStreams);
  counted('responses_total', 'Responses to admitted requests, by status.', 'code', counters.responses);
  // Each series begins at 0, because increase() does not see the first value of a series.
  const failures = (): Values =>
    Array.from(UNDECRYPTABLE, (reason) => [counters.decryptFailures.get(reason) ?? 0, { reason }] as const);
  const undecrypted = 'Responses that could not be decrypted.';
  scraped(registers, Counter, 'decrypt_failures_total', undecrypted, failures, 'reason');
  counted('client_aborts_total', 'Requests whose client left early.', 'phase', counters.clientAborts);
  counted('upstream_retries_total', 'Requests tried a second time.', 'reason', counters.upstreamRetries);
  const attested =
    'Verifications of the remote: accepted, failed, or unavailable where AMD or Intel could not be asked.';
  const results = ['accepted', 'failed', 'unavailable'] as const;
  const attestations = (): Values =>
    results.map((result) => [counters.attestations.get(result) ?? 0, { result }] as const);
  scraped(registers, Counter, 'attestation_total', attested, attestations, 'result');
  total(Counter, 'receipts_written_total', 'Receipts written to disk.', () => counters.receipts.written);
  const lost = 'Receipts that could not be written.';
  total(Counter, 'receipts_lost_total', lost, () => counters.receipts.lost);
  total(Gauge, 'requests_in_flight', 'Requests being answered.', () => counters.inFlight);
  total(Gauge, 'buffered_bytes', 'Memory reserved for request bodies.', () => counters.bufferedBytes);
  new Gauge({
    name: `${PREFIX}build_info`,
    help: 'Always 1.',
    labelNames: ['version'],
    registers,
  }).set({ version: VERSION }, 1);
}

/**
 * The codes for which the proxy refuses a service. Their series begin at 0, because increase() does not see
 * the first value of a series.
 */
const REJECTIONS = Object.entries(ERRORS)
  .filter(([, { status, blame }]) => status === 400 && blame === 'attestation')
  .map(([code]) => [code, 0] as const);

function exposeErrors(counters: Counters, registers: Registry[], clients: boolean): void {
  const values = (): Values =>
    Array.from(new Map([['', new Map<string, number>()], ...counters.errors]), ([client, codes]) => {
      const counts = new Map([...(client === '' ? REJECTIONS : []), ...codes]);
      return Array.from(counts, ([code, value]) => [value, clients ? { client, code } : { code }] as const);
    }).flat();
  const whose = clients ? '; client is empty if the client is unknown' : '';
  const help = `Requests that ended in an error of the proxy, by code${whose}.`;
  scraped(registers, Counter, 'errors_total', help, values, ...(clients ? ['client'] : []), 'code');
  if (!clients) return;
  const away = 'Requests admitted without limits because --limits-store was unavailable.';
  scraped(registers, Counter, 'limits_uncounted_total', away, () => [[counters.uncounted]]);
}

function exposeProtection(
  protection: () => ProtectionStatus | undefined,
  now: () => number,
  registers: Registry[],
): void {
  const manifest = (): Values => {
    const digest = protection()?.manifestSha256;
    return digest === undefined ? [] : [[1, { digest }]];
  };
  const manifestHelp = 'The manifest that is enforced; always 1.';
  scraped(registers, Gauge, 'manifest_info', manifestHelp, manifest, 'digest');
  const seconds = (name: string, help: string, ms: (status: ProtectionStatus) => number): void =>
    scraped(registers, Gauge, name, help, () => {
      const status = protection();
      return status === undefined ? [] : [[ms(status) / 1000]];
    });
  seconds(
    'attestation_age_seconds',
    'Time since the remote was verified.',
    (status) => now() - status.attestedAt,
  );
  seconds('secret_remaining_seconds', 'Time until the secret expires.', (status) => status.expiresAt - now());
}

/** Exposes ids, severities and ages, but no reasons, because reasons name files and clients. */
function exposeConditions(
  notices: () => readonly Pick<Notice, 'id' | 'severity' | 'since'>[],
  now: () => number,
  registers: Registry[],
): void {
  const held = (): Values => notices().map(({ id, severity }) => [1, { id, severity }]);
  const heldHelp = "What needs a person's attention; always 1, and absent where nothing does.";
  scraped(registers, Gauge, 'condition', heldHelp, held, 'id', 'severity');
  const ages = (): Values => notices().map(({ id, since }) => [(now() - since) / 1000, { id }]);
  scraped(registers, Gauge, 'condition_since_seconds', 'Time since a condition began.', ages, 'id');
}

function exposeCertificate(ends: () => number | undefined, now: () => number, registers: Registry[]): void {
  new Gauge({
    name: `${PREFIX}tls_certificate_expires_seconds`,
    help: 'Time until the TLS certificate expires, below 0 once it has.',
    registers,
    collect() {
      const at = ends();
      if (at === undefined) this.remove();
      else this.set((at - now()) / 1000);
    },
  });
}

/** Exposes what request bodies may take, and how full that is. */
function exposeBufferedBytes(counters: Counters, limit: number, registers: Registry[]): void {
  const limitHelp = 'Memory available for request bodies.';
  scraped(registers, Gauge, 'buffered_bytes_limit', limitHelp, () => [[limit]]);
  new Gauge({
    name: `${PREFIX}buffered_bytes_ratio`,
    help: 'Reserved share of the memory for request bodies.',
    registers,
    collect() {
      this.set(limit === 0 ? 0 : counters.bufferedBytes / limit);
    },
  });
}

type Kind = typeof Counter | typeof Gauge;
type Values = Iterable<readonly [value: number, labels?: Readonly<Record<string, string>>]>;

/** Registers a metric whose values `read` returns at each scrape. */
function scraped(
  registers: Registry[],
  Metric: Kind,
  name: string,
  help: string,
  read: () => Values,
  ...labelNames: string[]
): void {
  function collect(this: Counter | Gauge): void {
    this.reset();
    if (labelNames.length === 0) this.remove(); // otherwise it would be 0 while it has no value
    for (const [value, labels = {}] of read()) this.inc(labels, value);
  }
  new Metric({ name: PREFIX + name, help, labelNames, registers, collect });
}

/**
 * Whether the service itself sent a successful response. On encrypted endpoints a response below 400 has
 * always authenticated (lib/gateway/respond.ts). A request that was never sent got an estimate of the proxy.
 */
const isAuthenticSuccess = ({ outcome, status, stats }: RequestObservation): boolean =>
  outcome === 'answered' && status < 400 && stats.bytes.toRemote > 0;

/** The label error_type: empty for a request without an error, also if its client left early. */
function errorType({ outcome, status, stats }: RequestObservation): string {
  if (stats.error !== undefined) return stats.error.code;
  if (status >= 400) return String(status);
  return outcome === 'service_error' ? outcome : '';
}

/**
 * Returns a function that limits the values of a label. It keeps the empty value and the first `most` values
 * that were `good` once; every other value becomes `other`.
 */
function cappedLabel(most: number): (value: string, good: boolean) => string {
  const known = new Set(['']);
  return (value, good) => {
    if (known.has(value)) return value;
    if (!good || known.size > most) return 'other';
    known.add(value);
    return value;
  };
}
