/** The Prometheus metrics, made from the counters, the session's state and each finished request. */
import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from 'prom-client';
import type { Clock } from '../clock.ts';
import { ERRORS } from '../errors.ts';
import type { Epoch } from '../session/session.ts';
import type { Standing } from '../session/standing.ts';
import { VERSION } from '../version.ts';
import { type Counters, count, UNDECRYPTABLE } from './counters.ts';
import type { Notice } from './notices.ts';
import type { Finished } from './status-report.ts';

/** What the metrics show of the epoch in force; times in ms since 1970. */
export type ProtectionStatus = Pick<Epoch, 'manifestSha256' | 'expiresAt'>;

export type Metrics = ReturnType<typeof createMetrics>;

const PREFIX = 'privatemode_proxy_';
/**
 * The most model names that become labels. Clients choose these names, so without a cap clients could fill
 * the memory and the operator's database. A name becomes a label with the first successful response of its
 * model, so that names of models that do not exist use up no labels.
 */
const MOST_MODELS = 100;
const GEN_AI_LABELS = [
  'gen_ai_operation_name',
  'gen_ai_provider_name',
  'gen_ai_request_model',
  'server_address',
];

/** Bucket bounds in seconds, each double the last, as the OpenTelemetry conventions for GenAI demand. */
const DURATIONS = [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92];
const FIRST_CHUNK = [0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10];
const PER_CHUNK = [0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5];
/** Bucket bounds in tokens: powers of 4, as the OpenTelemetry conventions for GenAI demand. */
const TOKENS = Array.from({ length: 14 }, (_, power) => 4 ** power);
const ADDED = [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1, 2.5, 5, 10, 30];

/** Keys in `counters.errors`: no client, and the code of an error with which the proxy rejects a service. */
const REJECTIONS = Object.entries(ERRORS)
  .filter(([, { status, blame }]) => status === 400 && blame === 'attestation')
  .map(([code]) => `\n${code}`);

/**
 * Creates the Prometheus metrics. Some metrics read the counters and functions of `options` at each scrape;
 * others add up the requests that `observe` gets. `render` returns the text of /metrics.
 */
