/**
 * The dashboard and the alert rules ask for nothing that /metrics does not have: a wrong name is an empty
 * panel, or an alert that never fires. For their grammar there is promtool.
 */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { it } from 'node:test';
import { parse } from 'yaml';
import { count } from '../../lib/observe/counters.ts';
import { createMetrics } from '../../lib/observe/metrics.ts';
import { finished, metricsOptions } from '../support/doors/observed.ts';
import { ROOT } from '../support/processes/tools.ts';
import { DASHBOARD, type Dashboard, expressionsOf, RULES, type RuleFile } from './monitoring-files.ts';

const read = (path: string): string => readFileSync(join(ROOT, path), 'utf8');
const ALERTS = (parse(read(RULES)) as RuleFile).groups.flatMap(({ rules }) => rules);

/** Names of metrics → the `label="value"` of each, of a proxy that has seen one of everything. */
async function rendered(): Promise<ReadonlyMap<string, ReadonlySet<string>>> {
  const options = metricsOptions({
    protection: () => ({ manifestSha256: 'abc', expiresAt: 130_000 }),
    certificateEnds: () => 200_000,
    notices: () =>
      (['critical', 'warning'] as const).map((severity) => ({ id: 'own_key_rejected', severity })),
    clients: true,
    processMetrics: true,
  });
  const { counters } = options;
  count(counters.decryptFailures, 'response_not_authentic');
  count(counters.clientAborts, 'mid_stream');
  count(counters.upstreamRetries, 'no_secret');
  count(counters.errors, 'ann\nlimits_unavailable');
  count(counters.errors, '\nclient_unknown');
  const metrics = createMetrics(options);
  for (const status of [null, 200, 400, 502])
    metrics.observe(finished({ status, client: 'ann', code: status === 200 ? null : 'upstream_reset' }));
  const series = new Map<string, Set<string>>();
  for (const [, name = '', labels = ''] of (await metrics.render()).matchAll(
    /^([a-z_]\w*)(?:\{(.*)\})? \S+$/gm,
  ))
    series.set(name, new Set([...(series.get(name) ?? []), ...(labels.match(/\w+="[^"]*"/g) ?? [])]));
  return series;
}

/** Labels that Prometheus adds to what it reads. */
const TARGET_LABELS: readonly string[] = ['instance', 'job', 'namespace', 'pod'];

/**
 * What an expression names that is not there; `shown` are labels that a text beside it uses. Grafana's
 * variables count as values that exist.
 */
function missingIn(expr: string, series: Awaited<ReturnType<typeof rendered>>, shown: readonly string[]) {
  const missing: string[] = [];
  const valuesOf = (name: string, label: string): string[] =>
    [...(series.get(name) ?? [])].flatMap((pair) =>
      pair.startsWith(`${label}="`) ? [pair.slice(label.length + 2, -1)] : [],
    );
  const named = [...expr.matchAll(/\b((?:privatemode_proxy|gen_ai|nodejs|process)_\w+)(?:\{([^}]*)\})?/g)];
  if (named.length === 0 && !/\bup\b/.test(expr)) missing.push('no metric at all');
  for (const [, name = '', selector = ''] of named) {
    if (!series.has(name)) missing.push(name);
    for (const [matcher, label = '', operator = '', value = ''] of selector.matchAll(
      /(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"/g,
    )) {
      const values = valuesOf(name, label);
      if (TARGET_LABELS.includes(label)) continue;
      const isFree = operator.startsWith('!') || value.startsWith('$');
      const pattern = new RegExp(`^(?:${value})$`);
      const matches = (each: string): boolean => (operator === '=~' ? pattern.test(each) : each === value);
      if (!values.some((each) => isFree || matches(each))) missing.push(`${name}: ${matcher}`);
    }
  }
  const lists = [...expr.matchAll(/\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)/g)];
  for (const label of [...lists.flatMap(([, list]) => list?.match(/\w+/g) ?? []), ...shown])
    if (!TARGET_LABELS.includes(label) && !named.some(([, name = '']) => valuesOf(name, label).length > 0))
      missing.push(`a label ${label}`);
  return missing.map((what) => `${what} in: ${expr}`);
}

it('the Grafana dashboard asks for metrics, labels and values that /metrics has', async () => {
  const series = await rendered();
  const expressions = expressionsOf(JSON.parse(read(DASHBOARD)) as Dashboard);
  assert.ok(expressions.length > 15, `${expressions.length} expressions`);
  const missing = expressions.flatMap(({ expr, labels }) => missingIn(expr, series, labels));
  assert.deepEqual(missing, []);
});

it('the alert rules ask for metrics, labels and values that /metrics has, and lead to their sections of docs/monitoring.md', async () => {
  const series = await rendered();
  for (const { alert, expr, labels, annotations } of ALERTS) {
    const words = Object.values(annotations).join(' ');
    const shown = [...words.matchAll(/\$labels\.(\w+)/g)].map(([, label]) => label as string);
    assert.deepEqual(missingIn(expr, series, shown), []);
    assert.match(labels['severity'] ?? '', /^(?:critical|warning)$/, alert);
    assert.equal(annotations['runbook_url'], `docs/monitoring.md#${alert.toLowerCase()}`);
  }
  const sections = [...read('docs/monitoring.md').matchAll(/^### (PrivatemodeProxy\w+)$/gm)];
  const titles = sections.map(([, name]) => name);
  assert.deepEqual(
    titles,
    ALERTS.map(({ alert }) => alert),
  );
});
