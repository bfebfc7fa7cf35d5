/** The dashboard and the alert rules as files: what tests read of them. */
export const DASHBOARD = 'deploy/grafana/privatemode-proxy.json';
export const RULES = 'deploy/prometheus/rules.yaml';

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
