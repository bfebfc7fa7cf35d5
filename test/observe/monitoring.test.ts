/**
 * The dashboard and the alert rules ask for nothing that /metrics does not have: a wrong name is an empty
 * panel, or an alert that never fires.
 */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { parse } from 'yaml';
import { count } from '../../lib/observe/counters.ts';
import { createMetrics } from '../../lib/observe/metrics.ts';
import { finished, metricsOptions } from '../support/doors/observed.ts';
import { ROOT } from '../support/processes/tools.ts';
import {
  type Alert,
  DASHBOARD,
  type Dashboard,
  expressionsOf,
  laidOut,
  missingIn,
  type Panel,
  panelsOf,
  RULES,
  type RuleFile,
  type Series,
  seriesOf,
} from './monitoring-files.ts';

const read = (path: string): string => readFileSync(join(ROOT, path), 'utf8');
const dashboard = (): Dashboard => JSON.parse(read(DASHBOARD)) as Dashboard;
const alertsOf = ({ groups }: RuleFile): readonly Alert[] => groups.flatMap(({ rules }) => rules);
const ALERTS = alertsOf(parse(read(RULES)) as RuleFile);
const PAGE = read('docs/monitoring.md');

/** What a proxy renders that has seen one of everything. */
async function rendered(): Promise<Series> {
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
  return seriesOf(await metrics.render());
}

const overlap = (a: Panel['gridPos'], b: Panel['gridPos']): boolean =>
  a.x < b.x + b.w && b.x < a.x + a.w && a.y < b.y + b.h && b.y < a.y + a.h;

/** What is wrong with the layout and the words of the panels, for a person. */
function wrongPanels(dashboard: Dashboard): string[] {
  const wrong: string[] = [];
  const shown = laidOut(dashboard);
  for (const [index, { id, title, type, gridPos, ...panel }] of shown.entries()) {
    const others = shown.slice(0, index);
    if (title === '' || others.some((other) => other.title === title)) wrong.push(`${title}: its title`);
    if (others.some((other) => other.id === id)) wrong.push(`${title}: its id`);
    for (const other of others) if (overlap(other.gridPos, gridPos)) wrong.push(`${title} on ${other.title}`);
    if (gridPos.x + gridPos.w > 24) wrong.push(`${title}: its width`);
    if (type === 'row') continue;
    if (!/^[A-Z][^.]+\.$/.test(panel.description ?? '')) wrong.push(`${title}: its description`);
    if ((panel.fieldConfig?.defaults.unit ?? '') === '') wrong.push(`${title}: its unit`);
    for (const { datasource } of [panel, ...(panel.targets ?? [])]) {
      if (datasource?.uid !== '$' + '{datasource}') wrong.push(`${title}: its data source`);
    }
  }
  return wrong;
}

describe('the Grafana dashboard', () => {
  it('asks for metrics, labels and values that /metrics has', async () => {
    const series = await rendered();
    const expressions = expressionsOf(dashboard());
    assert.ok(expressions.length > 15, `${expressions.length} expressions`);
    assert.deepEqual(
      expressions.flatMap(({ expr, labels }) => missingIn(expr, series, labels)),
      [],
    );
  });

  it('has panels that say what they show and in what unit, and do not overlap', () => {
    assert.deepEqual(wrongPanels(dashboard()), []);
  });

  it('has all panels about clients, and no others, in the only row that is collapsed at first', async () => {
    const { panels } = dashboard();
    const closed = panels.filter(({ collapsed }) => collapsed === true);
    assert.deepEqual(
      closed.map(({ title }) => title),
      ['Clients'],
    );
    const aboutClients = (expr: string): boolean => /\bclient\b|limits_uncounted/.test(expr);
    for (const [shown, expected] of [
      [panels, false],
      [closed[0]?.panels ?? [], true],
    ] as const) {
      const expressions = shown.flatMap(({ targets = [] }) => targets.map(({ expr }) => expr));
      assert.ok(expressions.length > 1, `${expressions.length} expressions`);
      for (const expr of expressions) assert.equal(aboutClients(expr), expected, expr);
    }
  });

  it('has the uid privatemode-proxy, and shows only the chosen namespaces and instances', () => {
    const { uid, templating } = dashboard();
    assert.equal(uid, 'privatemode-proxy');
    assert.deepEqual(
      templating.list.map(({ name }) => name),
      ['datasource', 'namespace', 'instance'],
    );
    const chosen = 'namespace=~"$namespace", instance=~"$instance"';
    for (const { expr } of panelsOf(dashboard()).flatMap((panel) => panel.targets ?? [])) {
      // The one selector without a choice is what keeps other programs on Node out.
      const selectors = expr.replaceAll(/on \(namespace, job, instance\) \w+/g, '').match(/\{[^}]*\}/g) ?? [];
      assert.ok(selectors.length > 0, expr);
      for (const selector of selectors) assert.ok(selector.startsWith(`{${chosen}`), expr);
    }
  });

  it('leaves out other programs that have metrics of the same names', () => {
    for (const { expr } of expressionsOf(dashboard())) {
      if (expr.includes('gen_ai_')) assert.match(expr, /gen_ai_provider_name="privatemode"/);
      if (/\b(?:process|nodejs)_/.test(expr)) {
        assert.match(expr, / and on \(namespace, job, instance\) privatemode_proxy_build_info$/);
      }
    }
  });
});

