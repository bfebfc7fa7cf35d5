/** The chart of the README: how long the next token takes, with and without the proxy. */

export interface Series {
  readonly name: string;
  /** Pairs of percentile (0..1) and ms, ascending. */
  readonly points: readonly (readonly [number, number])[];
}

const WIDTH = 720;
const HEIGHT = 300;
const PLOT = { left: 56, right: 700, top: 40, bottom: 250 };
const COLOURS = ['#888888', '#3572b0', '#c4511d', '#3a7d44'];
const TICKS = [0.01, 0.1, 0.5, 0.9, 0.99, 0.999];

/** Percentiles by their distance from the ends: the tail gets as much room as the middle. */
const logit = (p: number): number => Math.log(p / (1 - p));

export function interTokenChart(series: readonly Series[]): string {
  const all = series.flatMap(({ points }) => points.map(([, ms]) => ms));
  const top = Math.ceil(Math.max(...all) / 10) * 10;
  const x = (p: number): number => {
    const [low, high] = [logit(TICKS[0]!), logit(TICKS.at(-1)!)];
    return PLOT.left + ((logit(p) - low) / (high - low)) * (PLOT.right - PLOT.left);
  };
  const y = (ms: number): number => PLOT.bottom - (ms / top) * (PLOT.bottom - PLOT.top);
  const at = (p: number, ms: number): string => `${x(p).toFixed(1)},${y(ms).toFixed(1)}`;

  const grid = [0, 0.25, 0.5, 0.75, 1].map((share) => {
    const ms = share * top;
    const label = `<text x="${PLOT.left - 8}" y="${(y(ms) + 4).toFixed(1)}" text-anchor="end">${Math.round(ms)}</text>`;
    return `<path d="M${PLOT.left},${y(ms).toFixed(1)}H${PLOT.right}" stroke="#8884" fill="none"/>${label}`;
  });
  const ticks = TICKS.map(
    (p) =>
      `<text x="${x(p).toFixed(1)}" y="${PLOT.bottom + 20}" text-anchor="middle">p${Number((100 * p).toFixed(1))}</text>`,
  );
  const lines = series.map(({ points }, index) => {
    const path = points.map(([p, ms]) => at(p, ms)).join(' L');
    return `<path d="M${path}" fill="none" stroke="${COLOURS[index % COLOURS.length]}" stroke-width="2"/>`;
  });
  const legend = series.map(({ name }, index) => {
    const from = PLOT.left + 16 + index * 160;
    return `<path d="M${from},24h24" stroke="${COLOURS[index % COLOURS.length]}" stroke-width="3"/><text x="${from + 30}" y="28">${escaped(name)}</text>`;
  });
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${HEIGHT}" font-family="sans-serif" font-size="12" fill="#777" role="img">
<title>Milliseconds between tokens, by percentile; 50 streams of 50 tokens a second</title>
${[...grid, ...ticks, ...lines, ...legend].join('\n')}
<text x="${(PLOT.left + PLOT.right) / 2}" y="${HEIGHT - 10}" text-anchor="middle">ms between tokens by percentile, 50 streams of 50 tokens a second</text>
</svg>
`;
}

const escaped = (text: string): string => text.replaceAll('&', '&amp;').replaceAll('<', '&lt;');
