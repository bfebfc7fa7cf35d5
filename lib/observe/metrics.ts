import { AggregatorRegistry, Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from 'prom-client';
import { VERSION } from '../version.ts';
import type { Counters } from './counters.ts';

/** What is known of one request when it is over; times in seconds. */
export interface RequestObservation {
  /** Id of the endpoint table, or `local`. */
  readonly route: string;
  readonly method: string;
  readonly status: number;
  /** `gen_ai.operation.name`; undefined where nothing was inferred. */
  readonly operation: string | undefined;
  readonly model: string | undefined;
  /** Code of lib/errors.ts, or undefined. */
  readonly error: string | undefined;
  readonly duration: number;
  readonly timeToFirstChunk?: number | undefined;
  /** Chunks of a stream, the first included. */
  readonly chunks?: number | undefined;
  /** Tokens by the service's count, where it gave one. */
  readonly inputTokens?: number | undefined;
  readonly outputTokens?: number | undefined;
  /** From the last byte of the request to the first byte upstream, and back: what we added ourselves. */
  readonly addedFirstByte?: number | undefined;
  readonly bytes: {
    readonly fromClient: number;
    readonly toRemote: number;
    readonly fromRemote: number;
    readonly toClient: number;
  };
}

/** What protects requests now; times in ms since 1970. */
export interface ProtectionStatus {
  readonly manifestSha256: string;
  readonly attestedAt: number;
  readonly expiresAt: number;
}

export interface Metrics {
  /** Once per request, never per token. */
  observe(observation: RequestObservation): void;
  /** The text of /metrics, those of `others` added. */
  render(): Promise<string>;
  /** What another process adds to its own. */
  snapshot(): Promise<readonly object[]>;
  readonly contentType: string;
}

const PREFIX = 'privatemode_proxy_';
/** The client names the model: without a cap it could fill the memory, and the operator's database. */
const MOST_MODELS = 100;
const PROVIDER = 'privatemode';
const GEN_AI_LABELS = [
  'gen_ai_operation_name',
  'gen_ai_provider_name',
  'gen_ai_request_model',
  'server_address',
];

/** Seconds, doubling, as the OpenTelemetry conventions for generative AI ask for. */
const DURATIONS = [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92];
const FIRST_CHUNK = [0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10];
const PER_CHUNK = [0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5];
/** Tokens, powers of 4, by the same conventions. */
const TOKENS = Array.from({ length: 14 }, (_, power) => 4 ** power);
const ADDED = [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5];

/**
 * Prometheus metrics: the counters as they are when asked, and what each request was observed to be. `protection` is
 * asked at each scrape.
 */
export function createMetrics(options: {
  readonly counters: Counters;
  readonly protection: () => ProtectionStatus | undefined;
  readonly serverAddress: string;
  /** Off where several registries live in one process, as in tests. */
  readonly processMetrics?: boolean;
  /** Snapshots of the processes that share the work, asked for at each scrape. */
  readonly others?: () => Promise<readonly (readonly object[])[]>;
  readonly now?: () => number;
}): Metrics {
  const registry = new Registry();
  const registers = [registry];
  const now = options.now ?? Date.now;
  if (options.processMetrics ?? true) collectDefaultMetrics({ register: registry });
  exposeCounters(options.counters, registers);
  exposeProtection(options.protection, now, registers);

  const requests = new Counter({
    name: `${PREFIX}requests_total`,
    help: 'Requests answered.',
    labelNames: ['route', 'method', 'code'],
    registers,
  });
  const bytes = new Counter({
    name: `${PREFIX}bytes_total`,
    help: 'Bytes of bodies, by direction and side.',
    labelNames: ['direction', 'leg'],
    registers,
  });
  const added = new Histogram({
    name: `${PREFIX}added_first_byte_seconds`,
    help: 'Time this proxy added before the first byte of an answer.',
    buckets: ADDED,
    registers,
  });
  const genAi = (name: string, help: string, buckets: number[], ...labels: string[]): Histogram =>
    new Histogram({
      name: `gen_ai_client_${name}`,
      help,
      buckets,
      labelNames: [...GEN_AI_LABELS, ...labels],
      registers,
    });
  const duration = genAi('operation_duration_seconds', 'Duration of an operation.', DURATIONS, 'error_type');
  const firstChunk = genAi(
    'operation_time_to_first_chunk_seconds',
    'Time to the first chunk of a stream.',
    FIRST_CHUNK,
  );
  const perChunk = genAi(
    'operation_time_per_output_chunk_seconds',
    'Mean time between the chunks of a stream.',
    PER_CHUNK,
  );
  const tokens = genAi(
    'token_usage',
    'Tokens of a request, by the count of the service.',
    TOKENS,
    'gen_ai_token_type',
  );
  const modelLabel = cappedLabel(MOST_MODELS);

  return {
    contentType: registry.contentType,
    async render() {
      if (options.others === undefined) return registry.metrics();
      const all = [await registry.getMetricsAsJSON(), ...(await options.others())];
      return AggregatorRegistry.aggregate(all as object[]).metrics();
    },
    snapshot: () => registry.getMetricsAsJSON(),
    observe(seen) {
      requests.inc({ route: seen.route, method: seen.method, code: String(seen.status) });
      bytes.inc({ direction: 'in', leg: 'client' }, seen.bytes.fromClient);
      bytes.inc({ direction: 'out', leg: 'remote' }, seen.bytes.toRemote);
      bytes.inc({ direction: 'in', leg: 'remote' }, seen.bytes.fromRemote);
      bytes.inc({ direction: 'out', leg: 'client' }, seen.bytes.toClient);
      if (seen.addedFirstByte !== undefined) added.observe(seen.addedFirstByte);
      if (seen.operation === undefined) return;

      const labels = {
        gen_ai_operation_name: seen.operation,
        gen_ai_provider_name: PROVIDER,
        gen_ai_request_model: modelLabel(seen.model ?? ''),
        server_address: options.serverAddress,
      };
      duration.observe({ ...labels, error_type: seen.error ?? '' }, seen.duration);
      const { inputTokens, outputTokens } = seen;
      if (inputTokens !== undefined) tokens.observe({ ...labels, gen_ai_token_type: 'input' }, inputTokens);
      if (outputTokens !== undefined)
        tokens.observe({ ...labels, gen_ai_token_type: 'output' }, outputTokens);
      if (seen.timeToFirstChunk === undefined) return;
      firstChunk.observe(labels, seen.timeToFirstChunk);
      const gaps = (seen.chunks ?? 1) - 1;
      if (gaps > 0) perChunk.observe(labels, (seen.duration - seen.timeToFirstChunk) / gaps);
    },
  };
}

function exposeCounters(counters: Counters, registers: Registry[]): void {
  const counted = (name: string, help: string, label: string, map: ReadonlyMap<unknown, number>): void => {
    new Counter({
      name: PREFIX + name,
      help,
      labelNames: [label],
      registers,
      collect() {
        this.reset();
        for (const [key, value] of map) this.inc({ [label]: String(key) }, value);
      },
    });
  };
  const total = (name: string, help: string, value: () => number): void => {
    new Counter({
      name: PREFIX + name,
      help,
      registers,
      collect() {
        this.reset();
        this.inc(value());
      },
    });
  };
  total('requests_received_total', 'Requests received.', () => counters.requests);
  total('stream_events_total', 'Events of streams opened.', () => counters.streamEvents);
  total('truncated_streams_total', 'Streams that ended before their end.', () => counters.truncatedStreams);
  counted('responses_total', 'Answers, by status.', 'code', counters.responses);
  counted('decrypt_failures_total', 'Answers that could not be opened.', 'reason', counters.decryptFailures);
  counted('client_aborts_total', 'Clients that went away.', 'phase', counters.clientAborts);
  counted('upstream_retries_total', 'Requests tried a second time.', 'reason', counters.upstreamRetries);
  counted('attestation_total', 'Verifications of the remote.', 'result', counters.attestations);
  gauge(registers, 'requests_in_flight', 'Requests being answered.', () => counters.inFlight);
  gauge(registers, 'buffered_bytes', 'Room reserved for request bodies.', () => counters.bufferedBytes);
  new Gauge({
    name: `${PREFIX}build_info`,
    help: 'Always 1.',
    labelNames: ['version'],
    aggregator: 'first',
    registers,
  }).set({ version: VERSION }, 1);
}

function exposeProtection(
  protection: () => ProtectionStatus | undefined,
  now: () => number,
  registers: Registry[],
): void {
  new Gauge({
    name: `${PREFIX}manifest_info`,
    help: 'The manifest that is enforced; always 1.',
    labelNames: ['digest'],
    registers,
    collect() {
      this.reset();
      const digest = protection()?.manifestSha256;
      if (digest !== undefined) this.set({ digest }, 1);
    },
  });
  const seconds = (name: string, help: string, ms: (status: ProtectionStatus) => number): void =>
    gauge(registers, name, help, () => {
      const status = protection();
      return status && ms(status) / 1000;
    });
  seconds('attestation_age_seconds', 'Since the remote was verified.', (status) => now() - status.attestedAt);
  seconds('secret_remaining_seconds', 'Until the secret expires.', (status) => status.expiresAt - now());
}

/** A gauge that is read at each scrape, and left out while its value is undefined. */
function gauge(registers: Registry[], name: string, help: string, value: () => number | undefined): void {
  new Gauge({
    name: PREFIX + name,
    help,
    registers,
    collect() {
      this.remove();
      const read = value();
      if (read !== undefined) this.set(read);
    },
  });
}

/** The first `most` values as they are, every other one as `other`. */
function cappedLabel(most: number): (value: string) => string {
  const known = new Set<string>();
  return (value) => {
    if (known.has(value)) return value;
    if (known.size >= most) return 'other';
    known.add(value);
    return value;
  };
}