/** A test of promtool, as far as it is read here. */
interface RuleTest {
  readonly name: string;
  readonly promql_expr_test?: readonly {
    readonly expr: string;
    readonly exp_samples: readonly { labels: string }[];
  }[];
  readonly alert_rule_test?: readonly {
    readonly alertname: string;
    readonly exp_alerts: readonly object[];
  }[];
}

/** For each time at which that test looks at all alerts or at one: the names of those that it expects. */
function expectations({ promql_expr_test: all = [], alert_rule_test: one = [] }: RuleTest): string[][] {
  const nameIn = (labels: string): string => /alertname="(\w+)"/.exec(labels)?.[1] ?? '';
  const looks = all.filter(({ expr }) =>
    /^count by \(alertname.*\) \(ALERTS\{alertstate="firing"\}\)$/.test(expr),
  );
  return [
    ...looks.map(({ exp_samples: samples }) => samples.map(({ labels }) => nameIn(labels))),
    ...one.map(({ alertname, exp_alerts: alerts }) => alerts.map(() => alertname)),
  ];
}

describe('the alert rules', () => {
  it('ask for metrics, labels and values that /metrics has', async () => {
    const series = await rendered();
    assert.ok(ALERTS.length === 6, `${ALERTS.length} alerts`);
    for (const { expr, annotations } of ALERTS) {
      const words = Object.values(annotations).join(' ');
      const labels = [...words.matchAll(/\$labels\.(\w+)/g)].map(([, label]) => label as string);
      assert.deepEqual(missingIn(expr, series, labels), []);
    }
  });

  it('have a severity, a summary, a description and a link to their section of docs/monitoring.md', () => {
    assert.equal(new Set(ALERTS.map(({ alert }) => alert)).size, ALERTS.length);
    for (const { alert, labels, annotations } of ALERTS) {
      assert.match(labels['severity'] ?? '', /^(?:critical|warning)$/, alert);
      assert.match(annotations['summary'] ?? '', /\w{3}/, alert);
      assert.match(annotations['description'] ?? '', /\.$/, alert);
      assert.equal(annotations['runbook_url'], `docs/monitoring.md#${alert.toLowerCase()}`);
    }
  });

  it('are exactly those that docs/monitoring.md explains, each under its name', () => {
    const explained = [...PAGE.matchAll(/^### (PrivatemodeProxy\w+)$/gm)].map(([, name]) => name);
    assert.deepEqual(
      explained,
      ALERTS.map(({ alert }) => alert),
    );
  });

  it('each have a test in deploy/prometheus/rules.test.yaml, with a time of that alert and a time of no alert', () => {
    const { tests } = parse(read('deploy/prometheus/rules.test.yaml')) as { tests: readonly RuleTest[] };
    for (const { alert } of ALERTS) {
      const own = tests.filter(({ name }) => name.startsWith(`${alert},`));
      const expected = own.flatMap(expectations);
      assert.ok(
        expected.some((alerts) => alerts.includes(alert)),
        `${alert}: none in which it fires`,
      );
      assert.ok(
        expected.some((alerts) => alerts.length === 0),
        `${alert}: none in which nothing fires`,
      );
    }
  });
});
