import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { count } from '../../lib/observe/counters.ts';
import { createMetrics, type Metrics, type ProtectionStatus } from '../../lib/observe/metrics.ts';
import type { Finished } from '../../lib/observe/status-report.ts';
import { VERSION } from '../../lib/version.ts';
import { finished, metricsOptions } from '../support/doors/observed.ts';

function setUp(more: Parameters<typeof metricsOptions>[0] = {}) {
  const options = metricsOptions(more);
  return { counters: options.counters, metrics: createMetrics(options) };
}

/** `name{labels}` → value; labels in the order of the text. */
async function samples(metrics: Metrics): Promise<Map<string, number>> {
  const text = await metrics.render();
  const pairs = text.matchAll(/^([a-z].*) (\S+)$/gm);
  return new Map(Array.from(pairs, ([, name = '', value]) => [name, Number(value)]));
}

async function has(
  metrics: Metrics,
  expected: readonly (readonly [name: string, value: number | undefined])[],
) {
  const seen = await samples(metrics);
  for (const [name, value] of expected) assert.equal(seen.get(name), value, name);
}

it('metrics of the counters have the values of the counters each time they are rendered', async () => {
  const { counters, metrics } = setUp({ notices: () => [{ id: 'renewal_fails', severity: 'warning' }] });
  counters.inFlight = 2;
  counters.bufferedBytes = 25;
  counters.truncatedStreams = 1;
  Object.assign(counters.bytes, { fromClient: 10, toRemote: 40, fromRemote: 80, toClient: 20 });
  count(counters.decryptFailures, 'response_not_authentic');
  count(counters.clientAborts, 'mid_stream');
  count(counters.upstreamRetries, 'no_secret');
  count(counters.attestations, 'accepted');
  counters.receipts.lost = 4;
  const expected = [
    ['privatemode_proxy_requests_in_flight', 2],
    ['privatemode_proxy_buffered_bytes_ratio', 0.25],
    ['privatemode_proxy_truncated_streams_total', 1],
    ['privatemode_proxy_bytes_total{direction="in",leg="client"}', 10],
    ['privatemode_proxy_bytes_total{direction="out",leg="remote"}', 40],
    ['privatemode_proxy_bytes_total{direction="in",leg="remote"}', 80],
    ['privatemode_proxy_bytes_total{direction="out",leg="client"}', 20],
    ['privatemode_proxy_decrypt_failures_total{reason="response_not_authentic"}', 1],
    ['privatemode_proxy_client_aborts_total{phase="mid_stream"}', 1],
    ['privatemode_proxy_upstream_retries_total{reason="no_secret"}', 1],
    ['privatemode_proxy_attestation_total{result="accepted"}', 1],
    ['privatemode_proxy_receipts_lost_total', 4],
    [`privatemode_proxy_build_info{version="${VERSION}"}`, 1],
    ['privatemode_proxy_condition{id="renewal_fails",severity="warning"}', 1],
  ] as const;
  for (const _round of [1, 2]) await has(metrics, expected);
  counters.truncatedStreams += 1;
  await has(metrics, [['privatemode_proxy_truncated_streams_total', 2]]);
});

