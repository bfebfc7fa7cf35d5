/** The dashboard and the alert rules as files: what tests read of them. */
export const DASHBOARD = 'deploy/chart/files/dashboard.json';
export const RULES = 'deploy/chart/files/rules.yaml';

interface Panel {
  readonly targets?: readonly { readonly expr: string; readonly legendFormat?: string }[];
  /** Of a row that is closed. */
  readonly panels?: readonly Panel[];
}

export interface Dashboard {
  readonly panels: readonly Panel[];
  readonly annotations: {
    readonly list: readonly { readonly expr?: string; readonly textFormat?: string }[];
  };
  readonly templating: { readonly list: readonly { readonly definition?: string }[] };
}

export interface RuleFile {
  readonly groups: readonly {
    readonly rules: readonly {
      readonly alert: string;
      readonly expr: string;
      readonly labels: Readonly<Record<string, string>>;
      readonly annotations: Readonly<Record<string, string>>;
    }[];
  }[];
}

/** Every expression of panels, annotations and variables, with the labels that texts beside it show. */
export function expressionsOf({ panels, annotations, templating }: Dashboard) {
  const shown = (format = ''): string[] =>
    [...format.matchAll(/\{\{\s*(\w+)\s*\}\}/g)].map(([, label]) => label as string);
  const all = panels.flatMap((panel) => [panel, ...(panel.panels ?? [])]);
  const targets = all.flatMap((panel) => panel.targets ?? []);
  return [
    ...targets.map(({ expr, legendFormat }) => ({ expr, labels: shown(legendFormat) })),
    ...annotations.list.flatMap(({ expr, textFormat }) =>
      expr === undefined ? [] : [{ expr, labels: shown(textFormat) }],
    ),
    ...templating.list.flatMap(({ definition = '' }) => {
      const [, expr, label] = /^label_values\((.*), (\w+)\)$/.exec(definition) ?? [];
      return expr === undefined ? [] : [{ expr, labels: [label as string] }];
    }),
  ];
}
