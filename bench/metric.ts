import type { Bar } from './stats.ts';
import type { Subjects } from './subjects.ts';

/** One line of the table: a figure per round, and where it must stay. */
export interface Row {
  readonly id: string;
  readonly title: string;
  /** What the figure is a ratio of, or its unit. */
  readonly figure: string;
  /** Without one the row shows what something costs, and there is no verdict. */
  readonly bar?: Bar;
}

/** What one round found. */
export interface Round {
  /** By row id: what is held against the bar; a row that has none in any round is left out. */
  readonly figures: Readonly<Record<string, number>>;
  /** What the figures were made from, by a name with its unit: for the record. */
  readonly values: Readonly<Record<string, number>>;
}

export interface Metric {
  readonly name: string;
  readonly rows: readonly Row[];
  /** Rounds of a full run, and of a quick one; 0 leaves it out. */
  readonly rounds: { readonly full: number; readonly quick: number };
  /** Goes through its subjects once, in random order. */
  readonly round: (subjects: Subjects, quick: boolean) => Promise<Round>;
}
