import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { describe, it } from 'node:test';
import { systemClock } from '../../lib/clock.ts';
import { PrivatemodeError } from '../../lib/errors.ts';
import { count, countError, createCounters } from '../../lib/observe/counters.ts';
import {
  createMetrics,
  type Metrics,
  type ProtectionStatus,
  type RequestObservation,
} from '../../lib/observe/metrics.ts';
import { watchRequests } from '../../lib/observe/watch-requests.ts';
import { VERSION } from '../../lib/version.ts';
import { createFakeClock } from '../support/remote/fake-clock.ts';

const STATS: RequestObservation['stats'] = {
  startedAt: 0,
  uploadedAt: 500,
  sentAt: 500.4,
  firstChunkAt: 1_000,
  endedAt: 3_000,
  model: 'm1',
  modelError: false,
  error: undefined,
  events: 5,
  usage: { prompt: 5, completion: 1_000, cached: 3 },
  bytes: { fromClient: 10, toRemote: 40, fromRemote: 80, toClient: 20 },
};
const REQUEST: RequestObservation = {
  route: 'chat',
  method: 'POST',
  path: '/v1/chat/completions',
  status: 200,
  operation: 'chat',
  stats: STATS,
  requestId: 'r',
  outcome: 'answered',
  firstTokenMs: 1_000,
};

it('only the events of streams count as tokens per second of the status', async () => {
  const options = { protection: () => undefined, serverAddress: 'api.example', maxBufferedBytes: 9_000 };
  const watch = await watchRequests({
    ...options,
    clock: systemClock,
    counters: createCounters(),
    events: () => 0,
  });
  try {
    watch.observe({ ...REQUEST, firstTokenMs: undefined, stats: { ...STATS, events: 0 } });
    watch.observe(REQUEST);
    const { seconds } = watch.traffic.snapshot();
    assert.equal(
      seconds.reduce((sum, { chunks }) => sum + chunks, 0),
      5,
    );
  } finally {
    watch.traffic.close();
  }
});

function setUp(protection: () => ProtectionStatus | undefined = () => undefined, clients?: boolean) {
  const counters = createCounters();
  const metrics = createMetrics({
    clock: createFakeClock(100_000),
    counters,
    protection,
    serverAddress: 'api.example',
    maxBufferedBytes: 9_000,
    processMetrics: false,
    ...(clients === undefined ? {} : { clients }),
  });
  return { counters, metrics };
}

const ALONE = {
  ...{ counters: createCounters(), protection: () => undefined, serverAddress: '', processMetrics: false },
  clock: systemClock,
} as const;

/** `name{labels}` → value; labels in the order of the text. */
async function samples(metrics: Metrics): Promise<Map<string, number>> {
  const text = await metrics.render();
  const lines = text.split('\n').filter((line) => line !== '' && !line.startsWith('#'));
  return new Map(
    lines.map((line) => [
      line.slice(0, line.lastIndexOf(' ')),
      Number(line.slice(line.lastIndexOf(' ') + 1)),
    ]),
  );
}

describe('metrics of the counters', () => {
  it('have the values of the counters each time they are rendered', async () => {
    const { counters, metrics } = setUp();
    counters.requests = 3;
    counters.inFlight = 2;
    counters.bufferedBytes = 5;
    counters.streamEvents = 70;
    counters.truncatedStreams = 1;
    count(counters.responses, 200);
    count(counters.responses, 503);
    count(counters.decryptFailures, 'response_not_authentic');
    count(counters.clientAborts, 'mid_stream');
    count(counters.upstreamRetries, 'no_secret');
    count(counters.attestations, 'accepted');
    counters.receipts.written = 6;
    counters.receipts.lost = 4;
    const expected: [string, number][] = [
      ['privatemode_proxy_requests_received_total', 3],
      ['privatemode_proxy_requests_in_flight', 2],
      ['privatemode_proxy_buffered_bytes', 5],
      ['privatemode_proxy_buffered_bytes_limit', 9_000],
      ['privatemode_proxy_stream_events_total', 70],
      ['privatemode_proxy_truncated_streams_total', 1],
      ['privatemode_proxy_responses_total{code="200"}', 1],
      ['privatemode_proxy_responses_total{code="503"}', 1],
      ['privatemode_proxy_decrypt_failures_total{reason="response_not_authentic"}', 1],
      ['privatemode_proxy_client_aborts_total{phase="mid_stream"}', 1],
      ['privatemode_proxy_upstream_retries_total{reason="no_secret"}', 1],
      ['privatemode_proxy_attestation_total{result="accepted"}', 1],
      ['privatemode_proxy_receipts_written_total', 6],
      ['privatemode_proxy_receipts_lost_total', 4],
      [`privatemode_proxy_build_info{version="${VERSION}"}`, 1],
    ];
    for (const round of [1, 2]) {
      const seen = await samples(metrics);
      for (const [name, value] of expected) assert.equal(seen.get(name), value, `${name}, round ${round}`);
    }
    counters.streamEvents += 1;
    assert.equal((await samples(metrics)).get('privatemode_proxy_stream_events_total'), 71);
  });
});

