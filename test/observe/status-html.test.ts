import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { describe, it } from 'node:test';
import { loadStatusPage, toHtml } from '../../lib/observe/status-html.ts';
import type { Section, ViewRow } from '../../lib/observe/status-view.ts';

/** A view with every member that a section can have; each text is this one. */
function viewOfText(text: string): readonly Section[] {
  const fact: ViewRow = { label: text, value: text, note: text, chart: [3, undefined, 4], more: [] };
  const row: ViewRow = { ...fact, tone: 'bad', more: [fact, { ...fact, tone: 'good', more: [fact] }] };
  const about = { title: text, note: text, tone: 'warn', rows: [fact, row] } as const;
  return [
    { id: 'verdict', ...about },
    { id: 'chain', ...about, isFolded: true },
    { id: 'requests', title: text, table: [[{ ...fact, tone: 'good' }, fact]] },
  ];
}

const HOSTILE = `</main><script>'$&'</script><img src="x" onerror='y'>&amp;`;
const ESCAPED =
  '&#60;/main&#62;&#60;script&#62;&#39;$&#38;&#39;&#60;/script&#62;&#60;img src=&#34;x&#34; onerror=&#39;y&#39;&#62;&#38;amp;';

describe('the status page', () => {
  const page = loadStatusPage();

  it('writes what others wrote as text, never as HTML, wherever it stands', () => {
    const [hostile, plain] = [HOSTILE, 'WORD'].map((text) => toHtml(viewOfText(text)));
    assert.ok(plain !== undefined && plain.split('WORD').length > 30);
    assert.ok(hostile === plain.replaceAll('WORD', () => ESCAPED));
    const [whole, harmless] = [HOSTILE, 'WORD'].map((text) => page(viewOfText(text)).body);
    assert.ok(whole === harmless?.replaceAll('WORD', () => ESCAPED));
  });

  it('allows its own style and script by their digests, and loads nothing else', () => {
    const { body, headers } = page(viewOfText('WORD'));
    const digest = (tag: string): string => {
      const [, text = ''] = new RegExp(`<${tag}>([\\s\\S]*?)</${tag}>`).exec(body) ?? [];
      assert.ok(text.length > 100, tag);
      return `'sha256-${createHash('sha256').update(text).digest('base64')}'`;
    };
    assert.equal(
      headers['content-security-policy'],
      `default-src 'none'; script-src ${digest('script')}; style-src ${digest('style')}; connect-src 'self'; ` +
        "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    );
    assert.doesNotMatch(body, /https?:|\/\/[a-z]/i);
    assert.doesNotMatch(body, /\s(?:style|on[a-z]+)=/i);
  });

  it('is whole without a script, and then loads itself again', () => {
    const { body } = page(viewOfText('WORD'));
    assert.match(body, /<noscript><meta http-equiv="refresh" content="\d"><\/noscript>/);
    assert.match(body, /<title>! WORD · privatemode-proxy<\/title>[\s\S]*<main>\s*<section id="verdict"/);
  });
});
