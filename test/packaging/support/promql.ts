/** Which metrics, labels and values an expression of PromQL names. For its grammar there is promtool. */

/** Names of rendered metrics → their labels → the values seen. */
export type Series = ReadonlyMap<string, ReadonlyMap<string, ReadonlySet<string>>>;

/** Labels that Prometheus adds to what it reads, and a metric of its own. */
const TARGET_LABELS: readonly string[] = ['instance', 'job', 'namespace', 'pod'];
const OF_PROMETHEUS: readonly string[] = ['up'];
const KEYWORDS: ReadonlySet<string> = new Set(['and', 'or', 'unless', 'offset', 'bool', 'inf', 'nan']);

/** What the text of /metrics has, with `_bucket`, `_sum` and `_count` of histograms as names of their own. */
export function seriesOf(text: string): Series {
  const series = new Map<string, Map<string, Set<string>>>(OF_PROMETHEUS.map((name) => [name, new Map()]));
  for (const [, name, labels = ''] of text.matchAll(/^([a-z_]\w*)(?:\{(.*)\})? \S+$/gm)) {
    const known = series.get(name as string) ?? new Map<string, Set<string>>();
    series.set(name as string, known);
    for (const [, label, value] of labels.matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)) {
      known.set(label as string, (known.get(label as string) ?? new Set()).add(value as string));
    }
  }
  return series;
}

/**
 * What is wrong in an expression, for a person; empty: nothing. `shown` are labels that a text beside it uses. Grafana's
 * variables count as values that exist.
 */
export function wrongIn(expr: string, series: Series, shown: readonly string[] = []): string[] {
  const wrong: string[] = [];
  const metrics: string[] = [];
  const lists: string[] = [...shown];
  let rest = expr.replace(/\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)/g, (_, list) => {
    lists.push(...list.split(/\s*,\s*/).filter((label: string) => label !== ''));
    return ' ';
  });
  rest = rest.replace(/([a-zA-Z_:][\w:]*)\s*\{([^}]*)\}/g, (_, name: string, matchers: string) => {
    metrics.push(name);
    for (const [, label, operator, value] of matchers.matchAll(/(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"/g)) {
      wrong.push(...wrongMatcher(name, label as string, operator as string, value as string));
    }
    return ' ';
  });
  rest = rest.replace(/\[[^\]]*\]|"[^"]*"|\boffset\s+\w+/g, ' ');
  for (const [name] of rest.matchAll(/(?<![\w.$])[a-zA-Z_]\w*(?!\w|\s*\()/g)) {
    if (!KEYWORDS.has(name)) metrics.push(name);
  }

  function wrongMatcher(name: string, label: string, operator: string, value: string): string[] {
    if (TARGET_LABELS.includes(label)) return [];
    const values = series.get(name)?.get(label);
    if (values === undefined) return [`${name} has no label ${label}: ${expr}`];
    if (operator.startsWith('!') || value.startsWith('$')) return [];
    const pattern = operator === '=~' ? new RegExp(`^(?:${value})$`) : undefined;
    const seen = [...values].some((known) => (pattern === undefined ? known === value : pattern.test(known)));
    return seen ? [] : [`${name} has no ${label}${operator}"${value}": ${expr}`];
  }

  if (metrics.length === 0) wrong.push(`no metric is named: ${expr}`);
  for (const name of metrics) if (!series.has(name)) wrong.push(`there is no metric ${name}: ${expr}`);
  const labels = new Set([
    ...TARGET_LABELS,
    ...metrics.flatMap((name) => [...(series.get(name)?.keys() ?? [])]),
  ]);
  for (const label of lists) if (!labels.has(label)) wrong.push(`no label ${label} in: ${expr}`);
  return wrong;
}