describe('metrics of requests', () => {
  it('are observed once per request', async () => {
    const { metrics } = setUp();
    metrics.observe(REQUEST);
    const seen = await samples(metrics);
    const labels =
      'gen_ai_operation_name="chat",gen_ai_provider_name="privatemode",gen_ai_request_model="m1",server_address="api.example"';
    const expected: [string, number][] = [
      ['privatemode_proxy_requests_total{route="chat",method="POST",code="200"}', 1],
      ['privatemode_proxy_bytes_total{direction="in",leg="client"}', 10],
      ['privatemode_proxy_bytes_total{direction="out",leg="remote"}', 40],
      ['privatemode_proxy_bytes_total{direction="in",leg="remote"}', 80],
      ['privatemode_proxy_bytes_total{direction="out",leg="client"}', 20],
      ['privatemode_proxy_added_first_byte_seconds_count', 1],
      ['privatemode_proxy_added_first_byte_seconds_bucket{le="0.0005"}', 1],
      ['privatemode_proxy_added_first_byte_seconds_bucket{le="0.00025"}', 0],
      [`gen_ai_client_operation_time_to_first_chunk_seconds_sum{${labels}}`, 1],
      [`gen_ai_client_operation_time_per_output_chunk_seconds_sum{${labels}}`, 0.5],
      [`gen_ai_client_operation_time_per_output_chunk_seconds_count{${labels}}`, 1],
    ];
    for (const [name, value] of expected) assert.equal(seen.get(name), value, name);
    const tokens = (sample: string, type: string, le = ''): number | undefined =>
      [...seen].find(
        ([name]) =>
          name.startsWith(`gen_ai_client_token_usage_${sample}{`) &&
          name.includes(`gen_ai_token_type="${type}"`) &&
          name.includes(le),
      )?.[1];
    assert.deepEqual(
      ['input', 'output', 'cached'].map((type) => tokens('sum', type)),
      [5, 1_000, 3],
    );
    const total = (type: string): number | undefined =>
      seen.get(`privatemode_proxy_tokens_total{route="chat",model="m1",type="${type}"}`);
    assert.deepEqual(['input', 'output', 'cached'].map(total), [5, 1_000, 3]);
    assert.deepEqual([tokens('bucket', 'input', 'le="4"'), tokens('bucket', 'input', 'le="16"')], [0, 1]);
    const duration = [...seen].find(([name]) =>
      name.startsWith('gen_ai_client_operation_duration_seconds_sum'),
    );
    assert.equal(duration?.[1], 3);
  });

  it('have no times of chunks for a response that is not a stream', async () => {
    const { metrics } = setUp();
    metrics.observe({ ...REQUEST, firstTokenMs: undefined });
    assert.ok(![...(await samples(metrics)).keys()].some((name) => /chunk_seconds_count/.test(name)));
  });

  it('have no counts named gen_ai_* for a request without inference', async () => {
    const { metrics } = setUp();
    const stats = { ...STATS, model: undefined };
    metrics.observe({ ...REQUEST, route: 'models', operation: undefined, stats });
    assert.ok(![...(await samples(metrics)).keys()].some((name) => /^gen_ai.*_count/.test(name)));
  });

  it('have no token usage for a request whose response has none', async () => {
    const { metrics } = setUp();
    metrics.observe({ ...REQUEST, stats: { ...STATS, usage: undefined } });
    assert.ok(![...(await samples(metrics)).keys()].some((name) => name.includes('token_usage_count')));
  });

  it('have the error code of a failed request in the label error_type', async () => {
    const { metrics } = setUp();
    const error = new PrivatemodeError('upstream_reset', 'closed');
    metrics.observe({ ...REQUEST, status: 502, stats: { ...STATS, error, firstChunkAt: undefined } });
    assert.ok(
      [...(await samples(metrics)).keys()].some((name) => name.includes('error_type="upstream_reset"')),
    );
  });

  it('have the status of an error of the service in the label error_type, and service_error for one in a stream', async () => {
    const { metrics } = setUp();
    const refused = { ...REQUEST, status: 429, outcome: 'service_error' };
    metrics.observe(refused);
    metrics.observe({ ...refused, status: 200, stats: { ...STATS, modelError: true } });
    metrics.observe(REQUEST);
    const types = [...(await samples(metrics)).keys()].flatMap(
      (name) => /^gen_ai_client_operation_duration_seconds_count.*error_type="(.*)"/.exec(name)?.[1] ?? [],
    );
    assert.deepEqual(types, ['429', 'service_error', '']);
  });

  it('count a model name for which the service never answered under the label "other"', async () => {
    const { metrics } = setUp();
    const error = new PrivatemodeError('upstream_reset', 'closed');
    const junk: Partial<RequestObservation>[] = [
      { status: 404, outcome: 'service_error' },
      { status: 502, outcome: 'failed', stats: { ...STATS, error } },
      { outcome: 'broken_off', stats: { ...STATS, error } },
      { outcome: 'client_aborted' },
      { stats: { ...STATS, bytes: { ...STATS.bytes, toRemote: 0 } } },
    ];
    for (let i = 0; i < 200; i += 1) {
      const more = junk[i % junk.length] as Partial<RequestObservation>;
      metrics.observe({ ...REQUEST, ...more, stats: { ...STATS, ...more.stats, model: `junk-${i}` } });
    }
    metrics.observe({ ...REQUEST, stats: { ...STATS, model: 'real' } });
    metrics.observe({
      ...REQUEST,
      status: 502,
      outcome: 'failed',
      stats: { ...STATS, error, model: 'real' },
    });
    const models = [...(await samples(metrics)).keys()].flatMap(
      (name) => /gen_ai_request_model="([^"]*)"/.exec(name)?.[1] ?? [],
    );
    assert.deepEqual(new Set(models), new Set(['other', 'real']));
  });

  it('have labels for 100 models, and count the requests for all further models as "other"', async () => {
    const { metrics } = setUp();
    for (let i = 0; i < 150; i += 1) metrics.observe({ ...REQUEST, stats: { ...STATS, model: `m${i}` } });
    metrics.observe({ ...REQUEST, stats: { ...STATS, model: 'm3' } });
    const counts = [...(await samples(metrics))].filter(([name]) =>
      name.startsWith('gen_ai_client_operation_duration_seconds_count'),
    );
    assert.equal(counts.length, 101);
    assert.equal(counts.find(([name]) => name.includes('model="other"'))?.[1], 50);
    assert.equal(counts.find(([name]) => name.includes('model="m3"'))?.[1], 2);
  });
});