describe('metrics of requests', () => {
  const LABELS =
    'gen_ai_operation_name="chat",gen_ai_provider_name="privatemode",gen_ai_request_model="m1",server_address="api.example"';
  const namesOf = async (...requests: readonly Finished[]): Promise<string[]> => {
    const { metrics } = setUp();
    for (const request of requests) metrics.observe(request);
    return [...(await samples(metrics)).keys()];
  };

  it('are observed once per request', async () => {
    const { metrics } = setUp();
    metrics.observe(finished());
    const usage = (sample: string, type: string, le = '') =>
      `gen_ai_client_token_usage_${sample}{${le}gen_ai_operation_name="chat",gen_ai_provider_name="privatemode",gen_ai_request_model="m1",server_address="api.example",gen_ai_token_type="${type}"}`;
    await has(metrics, [
      ['privatemode_proxy_requests_total{route="chat",method="POST",code="200"}', 1],
      ['privatemode_proxy_added_first_byte_seconds_count', 1],
      ['privatemode_proxy_added_first_byte_seconds_bucket{le="0.0005"}', 1],
      ['privatemode_proxy_added_first_byte_seconds_bucket{le="0.00025"}', 0],
      [`gen_ai_client_operation_duration_seconds_sum{${LABELS},error_type=""}`, 3],
      [`gen_ai_client_operation_time_to_first_chunk_seconds_sum{${LABELS}}`, 1],
      [`gen_ai_client_operation_time_per_output_chunk_seconds_sum{${LABELS}}`, 0.5],
      ['privatemode_proxy_tokens_total{route="chat",model="m1",type="input"}', 5],
      ['privatemode_proxy_tokens_total{route="chat",model="m1",type="output"}', 1_000],
      ['privatemode_proxy_tokens_total{route="chat",model="m1",type="cached"}', 3],
      [usage('sum', 'input'), 5],
      [usage('sum', 'output'), 1_000],
      [usage('bucket', 'input', 'le="4",'), 0],
      [usage('bucket', 'input', 'le="16",'), 1],
    ]);
  });

  const NO_TOKENS = { tokensIn: null, tokensOut: null, tokensCached: null };
  for (const [what, more, absent] of [
    [
      'times of chunks for a response that is not a stream',
      { firstTokenMs: null, gapMs: null },
      /chunk_seconds_count/,
    ],
    ['counts named gen_ai_* without inference', { endpoint: 'models', operation: null }, /^gen_ai.*_count/],
    ['token usage for a response that has none', NO_TOKENS, /token_usage_count/],
    ['count of a request that was refused before its endpoint was known', { endpoint: 'none' }, /none/],
  ] as const)
    it(`have no ${what}`, async () =>
      assert.deepEqual(
        (await namesOf(finished(more))).filter((name) => absent.test(name)),
        [],
      ));

  it('have in error_type the code of the proxy, the status of the service, or service_error for one in a stream', async () => {
    const names = await namesOf(
      finished({ status: 502, outcome: 'failed', code: 'upstream_reset' }),
      finished({ status: 429, outcome: 'service_error' }),
      finished({ outcome: 'service_error' }),
      finished(),
    );
    const types = names.flatMap(
      (name) => /^gen_ai_client_operation_duration_seconds_count.*error_type="(.*)"/.exec(name)?.[1] ?? [],
    );
    assert.deepEqual(types, ['upstream_reset', '429', 'service_error', '']);
  });

  const modelsIn = (names: readonly string[]) =>
    new Set(names.flatMap((name) => /gen_ai_request_model="([^"]*)"/.exec(name)?.[1] ?? []));

  it('count a model name for which the service never answered under the label "other"', async () => {
    const outcomes = ['service_error', 'failed', 'broken_off', 'client_aborted'] as const;
    const names = await namesOf(
      ...outcomes.map((outcome) => finished({ outcome, model: `junk-${outcome}` })),
      finished({ model: 'real' }),
      finished({ status: 502, outcome: 'failed', code: 'upstream_reset', model: 'real' }),
    );
    assert.deepEqual(modelsIn(names), new Set(['other', 'real']));
  });

  it('have labels for 100 models, and count the requests for all further models as "other"', async () => {
    const { metrics } = setUp();
    for (let i = 0; i < 150; i += 1) metrics.observe(finished({ model: `m${i}` }));
    metrics.observe(finished({ model: 'm3' }));
    const counts = [...(await samples(metrics))].filter(([name]) =>
      name.startsWith('gen_ai_client_operation_duration_seconds_count'),
    );
    assert.equal(counts.length, 101);
    assert.equal(counts.find(([name]) => name.includes('model="other"'))?.[1], 50);
    assert.equal(counts.find(([name]) => name.includes('model="m3"'))?.[1], 2);
  });
});

