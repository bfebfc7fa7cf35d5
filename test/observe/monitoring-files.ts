/** The dashboard and the alert rules as files: what tests read of them, and what their expressions name. */
export const DASHBOARD = 'deploy/chart/files/dashboard.json';
export const RULES = 'deploy/chart/files/rules.yaml';

interface FromDatasource {
  readonly datasource?: { readonly uid: string };
}

interface Target extends FromDatasource {
  readonly expr: string;
  readonly legendFormat?: string;
}

export interface Panel extends FromDatasource {
  readonly id: number;
  readonly title: string;
  readonly type: string;
  readonly description?: string;
  readonly gridPos: { readonly x: number; readonly y: number; readonly w: number; readonly h: number };
  readonly fieldConfig?: { readonly defaults: { readonly unit?: string } };
  readonly targets?: readonly Target[];
  /** Of a row that is closed. */
  readonly collapsed?: boolean;
  readonly panels?: readonly Panel[];
}

export interface Dashboard {
  readonly uid: string;
  readonly panels: readonly Panel[];
  readonly annotations: {
    readonly list: readonly { readonly expr?: string; readonly textFormat?: string }[];
  };
  readonly templating: {
    readonly list: readonly { readonly name: string; readonly definition?: string }[];
  };
}

export interface Alert {
  readonly alert: string;
  readonly expr: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly annotations: Readonly<Record<string, string>>;
}

export interface RuleFile {
  readonly groups: readonly { readonly rules: readonly Alert[] }[];
}

/** Rows and panels in the order in which they are shown, with those that a closed row holds. */
export const laidOut = ({ panels }: Dashboard): readonly Panel[] =>
  panels.flatMap((panel) => [panel, ...(panel.panels ?? [])]);

/** All but the headings of rows. */
export const panelsOf = (dashboard: Dashboard): readonly Panel[] =>
  laidOut(dashboard).filter(({ type }) => type !== 'row');

/** Every expression of panels, annotations and variables, with the labels that texts beside it show. */
export function expressionsOf(dashboard: Dashboard): { expr: string; labels: string[] }[] {
  const shown = (format = ''): string[] =>
    [...format.matchAll(/\{\{\s*(\w+)\s*\}\}/g)].map(([, label]) => label as string);
  const targets = panelsOf(dashboard).flatMap(({ targets: of = [] }) => of);
  return [
    ...targets.map(({ expr, legendFormat }) => ({ expr, labels: shown(legendFormat) })),
    ...dashboard.annotations.list.flatMap(({ expr, textFormat }) =>
      expr === undefined ? [] : [{ expr, labels: shown(textFormat) }],
    ),
    ...dashboard.templating.list.flatMap(({ definition }) => {
      const [, expr, label] = /^label_values\((.*), (\w+)\)$/.exec(definition ?? '') ?? [];
      return expr === undefined ? [] : [{ expr, labels: [label as string] }];
    }),
  ];
}

/** Names of rendered metrics → the `label="value"` that are seen of each. */
export type Series = ReadonlyMap<string, ReadonlySet<string>>;

/** What the text of /metrics has, with `_bucket`, `_sum` and `_count` of histograms as names of their own. */
export function seriesOf(text: string): Series {
  const series = new Map<string, Set<string>>([['up', new Set()]]); // Prometheus' own
  for (const [, name = '', labels = ''] of text.matchAll(/^([a-z_]\w*)(?:\{(.*)\})? \S+$/gm)) {
    const pairs = labels.match(/\w+="(?:[^"\\]|\\.)*"/g) ?? [];
    series.set(name, new Set([...(series.get(name) ?? []), ...pairs]));
  }
  return series;
}

/** Labels that Prometheus adds to what it reads. */
const TARGET_LABELS: readonly string[] = ['instance', 'job', 'namespace', 'pod'];
const LABEL_LIST = /\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)/g;
const RANGE = /\[[^\]]*\]/g;
/** A metric with its selector; a text, which may hold words like one, comes first. */
const SELECTED =
  /"[^"]*"|(?<![\w.$])(?!(?:and|or|unless|offset)\b)([a-z_]\w*)(?!\w|\s*\()(?:\s*\{([^}]*)\})?/g;

/**
 * What an expression names that is not there, for a person; empty: nothing. `shown` are labels that a text
 * beside it uses. Grafana's variables count as values that exist. For the grammar there is promtool.
 */
export function missingIn(expr: string, series: Series, shown: readonly string[] = []): string[] {
  const lists = [...expr.matchAll(LABEL_LIST)].flatMap(([, list]) => list?.match(/\w+/g) ?? []);
  const selected = [...expr.replace(LABEL_LIST, ' ').replace(RANGE, ' ').matchAll(SELECTED)].filter(
    ([, name]) => name !== undefined,
  ) as unknown as [string, string, string?][];
  const valuesOf = (name: string, label: string): string[] =>
    [...(series.get(name) ?? [])].flatMap((pair) =>
      pair.startsWith(`${label}="`) ? [pair.slice(label.length + 2, -1)] : [],
    );
  const missing = selected.flatMap(([, name, matchers = '']) => [
    ...(series.has(name) ? [] : [`no metric ${name}`]),
    ...[...matchers.matchAll(/(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"/g)].flatMap(
      ([matcher, label = '', operator = '', value = '']) => {
        const values = valuesOf(name, label);
        if (TARGET_LABELS.includes(label)) return [];
        if (values.length === 0) return [`no label ${label} of ${name}`];
        if (operator.startsWith('!') || value.startsWith('$')) return [];
        const pattern = new RegExp(`^(?:${value})$`);
        return values.some((each) => (operator === '=~' ? pattern.test(each) : each === value))
          ? []
          : [`no ${matcher} of ${name}`];
      },
    ),
  ]);
  for (const label of [...lists, ...shown])
    if (!TARGET_LABELS.includes(label) && !selected.some(([, name]) => valuesOf(name, label).length > 0))
      missing.push(`no label ${label}`);
  if (selected.length === 0) missing.push('no metric at all');
  return missing.map((what) => `${what} in: ${expr}`);
}
