/**
 * The status page, `GET /` of the admin listener: the HTML file beside this module. The server writes the
 * verdict into it for readers without JavaScript.
 */
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { getAsset, isSea } from 'node:sea';
import type { StatusReport } from './status-report.ts';
import type { VerificationDocument } from './verification-document.ts';

/** The verdict on the page. Times in ms since 1970; null: nothing is attested. */
export interface VerdictFacts extends Pick<StatusReport, 'standing' | 'now' | 'lastError'> {
  /** `custom`: the roots are not those of AMD and Intel, so the verdict says nothing about real hardware. */
  readonly roots: 'vendor' | 'custom';
  readonly attestedAt: number | null;
  readonly expiresAt: number | null;
  /** The first failed check of the last verdict. */
  readonly failedCheck: Readonly<Record<'title' | 'code' | 'expected' | 'found', string>> | null;
}

/** Takes the facts of the verdict from the data that the listener shows at `/status` and `/verification`. */
export function verdictFacts(status: StatusReport, { verdict, chain }: VerificationDocument): VerdictFacts {
  const { standing, now, epoch, lastError } = status;
  const { failure = null } = verdict ?? {};
  const check = chain.flatMap(({ checks }) => checks).find(({ id }) => id === failure?.id);
  return {
    roots: verdict?.roots ?? 'vendor',
    ...{ standing, now, lastError },
    attestedAt: epoch?.attestedAt ?? null,
    expiresAt: epoch?.expiresAt ?? null,
    failedCheck: failure && {
      title: check?.title ?? failure.code,
      code: failure.code,
      expected: failure.expected ?? 'every check to pass',
      found: failure.found,
    },
  };
}

export interface StatusPage {
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
}

const FILE = 'status-page.html';
const PLACE = /<!-- verdict -->[\s\S]*?<!-- \/verdict -->/;
const TABLE = /<script type="application\/json" id="verdict-table">([\s\S]*?)<\/script>/;

/**
 * Reads the page: an asset of the single executable, else a file beside this module or beside the built
 * program. Throws if the file is missing, or has no place or texts for the verdict.
 */
export function loadStatusPage(): { renderStatusPage(facts: VerdictFacts): StatusPage } {
  const html = isSea() ? getAsset(FILE, 'utf8') : readFileSync(join(import.meta.dirname, FILE), 'utf8');
  const [, table] = TABLE.exec(html) ?? [];
  if (!PLACE.test(html) || table === undefined)
    throw new Error(`${FILE} has no place or no words for the verdict`);
  const rows = JSON.parse(table) as readonly VerdictRow[];
  const headers = {
    'content-type': 'text/html; charset=utf-8',
    'content-security-policy': policyOf(html),
    'x-content-type-options': 'nosniff',
    'referrer-policy': 'no-referrer',
    'cache-control': 'no-store',
  };
  return {
    renderStatusPage: (facts) => ({
      headers,
      body: html.replace(PLACE, () => renderVerdict(facts, chooseWords(rows, facts))),
    }),
  };
}

/**
 * The content security policy: it allows the scripts and styles in the page, by hash, and requests to the
 * listener itself.
 */
function policyOf(html: string): string {
  return [
    "default-src 'none'",
    `script-src ${hashesOf(html, 'script')}`,
    `style-src ${hashesOf(html, 'style')}`,
    "connect-src 'self'",
    'img-src data:',
    ...["base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'"],
  ].join('; ');
}

function hashesOf(html: string, tag: 'script' | 'style'): string {
  const blocks = [...html.matchAll(new RegExp(`<${tag}>([\\s\\S]*?)</${tag}>`, 'g'))].map(
    ([, text]) => text as string,
  );
  const hashes = blocks.map((text) => `'sha256-${createHash('sha256').update(text).digest('base64')}'`);
  return hashes.length === 0 ? "'none'" : hashes.join(' ');
}

/**
 * The texts of a verdict. The texts of a row of the table in the page take precedence over those of the
 * state, if all conditions of the row hold.
 */
interface VerdictWords extends Pick<StatusReport['standing'], 'title' | 'meaning'> {
  readonly tone: string;
}

interface VerdictRow extends VerdictWords {
  readonly when: Readonly<Record<string, unknown>>;
}

/**
 * Chooses from the same rows by the same rule as the page. When the server renders a
 * verdict, all facts of the verdict are at hand, so the page counts as connected, whole and not expired.
 */
function chooseWords(rows: readonly VerdictRow[], { standing, roots }: VerdictFacts): VerdictWords {
  const { verified } = standing;
  const known: Readonly<Record<string, unknown>> = {
    connected: true,
    whole: true,
    expired: false,
    verified,
    roots,
  };
  return (
    rows.find(({ when }) => Object.entries(when).every(([name, value]) => known[name] === value)) ?? standing
  );
}

function renderVerdict(facts: VerdictFacts, { tone, title, meaning }: VerdictWords): string {
  const { now, attestedAt, expiresAt, lastError, failedCheck } = facts;
  const found = failedCheck && `Expected: ${failedCheck.expected}. Found: ${failedCheck.found}`;
  const line = (id: string, text: string | null): string =>
    `<p id="${id}"${text === null ? ' hidden' : ''}>${escaped(text ?? '')}</p>`;
  return `<section id="verdict" data-tone="${tone}" aria-labelledby="verdict-title">
    <svg class="icon seal" aria-hidden="true"><use id="verdict-icon" href="#icon-${tone}"/></svg>
    <div id="verdict-words" aria-live="polite" aria-atomic="true">
      <h2 id="verdict-title">${escaped(title)}</h2>
      ${line('verdict-meaning', meaning)}
      ${line('verdict-remedy', lastError && `What to do: ${lastError.remedy}`)}
      ${line('verdict-check', failedCheck && `Failed check: ${failedCheck.title} (${failedCheck.code})`)}
      ${line('verdict-error', lastError === null || lastError.code === failedCheck?.code ? null : `${lastError.code}: ${lastError.message}`)}
      <details id="verdict-details"${found === null ? ' hidden' : ''}><summary>What was expected, and what was found</summary>${line('verdict-found', found)}</details>
    </div>
    <dl id="verdict-times">
      <div><dt>Attested</dt><dd id="verdict-since">${timeOf(attestedAt)}</dd></div>
      <div><dt id="verdict-until-name">${expiresAt !== null && expiresAt <= now ? 'Expired' : 'Valid until'}</dt><dd id="verdict-until">${timeOf(expiresAt)}</dd></div>
      <div><dt>As of</dt><dd id="verdict-asked">${timeOf(now)}. Reload the page to ask again.</dd></div>
    </dl>
  </section>`;
}

function timeOf(at: number | null): string {
  if (at === null) return '–';
  const iso = new Date(at).toISOString();
  return `<time datetime="${iso}">${iso.slice(0, 19).replace('T', ' ')} UTC</time>`;
}

const ENTITIES: Readonly<Record<string, string>> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  '"': '&quot;',
  "'": '&#39;',
};
const escaped = (text: string): string =>
  text.replace(/[&<>"']/g, (character) => ENTITIES[character] as string);