describe('metrics of clients', () => {
  const ofAnn: RequestObservation = { ...REQUEST, client: 'ann' };

  it('count requests, tokens and durations of each client', async () => {
    const { metrics } = setUp(undefined, true);
    metrics.observe(ofAnn);
    metrics.observe({ ...ofAnn, status: 429, stats: { ...STATS, usage: undefined, endedAt: 10 } });
    metrics.observe({ ...REQUEST, client: 'bob' });
    const seen = await samples(metrics);
    const expected: [string, number][] = [
      ['privatemode_proxy_requests_total{route="chat",method="POST",code="200",client="ann"}', 1],
      ['privatemode_proxy_requests_total{route="chat",method="POST",code="429",client="ann"}', 1],
      ['privatemode_proxy_requests_total{route="chat",method="POST",code="200",client="bob"}', 1],
      ['privatemode_proxy_tokens_total{route="chat",model="m1",type="input",client="ann"}', 5],
      ['privatemode_proxy_tokens_total{route="chat",model="m1",type="output",client="ann"}', 1_000],
      ['privatemode_proxy_client_request_duration_seconds_sum{client="ann"}', 3.01],
      ['privatemode_proxy_client_request_duration_seconds_count{client="ann"}', 2],
      ['privatemode_proxy_client_request_duration_seconds_bucket{le="0.01",client="ann"}', 1],
      ['privatemode_proxy_client_request_duration_seconds_count{client="bob"}', 1],
    ];
    for (const [name, value] of expected) assert.equal(seen.get(name), value, name);
  });

  it('count errors by client and code, those of requests without a client under client=""', async () => {
    const { metrics, counters } = setUp(undefined, true);
    countError(counters, undefined, 'client_unknown');
    countError(counters, undefined, 'client_unknown');
    countError(counters, 'ann', 'requests_per_minute_reached');
    countError(counters, 'ann', 'tokens_per_day_reached');
    counters.uncounted = 2;
    const seen = await samples(metrics);
    assert.equal(seen.get('privatemode_proxy_limits_uncounted_total'), 2);
    const errors = [...seen].filter(([name, value]) => name.includes('errors_total') && value > 0);
    assert.deepEqual(errors, [
      ['privatemode_proxy_errors_total{client="",code="client_unknown"}', 2],
      ['privatemode_proxy_errors_total{client="ann",code="requests_per_minute_reached"}', 1],
      ['privatemode_proxy_errors_total{client="ann",code="tokens_per_day_reached"}', 1],
    ]);
  });

  it('are absent without --clients, and errors are counted by code alone', async () => {
    for (const clients of [undefined, false]) {
      const { metrics, counters } = setUp(undefined, clients);
      metrics.observe(REQUEST);
      metrics.observe({ ...REQUEST, client: undefined });
      countError(counters, undefined, 'client_unknown');
      const text = await metrics.render();
      assert.doesNotMatch(text, /client_request|client=|limits_uncounted/);
      assert.match(text, /^privatemode_proxy_errors_total\{code="client_unknown"\} 1$/m);
      assert.match(text, /^privatemode_proxy_requests_total\{route="chat",method="POST",code="200"\} 2$/m);
      assert.match(text, /^privatemode_proxy_tokens_total\{route="chat",model="m1",type="input"\} 10$/m);
    }
  });
});

