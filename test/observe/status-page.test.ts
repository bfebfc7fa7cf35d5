import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { loadStatusPage } from '../../lib/observe/status-page.ts';

const FILE = readFileSync(join(import.meta.dirname, '../../lib/observe/status-page.html'), 'utf8');

describe('the file of the status page', () => {
  it('has a content security policy that allows its own style by digest, and loads nothing else', () => {
    const policy = loadStatusPage().headers['content-security-policy'] ?? '';
    const style = /<style>([\s\S]*?)<\/style>/.exec(FILE)?.[1] ?? '';
    assert.ok(policy.startsWith("default-src 'none'; "));
    assert.ok(
      policy.includes(`style-src 'sha256-${createHash('sha256').update(style).digest('base64')}'; `),
      policy,
    );
    assert.ok(policy.endsWith("base-uri 'none'; form-action 'none'; frame-ancestors 'none'"));
  });

  it('names no other host, and has no inline styles or handlers', () => {
    assert.doesNotMatch(FILE, /https?:|\/\/[a-z]/i);
    assert.doesNotMatch(FILE, /\s(?:style|on[a-z]+)=/i);
  });

  it('names the command that says the same without JavaScript', () => {
    assert.match(FILE, /<noscript><p>[^<]*<code>privatemode-proxy status<\/code>/);
  });
});
