/** The status page, `GET /` of the admin listener: the view in the HTML file beside this module. */
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { getAsset, isSea } from 'node:sea';
import type { HealthResponse } from './health.ts';
import { type Cell, type Chart, MARKS, type Section, type Tone, type ViewRow } from './status-view.ts';

const FILE = 'status-page.html';

/**
 * Returns what makes the response of a view. Reads the file: an asset of the single executable, else beside
 * this module or beside the built program. Throws if it is missing.
 */
export function loadStatusPage(): (view: readonly Section[]) => HealthResponse {
  const page = isSea() ? getAsset(FILE, 'utf8') : readFileSync(join(import.meta.dirname, FILE), 'utf8');
  const headers = {
    'content-type': 'text/html; charset=utf-8',
    'content-security-policy': [
      "default-src 'none'",
      `script-src ${digestOf(page, 'script')}`,
      `style-src ${digestOf(page, 'style')}`,
      "connect-src 'self'",
      'img-src data:',
      ...["base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'"],
    ].join('; '),
    'referrer-policy': 'no-referrer',
    'cache-control': 'no-store',
  };
  return (view) => {
    const { title = '', tone = 'plain' } = view[0] ?? {};
    const headline = html`<title>${MARKS[tone]} ${title} · privatemode-proxy</title>`;
    const body = page
      .replace(/<title>.*<\/title>/, () => headline.markup)
      .replace('<main></main>', () => `<main>\n${toHtml(view)}</main>`);
    return { status: 200, headers, body };
  };
}

/** The digest of the one element of that name, for a content security policy. */
function digestOf(page: string, tag: 'script' | 'style'): string {
  const [, text = ''] = page.split(new RegExp(`</?${tag}>`));
  return `'sha256-${createHash('sha256').update(text).digest('base64')}'`;
}

class Html {
  readonly markup: string;

  constructor(markup: string) {
    this.markup = markup;
  }
}

const ENTITIES: Readonly<Record<string, string>> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  '"': '&quot;',
  "'": '&#39;',
};

/** A template: what is not HTML already becomes text in it. The only place where values enter HTML. */
function html(parts: TemplateStringsArray, ...values: (string | Html | readonly Html[] | undefined)[]): Html {
  const markupOf = (value: (typeof values)[number]): string => {
    if (value instanceof Html) return value.markup;
    if (typeof value === 'object') return value.map(({ markup }) => markup).join('');
    return (value ?? '').replace(/[&<>"']/g, (character) => ENTITIES[character] ?? '');
  };
  return new Html(String.raw({ raw: parts }, ...values.map(markupOf)));
}

/** The content of <main>. */
export const toHtml = (view: readonly Section[]): string =>
  view.map((section) => `${sectionOf(section).markup}\n`).join('');

function sectionOf({ id, title, note, tone, rows = [], columns = [], cells = [], isFolded }: Section): Html {
  const hint = isFolded ? ' Open one to read its checks.' : '';
  const head = html`<div class="head" aria-live="${tone ? 'polite' : 'off'}"><h2>${title}</h2><p>${note}${hint}</p></div>`;
  const start = tone && html`${icon(tone)}`;
  const body = isFolded
    ? html`<div class="links">${rows.map((row) => linkOf(row, id))}</div>`
    : html`${rowsOf(rows)}${cells.length > 0 ? tableOf(title, columns, cells) : ''}`;
  return html`<section id="${id}"${toned(tone)}>${start}${head}${body}</section>`;
}

const toned = (tone: Tone | undefined): Html | undefined =>
  tone === undefined ? undefined : html` data-tone="${tone}"`;

const icon = (tone: Tone): Html =>
  html`<svg class="icon" aria-hidden="true"><use href="#icon-${tone}"/></svg>`;

const soft = (note: string | undefined): Html | undefined =>
  note === undefined ? undefined : html` <span class="soft">${note}</span>`;

/** Statements first, then facts. */
function rowsOf(rows: readonly ViewRow[]): Html {
  const statements = rows.map(({ tone, label, value, more = [] }) =>
    tone === undefined
      ? html``
      : html`<li data-tone="${tone}">${icon(tone)}<h3>${label}</h3><p>${value}</p>${rowsOf(more)}</li>`,
  );
  const facts = rows.map(({ tone, label, value, note, chart }) =>
    tone === undefined
      ? html`<div><dt>${label}</dt><dd>${value}${soft(note)}${chart && chartOf(chart)}</dd></div>`
      : html``,
  );
  const count = rows.filter(({ tone }) => tone !== undefined).length;
  return html`${count > 0 ? html`<ul>${statements}</ul>` : ''}${count < rows.length ? html`<dl>${facts}</dl>` : ''}`;
}

/** A row that opens; a failed one is open. Its id changes with its tone, so that a new failure opens it. */
function linkOf({ tone = 'plain', label, value, note, more = [] }: ViewRow, section: string): Html {
  const summary = html`<summary>${icon(tone)}<b>${label}</b>${soft(value)}</summary>`;
  const panel = html`<div class="panel card"><p class="soft">${note}</p>${rowsOf(more)}</div>`;
  const open = tone === 'bad' ? html` open` : '';
  return html`<details id="${section}-${label}-${tone}" name="${section}" data-tone="${tone}"${open}>${summary}${panel}</details>`;
}

function tableOf(
  title: string,
  columns: NonNullable<Section['columns']>,
  lines: readonly (readonly Cell[])[],
): Html {
  const kind = (i: number): string => (columns[i]?.isNumber ? 'number' : 'words');
  const headings = columns.map((column, i) => html`<th scope="col" class="${kind(i)}">${column.title}</th>`);
  const cellOf = ({ text, tone, below }: Cell, i: number): Html =>
    html`<td class="${kind(i)}" data-label="${columns[i]?.title}"${toned(tone)}>${text}${below === undefined ? '' : html`<code>${below}</code>`}</td>`;
  const body = lines.map((cells) => html`<tr>${cells.map(cellOf)}</tr>`);
  return html`<div class="scroll card" role="region" aria-label="${title}" tabindex="0"><table><thead><tr>${headings}</tr></thead><tbody>${body}</tbody></table></div>`;
}

/** The last two minutes as a line, with the ground below it tinted; the highest value is at the top. */
function chartOf(chart: Chart): Html {
  const highest = Math.max(0, ...chart.map(([, value]) => value)) || 1;
  const points = chart.map(([ago, value]) => [Math.max(0, 120 - ago), 38 - (35 * value) / highest] as const);
  const line = points.map(([x, y]) => `${x.toFixed(1)},${y.toFixed(1)}`).join(' ');
  const [first, last] = [points[0], points.at(-1)].map((point) => `${point?.[0] ?? 0},40`);
  return html`<svg class="chart" viewBox="0 0 120 40" preserveAspectRatio="none" aria-hidden="true"><polygon points="${first} ${line} ${last}"/><polyline points="${line}"/></svg><span class="axis" aria-hidden="true"><span>2 min ago</span><span>now</span></span>`;
}