describe('metrics of clients', () => {
  it('count requests and tokens of each client', async () => {
    const { metrics } = setUp({ clients: true });
    for (const client of ['ann', 'bob']) metrics.observe(finished({ client }));
    await has(metrics, [
      ['privatemode_proxy_requests_total{route="chat",method="POST",code="200",client="ann"}', 1],
      ['privatemode_proxy_requests_total{route="chat",method="POST",code="200",client="bob"}', 1],
      ['privatemode_proxy_tokens_total{route="chat",model="m1",type="input",client="ann"}', 5],
    ]);
  });

  it('count errors by client and code, those of requests without a client under client=""', async () => {
    const { metrics, counters } = setUp({ clients: true });
    count(counters.errors, '\nclient_unknown');
    count(counters.errors, 'ann\ntokens_per_day_reached');
    counters.uncounted = 2;
    const seen = await samples(metrics);
    assert.equal(seen.get('privatemode_proxy_limits_uncounted_total'), 2);
    const errors = [...seen].filter(([name, value]) => name.includes('errors_total') && value > 0);
    assert.deepEqual(errors, [
      ['privatemode_proxy_errors_total{client="",code="client_unknown"}', 1],
      ['privatemode_proxy_errors_total{client="ann",code="tokens_per_day_reached"}', 1],
    ]);
  });

  it('are absent without --clients, and errors are counted by code alone', async () => {
    const { metrics, counters } = setUp();
    metrics.observe(finished());
    count(counters.errors, '\nclient_unknown');
    const text = await metrics.render();
    assert.doesNotMatch(text, /client=|limits_uncounted/);
    assert.match(text, /^privatemode_proxy_errors_total\{code="client_unknown"\} 1$/m);
  });
});

it('metrics that alerts compare over time are 0 before the first error', async () => {
  for (const clients of [true, false]) {
    const zeros = [...(await samples(setUp({ clients }).metrics))].flatMap(([name, value]) =>
      /errors_total|decrypt_failures|attestation_total/.test(name) && value === 0
        ? [name.slice('privatemode_proxy_'.length).replace('client="",', '')]
        : [],
    );
    const of = (name: string, label: string, ...values: readonly string[]): string[] =>
      values.map((value) => `${name}_total{${label}="${value}"}`);
    const opened = ['not_authentic', 'not_encrypted', 'malformed', 'too_large'];
    const manifest = ['mismatch', 'unsupported', 'invalid'].map((what) => `manifest_${what}`);
    const expected = [
      ...of('decrypt_failures', 'reason', ...opened.map((what) => `response_${what}`)),
      ...of('attestation', 'result', 'accepted', 'failed', 'unavailable'),
      ...of('errors', 'code', 'attestation_failed', 'evidence_malformed', ...manifest),
    ];
    assert.deepEqual(zeros, expected);
  }
});

it('metrics of the certificate have the time until it expires, and are absent without TLS', async () => {
  for (const [ends, left] of [
    [160_000, 60],
    [40_000, -60],
    [undefined, undefined],
  ] as const)
    await has(setUp({ certificateEnds: () => ends }).metrics, [
      ['privatemode_proxy_tls_certificate_expires_seconds', left],
    ]);
});

it('metrics of the epoch show its manifest and its remaining time, and are absent without one', async () => {
  let status: ProtectionStatus | undefined;
  let verified = false;
  const { metrics } = setUp({ protection: () => status, standing: () => ({ verified }) });
  const found = async (): Promise<[string, number][]> =>
    [...(await samples(metrics))].filter(([name]) => /manifest_info|secret|verified/.test(name));
  assert.deepEqual(await found(), [['privatemode_proxy_verified', 0]]);
  verified = true;
  for (const manifestSha256 of ['abc', 'def']) {
    status = { manifestSha256, expiresAt: 130_000 };
    assert.deepEqual(await found(), [
      [`privatemode_proxy_manifest_info{digest="${manifestSha256}"}`, 1],
      ['privatemode_proxy_secret_remaining_seconds', 30],
      ['privatemode_proxy_verified', 1],
    ]);
  }
});
