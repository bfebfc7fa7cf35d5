/** The status page, `GET /` of the admin listener: the file beside this module, with the verdict written into it for readers without JavaScript. */
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { getAsset, isSea } from 'node:sea';
import type { StatusReport } from './status-report.ts';

/** What the verdict says. Times in ms since 1970; null: nothing is attested. */
export interface VerdictFacts {
  /** Whether an epoch that has not expired protects requests. */
  readonly verified: boolean;
  /** `custom`: the roots are not those of AMD and Intel, so nothing is said about real hardware. */
  readonly roots: 'vendor' | 'custom';
  readonly state: StatusReport['state'];
  readonly now: number;
  readonly attestedAt: number | null;
  readonly expiresAt: number | null;
  readonly lastError: StatusReport['lastError'];
  /** The first check of the last verdict that failed. */
  readonly failedCheck: { readonly title: string; readonly expected: string; readonly found: string } | null;
}

export interface StatusPage {
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
}

const FILE = 'status-page.html';
const PLACE = /<!-- verdict -->[\s\S]*?<!-- \/verdict -->/;

/** Reads the page: an asset of the single executable, else a file beside this module or beside the built program. Throws where it is missing. */
export function loadStatusPage(): { renderStatusPage(facts: VerdictFacts): StatusPage } {
  const html = isSea() ? getAsset(FILE, 'utf8') : readFileSync(join(import.meta.dirname, FILE), 'utf8');
  if (!PLACE.test(html)) throw new Error(`${FILE} has no place for the verdict`);
  const headers = {
    'content-type': 'text/html; charset=utf-8',
    'content-security-policy': policyOf(html),
    'x-content-type-options': 'nosniff',
    'referrer-policy': 'no-referrer',
    'cache-control': 'no-store',
  };
  return {
    renderStatusPage: (facts) => ({ headers, body: html.replace(PLACE, () => renderVerdict(facts)) }),
  };
}

/** Allows the scripts and styles that stand in the page, by hash, and requests to the listener itself. */
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

type Words = readonly [tone: 'good' | 'warn' | 'bad' | 'plain', title: string, meaning: string];

const UNVERIFIED: Readonly<Record<StatusReport['state'], Words>> = {
  ready: ['bad', '✗ Not verified', 'The attestation has expired. No request leaves this machine.'],
  failing: ['bad', '✗ Not verified', 'The service could not be verified. No request leaves this machine.'],
  starting: ['plain', '… Not verified yet', 'The service is being verified. Requests wait.'],
  'awaiting-key': [
    'plain',
    '… Not verified yet',
    'The first client that brings an API key starts the verification.',
  ],
};

function wordsOf({ verified, roots, state }: VerdictFacts): Words {
  if (!verified) return UNVERIFIED[state];
  if (roots === 'custom')
    return [
      'warn',
      '! Verified under custom roots',
      'The roots are not those of AMD and Intel: this says nothing about real hardware.',
    ];
  if (state === 'failing')
    return [
      'warn',
      '! Verified, but the renewal fails',
      'Requests are protected until the attestation expires.',
    ];
  return ['good', '✓ Verified', 'Requests are encrypted for the service that the hardware attests.'];
}

function renderVerdict(facts: VerdictFacts): string {
  const { now, attestedAt, expiresAt, lastError, failedCheck } = facts;
  const [tone, title, meaning] = wordsOf(facts);
  const lines = [
    attestedAt !== null && `Attested at ${timeOf(attestedAt)}`,
    expiresAt !== null && `${expiresAt > now ? 'Valid until' : 'Expired at'} ${timeOf(expiresAt)}`,
    failedCheck &&
      escaped(
        `Failed check: ${failedCheck.title}. Must hold: ${failedCheck.expected}. Found: ${failedCheck.found}`,
      ),
    lastError && escaped(`${lastError.code}: ${lastError.message}. ${lastError.remedy}`),
  ].flatMap((line) => (line ? [`<p>${line}</p>`] : []));
  return `<section id="verdict" data-tone="${tone}" aria-labelledby="verdict-title">
    <h2 id="verdict-title">${escaped(title)}</h2>
    <p>${escaped(meaning)}</p>
    ${lines.join('\n    ')}
    <p class="soft">As of ${timeOf(now)}. Reload the page to ask again.</p>
  </section>`;
}

function timeOf(at: number): string {
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