it('each metric is named in a test of this file', () => {
  const text = readFileSync(import.meta.filename, 'utf8');
  const untested = setUp(undefined, true)
    .metrics.all()
    .map(({ name }) => name)
    .filter((name) => !text.includes(name));
  assert.deepEqual(untested, []);
});

describe('metrics that alerts compare over time', () => {
  it('are 0 before the first error, for rejections of the service, failures to decrypt and verifications', async () => {
    for (const clients of [true, false]) {
      const { counters, metrics } = setUp(undefined, clients);
      const zeros = async () =>
        [...(await samples(metrics))].flatMap(([name, value]) =>
          /errors_total|decrypt_failures|attestation_total/.test(name) && value === 0
            ? [name.slice('privatemode_proxy_'.length).replace('client="",', '')]
            : [],
        );
      const expected = [
        'decrypt_failures_total{reason="response_not_authentic"}',
        'decrypt_failures_total{reason="response_not_encrypted"}',
        'decrypt_failures_total{reason="response_malformed"}',
        'decrypt_failures_total{reason="response_too_large"}',
        'attestation_total{result="accepted"}',
        'attestation_total{result="failed"}',
        'attestation_total{result="unavailable"}',
        'errors_total{code="attestation_failed"}',
        'errors_total{code="evidence_malformed"}',
        'errors_total{code="manifest_mismatch"}',
        'errors_total{code="manifest_unsupported"}',
        'errors_total{code="manifest_invalid"}',
      ];
      assert.deepEqual(await zeros(), expected);
      countError(counters, undefined, 'attestation_failed');
      count(counters.decryptFailures, 'response_malformed');
      assert.deepEqual(
        await zeros(),
        expected.filter((name) => !/attestation_failed|response_malformed/.test(name)),
      );
    }
  });
});

