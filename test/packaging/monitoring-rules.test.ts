/** Prometheus' own checker reads the alert rules, tests them, and reads the expressions of the dashboard. */
import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { parse, stringify } from 'yaml';
import {
  type Alert,
  DASHBOARD,
  type Dashboard,
  expressionsOf,
  RULES,
  type RuleFile,
} from '../observe/monitoring-files.ts';
import { program } from '../support/processes/foreign-programs.ts';
import { temporaryDirectory } from '../support/processes/temporary-directory.ts';
import { ROOT, run } from '../support/processes/tools.ts';

const PROMTOOL = program('promtool', { from: 'scripts/install-chart-tools.sh' });
const TEST_FILE = 'deploy/prometheus/rules.test.yaml';
const TESTS = parse(readFileSync(join(ROOT, TEST_FILE), 'utf8')) as {
  readonly tests: readonly { readonly name: string }[];
};
const FILE = parse(readFileSync(join(ROOT, RULES), 'utf8')) as RuleFile;
const ALERTS = FILE.groups.flatMap(({ rules }) => rules);

/** What promtool says against these rules, by the tests whose name begins so; empty: they pass. */
function tested(rules: RuleFile, name: string): string {
  const directory = temporaryDirectory('rules-');
  const tests = TESTS.tests.filter((test) => test.name.startsWith(name));
  assert.ok(tests.length > 0, name);
  writeFileSync(join(directory, 'rules.yaml'), stringify(rules));
  writeFileSync(
    join(directory, 'rules.test.yaml'),
    stringify({ ...TESTS, rule_files: ['rules.yaml'], tests }),
  );
  const { status, stdout, stderr } = run(PROMTOOL.path, ['test', 'rules', 'rules.test.yaml'], {
    cwd: directory,
  });
  return status === 0 ? '' : stdout + stderr;
}

const replaced = (alert: Alert, by: readonly Alert[]): RuleFile => ({
  groups: FILE.groups.map((group) => ({
    ...group,
    rules: group.rules.flatMap((rule) => (rule.alert === alert.alert ? by : [rule])),
  })),
});

/** What promtool says against rules; empty: it understands them. */
function checked(rules: object): string {
  const directory = temporaryDirectory('rules-');
  const file = join(directory, 'rules.yaml');
  writeFileSync(file, stringify(rules));
  const { status, stdout, stderr } = run(PROMTOOL.path, ['check', 'rules', file]);
  return status === 0 ? '' : stdout + stderr;
}

if (PROMTOOL.skip === false) {
  describe('promtool', () => {
    it('accepts the alert rules', () => {
      const { status, stdout, stderr } = run(PROMTOOL.path, ['check', 'rules', RULES]);
      assert.equal(status, 0, stdout + stderr);
    });

    it('passes the tests of the alert rules in deploy/prometheus/rules.test.yaml', () => {
      const { status, stdout, stderr } = run(PROMTOOL.path, ['test', 'rules', TEST_FILE]);
      assert.equal(status, 0, stdout + stderr);
    });

    for (const alert of ALERTS) {
      const { alert: name } = alert;
      it(`fails those tests if ${name} never fires, or if it always fires`, (_t) => {
        assert.equal(tested(FILE, `${name},`), '');
        assert.match(tested(replaced(alert, []), `${name},`), new RegExp(`alertname(?:="|: )${name}`));
        const always = { ...alert, expr: 'privatemode_proxy_build_info', for: '0s' };
        assert.match(tested(replaced(alert, [always]), 'nothing fires'), /exp: nil\s+got: \{\} 1E\+00/);
      });
    }

    it('accepts the expressions of the dashboard', (_t) => {
      const dashboard = JSON.parse(readFileSync(join(ROOT, DASHBOARD), 'utf8')) as Dashboard;
      const rulesOf = (expressions: readonly string[]) => {
        const rules = expressions.map((expr, index) => ({
          record: `dashboard:${index}`,
          expr: expr.replace(/\$__(?:rate_interval|range|interval)/g, '5m'),
        }));
        return { groups: [{ name: 'dashboard', rules }] };
      };
      const expressions = expressionsOf(dashboard).map(({ expr }) => expr);
      assert.equal(checked(rulesOf(expressions)), '');
      assert.match(checked(rulesOf([...expressions, 'sum by (a) (up'])), /unclosed left parenthesis/);
    });
  });
}