export function createMetrics(options: {
  readonly counters: Counters;
  readonly protection: () => ProtectionStatus | undefined;
  readonly standing: () => Pick<Standing, 'verified'>;
  readonly serverAddress: string;
  /** Bytes of memory that all request bodies together may take. */
  readonly maxBufferedBytes: number;
  readonly notices: () => readonly Pick<Notice, 'id' | 'severity'>[];
  /** When the TLS certificate expires, in ms since 1970. Undefined without TLS. */
  readonly certificateEnds: () => number | undefined;
  /** Whether --clients is set. Without --clients, no metric has the label client. */
  readonly clients: boolean;
  /** Whether to add metrics of the Node process. False in tests, where a process has several registries. */
  readonly processMetrics?: boolean;
  readonly clock: Pick<Clock, 'now'>;
}) {
  const registry = new Registry();
  const registers = [registry];
  const { counters, protection, standing, notices, clients, clock, serverAddress } = options;
  if (options.processMetrics ?? true) collectDefaultMetrics({ register: registry });
  // `promtool check metrics` allows the ending `_total` for counters only. Gauges with this ending are
  // removed, because each only sums up another metric with labels.
  for (const metric of registry.getMetricsAsArray() as unknown as { name: string; type: string }[])
    if (metric.name.endsWith('_total') && metric.type === 'gauge') registry.removeSingleMetric(metric.name);

  /** Creates a metric. At each scrape, `read` returns its values. */
  const scraped = (Metric: Kind, name: string, help: string, read: () => Values, ...labelNames: string[]) =>
    new Metric({
      name: PREFIX + name,
      help,
      labelNames,
      registers,
      collect() {
        this.reset();
        if (labelNames.length === 0) this.remove(); // without this, a metric without a value would show 0
        for (const [value, labels = {}] of read()) this.inc(labels, value);
      },
    });
  const number = (Metric: Kind, name: string, help: string, read: () => number | undefined) =>
    scraped(Metric, name, help, () => [read()].flatMap((value) => (value === undefined ? [] : [[value]])));
  /**
   * Creates a counter from a map whose keys are label values, joined by line feeds, because prom-client would
   * sort and join the labels at each count. Series of the keys in `zeros` exist from the beginning, because
   * increase() of Prometheus does not see the first value of a series.
   */
  const counted = (name: string, help: string, labels: string[], numbers: Numbers, zeros: string[] = []) => {
    const labelsOf = (key: string) => {
      const values = key.split('\n').slice(-labels.length);
      return Object.fromEntries(labels.map((label, i) => [label, values[i] ?? '']));
    };
    const all = () => new Map([...zeros.map((key) => [key, 0] as const), ...numbers]);
    scraped(Counter, name, help, () => Array.from(all(), ([key, n]) => [n, labelsOf(key)]), ...labels);
  };
  const histogram = (name: string, help: string, buckets: number[], ...labelNames: string[]): Histogram =>
    new Histogram({ name, help, buckets, labelNames, registers });
  const genAi = (name: string, help: string, buckets: number[], ...labels: string[]): Histogram =>
    histogram(`gen_ai_client_${name}`, help, buckets, ...GEN_AI_LABELS, ...labels);

  const truncated = 'Streams that ended before they were complete.';
  number(Counter, 'truncated_streams_total', truncated, () => counters.truncatedStreams);
  const undecryptable = 'Responses that could not be decrypted.';
  counted('decrypt_failures_total', undecryptable, ['reason'], counters.decryptFailures, [...UNDECRYPTABLE]);
  counted('client_aborts_total', 'Requests whose client left early.', ['phase'], counters.clientAborts);
  counted('upstream_retries_total', 'Requests tried a second time.', ['reason'], counters.upstreamRetries);
  const attestedHelp =
    'Verifications of the remote: accepted, failed, or unavailable where AMD or Intel could not be asked.';
  const results = ['accepted', 'failed', 'unavailable'];
  counted('attestation_total', attestedHelp, ['result'], counters.attestations, results);
  number(Counter, 'receipts_lost_total', 'Receipts that could not be written.', () => counters.receipts.lost);
  number(Gauge, 'requests_in_flight', 'Requests being answered.', () => counters.inFlight);
  scraped(Gauge, 'build_info', 'Always 1.', () => [[1, { version: VERSION }]], 'version');
  const ofClients = clients ? ['client'] : [];
  const whose = clients ? '; client is empty if the client is unknown' : '';
  const errorsHelp = `Requests that ended in an error of the proxy, by code${whose}.`;
  counted('errors_total', errorsHelp, [...ofClients, 'code'], counters.errors, REJECTIONS);
  const away = 'Requests admitted without limits because --limits-store was unavailable.';
  if (clients) number(Counter, 'limits_uncounted_total', away, () => counters.uncounted);

  const manifest = (): Values => {
    const digest = protection()?.manifestSha256;
    return digest === undefined ? [] : [[1, { digest }]];
  };
  scraped(Gauge, 'manifest_info', 'The manifest that is enforced; always 1.', manifest, 'digest');
  const secondsTo = (at: number | undefined) => (at === undefined ? undefined : (at - clock.now()) / 1000);
  const remaining = 'Time until the secret expires.';
  number(Gauge, 'secret_remaining_seconds', remaining, () => secondsTo(protection()?.expiresAt));
  // The reasons of notices are left out, because reasons name files and clients.
  const held = (): Values => notices().map(({ id, severity }) => [1, { id, severity }]);
  const heldHelp = "What needs a person's attention; always 1, and absent where nothing does.";
  scraped(Gauge, 'condition', heldHelp, held, 'id', 'severity');
  const expires = 'Time until the TLS certificate expires, below 0 once it has.';
  number(Gauge, 'tls_certificate_expires_seconds', expires, () => secondsTo(options.certificateEnds()));
  const share = 'Reserved share of the memory for request bodies.';
  number(Gauge, 'buffered_bytes_ratio', share, () => counters.bufferedBytes / options.maxBufferedBytes);
  number(Gauge, 'verified', 'Whether the service is verified: 1 or 0.', () => (standing().verified ? 1 : 0));
  const { bytes } = counters;
  const flows = (): Values => [
    [bytes.fromClient, { direction: 'in', leg: 'client' }],
    [bytes.toRemote, { direction: 'out', leg: 'remote' }],
    [bytes.fromRemote, { direction: 'in', leg: 'remote' }],
    [bytes.toClient, { direction: 'out', leg: 'client' }],
  ];
  scraped(Counter, 'bytes_total', 'Bytes of bodies, by direction and side.', flows, 'direction', 'leg');

  const requestsHelp = 'Requests answered, of those admitted.';
  const requests = new Map<string, number>();
  counted('requests_total', requestsHelp, ['route', 'method', 'code', ...ofClients], requests);
  const tokensTotalHelp = 'Tokens, as counted by the service; cached ones are part of the input.';
  const tokensTotal = new Map<string, number>();
  counted('tokens_total', tokensTotalHelp, ['route', 'model', 'type', ...ofClients], tokensTotal);
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
  const modelLabel = cappedLabel();

  return {
    /** All metrics: the table in docs/monitoring.md is made from them. */
    all: () => registry.getMetricsAsArray(),
    contentType: registry.contentType,
    render: (): Promise<string> => registry.metrics(),
    /** Adds a finished request; called once per request, never per token. */
    observe(request: Finished): void {
      const { endpoint: route, method, status, operation, client, firstTokenMs, gapMs, addedMs } = request;
      if (route === 'none') return; // only errors_total counts a request that was refused without an endpoint
      const ofClient = client === undefined ? '' : `\n${client}`;
      count(requests, `${route}\n${method}\n${status ?? 0}${ofClient}`);
      if (addedMs !== null) added.observe(addedMs / 1000);
      if (operation === null) return;

      const model = modelLabel(request.model ?? '', isAuthenticSuccess(request));
      const labels = {
        gen_ai_operation_name: operation,
        gen_ai_provider_name: 'privatemode',
        gen_ai_request_model: model,
        server_address: serverAddress,
      };
      duration.observe({ ...labels, error_type: errorType(request) }, request.durationMs / 1000);
      const { tokensIn: input, tokensOut: output, tokensCached: cached } = request;
      for (const [type, number] of [
        ['input', input],
        ['output', output],
        ['cached', cached],
      ] as const) {
        if (number === null) continue;
        tokens.observe({ ...labels, gen_ai_token_type: type }, number);
        count(tokensTotal, `${route}\n${model}\n${type}${ofClient}`, number);
      }
      if (firstTokenMs !== null) firstChunk.observe(labels, firstTokenMs / 1000);
      if (gapMs !== null) perChunk.observe(labels, gapMs / 1000);
    },
  };
}

type Kind = typeof Counter | typeof Gauge;
type Numbers = ReadonlyMap<string, number>;
type Values = Iterable<readonly [value: number, labels?: Readonly<Record<string, string>>]>;

/**
 * Whether the service itself sent a successful response. On encrypted endpoints a response with a status
 * below 400 is always authenticated (lib/gateway/service-response.ts).
 */
const isAuthenticSuccess = ({ outcome, status }: Finished): boolean =>
  outcome === 'answered' && status !== null && status < 400;

/** The label error_type. It is empty for a request without an error, even if the client left early. */
function errorType({ outcome, status, code }: Finished): string {
  if (code !== null) return code;
  if (status !== null && status >= 400) return String(status);
  return outcome === 'service_error' ? outcome : '';
}

/**
 * Returns a function that limits the values of a label. The function keeps the empty value, and the first
 * MOST_MODELS values that were passed with `good`; every other value becomes `other`.
 */
function cappedLabel(): (value: string, good: boolean) => string {
  const known = new Set(['']);
  return (value, good) => {
    if (known.has(value)) return value;
    if (!good || known.size > MOST_MODELS) return 'other';
    known.add(value);
    return value;
  };
}
