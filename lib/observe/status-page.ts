/** The status page, `GET /` of the admin listener: the HTML file beside this module. */
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { getAsset, isSea } from 'node:sea';

export interface StatusPage {
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
}

const FILE = 'status-page.html';

/**
 * Reads the page: an asset of the single executable, else a file beside this module or beside the built
 * program. Throws if the file is missing.
 */
export function loadStatusPage(): StatusPage {
  const body = isSea() ? getAsset(FILE, 'utf8') : readFileSync(join(import.meta.dirname, FILE), 'utf8');
  const headers = {
    'content-type': 'text/html; charset=utf-8',
    'content-security-policy': policyOf(body),
    'x-content-type-options': 'nosniff',
    'referrer-policy': 'no-referrer',
    'cache-control': 'no-store',
  };
  return { headers, body };
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
