/** Makes the status page, `GET /` of the admin listener, from the HTML file beside this module. */
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { getAsset, isSea } from 'node:sea';
import type { HealthResponse } from './health.ts';
import { type Chart, MARKS, type Section, type Tone, type ViewRow } from './status-view.ts';

const FILE = 'status-page.html';

/**
 * Reads the HTML file, and returns a function that makes the response for a view. In the single executable
 * the file is an asset; otherwise it is beside this module or the built program. Throws without the file.
 */
export function loadStatusPage(): (view: readonly Section[]) => HealthResponse {
  const page = isSea() ? getAsset(FILE, 'utf8') : readFileSync(join(import.meta.dirname, FILE), 'utf8');
  const own = (['script', 'style'] as const).map((tag) => `${tag}-src ${digestOf(page, tag)}`);
  const others =
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
  const headers = {
    'content-type': 'text/html; charset=utf-8',
    'content-security-policy': ["default-src 'none'", ...own, others].join('; '),
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

/** The digest of the page's only element with this tag, for the content security policy. */
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

/** The template tag that escapes each value that is not `Html` yet. Only `html` puts values into HTML. */
function html(parts: TemplateStringsArray, ...values: (string | Html | readonly Html[] | undefined)[]): Html {
  const markupOf = (value: (typeof values)[number]): string => {
    if (value instanceof Html) return value.markup;
    if (typeof value === 'object') return value.map(({ markup }) => markup).join('');
    return (value ?? '').replace(/[&<>"']/g, (character) => `&#${character.charCodeAt(0)};`);
  };
  return new Html(String.raw({ raw: parts }, ...values.map(markupOf)));
}

/** The content of the page's <main> element. */
export const toHtml = (view: readonly Section[]): string => html`${view.map(sectionOf)}`.markup;

function sectionOf({ id, title, note, tone, rows = [], table = [], isFolded }: Section): Html {
  const hint = isFolded ? ' Open one to read its checks.' : '';
  const head = html`<div class="head" aria-live="${tone ? 'polite' : 'off'}"><h2>${title}</h2><p>${note}${hint}</p></div>`;
  const body = isFolded
    ? html`<div class="links">${rows.map((row) => linkOf(row, id))}</div>`
    : html`${rowsOf(rows)}${tableOf(title, table)}`;
  return html`<section id="${id}" data-tone="${tone}">${tone && icon(tone)}${head}${body}</section>`;
}

const icon = (tone: Tone): Html =>
  html`<svg class="icon" aria-hidden="true"><use href="#icon-${tone}"/></svg>`;

/** Shows rows with a tone (statements) first, then rows without a tone (facts). */
const rowsOf = (rows: readonly ViewRow[]): Html =>
  html`<ul>${rows.filter(({ tone }) => tone).map(statementOf)}</ul><dl>${rows.filter(({ tone }) => !tone).map(factOf)}</dl>`;

const statementOf = ({ tone, label, value, more = [] }: ViewRow): Html =>
  html`<li data-tone="${tone}">${tone && icon(tone)}<h3>${label}</h3><p>${value}</p>${rowsOf(more)}</li>`;

const factOf = ({ label, value, note, chart }: ViewRow): Html =>
  html`<div><dt>${label}</dt><dd>${value} <span class="soft">${note}</span>${chart && chartOf(chart)}</dd></div>`;

/**
 * A row that the reader can open. A failed row is open at first. The page keeps rows open by their ids, which
 * contain the tone, so that a row that newly fails opens.
 */
function linkOf({ tone = 'plain', label, value, note, more = [] }: ViewRow, section: string): Html {
  const summary = html`<summary>${icon(tone)}<b>${label}</b> <span class="soft">${value}</span></summary>`;
  const panel = html`<div class="panel card"><p class="soft">${note}</p>${rowsOf(more)}</div>`;
  const open = tone === 'bad' ? html` open` : '';
  return html`<details id="${section}-${label}-${tone}" name="${section}" data-tone="${tone}"${open}>${summary}${panel}</details>`;
}

function tableOf(title: string, lines: readonly (readonly ViewRow[])[]): Html {
  const [first] = lines;
  if (first === undefined) return html``;
  const headings = first.map(({ label }) => html`<th scope="col">${label}</th>`);
  const cellOf = ({ label, value, note, tone }: ViewRow): Html =>
    html`<td data-label="${label}" data-tone="${tone}">${value}<code>${note}</code></td>`;
  const body = lines.map((cells) => html`<tr>${cells.map(cellOf)}</tr>`);
  return html`<div class="scroll card" role="region" aria-label="${title}" tabindex="0"><table><thead><tr>${headings}</tr></thead><tbody>${body}</tbody></table></div>`;
}

/** Draws the last two minutes as a line above a tinted area. The highest value is at the top. */
function chartOf(chart: Chart): Html {
  const highest = Math.max(...chart.map((value = 0) => value)) || 1;
  const points = chart.flatMap((value, x) =>
    value === undefined ? [] : [`${x},${(38 - (35 * value) / highest).toFixed(1)}`],
  );
  const ground = [points[0], points.at(-1)].map((point = '0') => `${point.split(',')[0]},40`);
  const line = points.join(' ');
  return html`<svg class="chart" viewBox="0 0 119 40" preserveAspectRatio="none" aria-hidden="true"><polygon points="${ground[0]} ${line} ${ground[1]}"/><polyline points="${line}"/></svg>`;
}
