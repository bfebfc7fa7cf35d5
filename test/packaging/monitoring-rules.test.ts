/** Prometheus' own checker reads the alert rules, tests them, and reads the expressions of the dashboard. */
import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { stringify } from 'yaml';
import { DASHBOARD, type Dashboard, expressionsOf, RULES } from '../observe/monitoring-files.ts';
import { program } from '../support/processes/foreign-programs.ts';
import { temporaryDirectory } from '../support/processes/temporary-directory.ts';
import { ROOT, run } from '../support/processes/tools.ts';

const PROMTOOL = program('promtool', { from: 'scripts/install-chart-tools.sh' });

function passes(...args: string[]): void {
  const { status, stdout, stderr } = run(PROMTOOL.path, args);
  assert.equal(status, 0, stdout + stderr);
}

if (PROMTOOL.skip === false) {
  describe('promtool', () => {
    it('accepts the alert rules, and passes their tests', () => {
      passes('check', 'rules', RULES);
      passes('test', 'rules', 'deploy/prometheus/rules.test.yaml');
    });

    it('accepts the expressions of the dashboard', () => {
      const dashboard = JSON.parse(readFileSync(join(ROOT, DASHBOARD), 'utf8')) as Dashboard;
      const rules = expressionsOf(dashboard).map(({ expr }, index) => ({
        record: `dashboard:${index}`,
        expr: expr.replace(/\$__(?:rate_interval|range|interval)/g, '5m'),
      }));
      assert.ok(rules.length > 10);
      const file = join(temporaryDirectory('rules-'), 'rules.yaml');
      writeFileSync(file, stringify({ groups: [{ name: 'dashboard', rules }] }));
      passes('check', 'rules', file);
    });
  });
}