describe('metrics of the conditions', () => {
  const words = { title: 'CANARY', reason: 'CANARY', remedy: 'CANARY' };
  const notices = () =>
    [
      { id: 'limits_store_away', severity: 'critical', since: 40_000, ...words },
      { id: 'renewal_fails', severity: 'warning', since: 99_000, ...words },
    ] as const;
  const options = {
    ...{ counters: createCounters(), protection: () => undefined, serverAddress: 'api.example' },
    ...{ processMetrics: false, clock: createFakeClock(100_000) },
  };

  it('show ids, severities and ages, and no words', async () => {
    const metrics = createMetrics({ ...options, notices });
    const text = await metrics.render();
    assert.deepEqual(text.match(/^privatemode_proxy_condition.*$/gm), [
      'privatemode_proxy_condition{id="limits_store_away",severity="critical"} 1',
      'privatemode_proxy_condition{id="renewal_fails",severity="warning"} 1',
      'privatemode_proxy_condition_since_seconds{id="limits_store_away"} 60',
      'privatemode_proxy_condition_since_seconds{id="renewal_fails"} 1',
    ]);
    assert.doesNotMatch(text, /CANARY/);
    assert.doesNotMatch(await createMetrics(options).render(), /^privatemode_proxy_condition/m);
  });

  it('include the time until the certificate expires, and not without TLS', async () => {
    const name = 'privatemode_proxy_tls_certificate_expires_seconds';
    const of = (certificateEnds: number | undefined) =>
      createMetrics({ ...options, certificateEnds: () => certificateEnds });
    assert.equal((await samples(of(160_000))).get(name), 60);
    assert.equal((await samples(of(40_000))).get(name), -60);
    assert.equal((await samples(of(undefined))).has(name), false);
  });
});

it('the metric that a key is awaited is 1 only while nothing else keeps the service from being verified', async () => {
  for (const [state, shown] of [
    ['awaiting-key', 1],
    ['rejected', 0],
    ['starting', 0],
    ['verified', 0],
  ] as const) {
    const standing = () => ({ state, verified: state === 'verified' });
    const seen = await samples(createMetrics({ ...ALONE, standing }));
    assert.equal(seen.get('privatemode_proxy_awaiting_key'), shown, state);
    assert.equal(seen.get('privatemode_proxy_verified'), state === 'verified' ? 1 : 0);
  }
});

it('metrics of the memory for request bodies show what is reserved, of how much, and the share', async () => {
  const counters = { ...createCounters(), bufferedBytes: 25 };
  const seen = await samples(createMetrics({ ...ALONE, counters, maxBufferedBytes: 100 }));
  assert.equal(seen.get('privatemode_proxy_buffered_bytes'), 25);
  assert.equal(seen.get('privatemode_proxy_buffered_bytes_limit'), 100);
  assert.equal(seen.get('privatemode_proxy_buffered_bytes_ratio'), 0.25);
});

describe('metrics of the process', () => {
  it('end in _total only if they are counters, as promtool demands', async () => {
    const text = await createMetrics({ ...ALONE, processMetrics: true }).render();
    const types = [...text.matchAll(/^# TYPE (\S+) (\S+)$/gm)];
    assert.ok(types.some(([, name]) => name === 'nodejs_active_handles'));
    const wrong = types.filter(([, name, type]) => name?.endsWith('_total') && type !== 'counter');
    assert.deepEqual(wrong.map(String), []);
  });
});

describe('metrics of the epoch', () => {
  it('show its manifest, its age and its remaining time, and are absent without an epoch', async () => {
    let status: ProtectionStatus | undefined;
    const { metrics } = setUp(() => status);
    const names = async () =>
      [...(await samples(metrics)).keys()].filter((name) =>
        /manifest_info|attestation_age|secret/.test(name),
      );
    assert.deepEqual(await names(), []);
    status = { manifestSha256: 'abc', attestedAt: 40_000, expiresAt: 130_000 };
    const seen = await samples(metrics);
    assert.equal(seen.get('privatemode_proxy_manifest_info{digest="abc"}'), 1);
    assert.equal(seen.get('privatemode_proxy_attestation_age_seconds'), 60);
    assert.equal(seen.get('privatemode_proxy_secret_remaining_seconds'), 30);
    status = { ...status, manifestSha256: 'def' };
    assert.ok(!(await names()).includes('privatemode_proxy_manifest_info{digest="abc"}'));
    status = undefined;
    assert.deepEqual(await names(), []);
  });
});
