import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import { it } from 'node:test';
import { loadStatusPage } from '../../lib/observe/status-html.ts';
import { viewOf } from '../../lib/observe/status-view.ts';
import { verificationDocument } from '../../lib/observe/verification-document.ts';
import type { Epoch } from '../../lib/session/session.ts';
import { launchBrowser } from '../support/doors/browser.ts';
import { program } from '../support/processes/foreign-programs.ts';
import { listening } from '../support/remote/loopback.ts';
import { standing, words } from '../support/remote/standing.ts';

const CHROMIUM = program('chromium');

/** What the page shows of a verified service, whose secret expires in so many ms. */
function verifiedView(left: number) {
  const now = Date.now();
  const digest = 'ab'.repeat(32);
  const epoch = {
    ...{ secretId: 's', manifestSha256: digest, verdictSha256: digest },
    ...{ attestedAt: now - 1_000, renewAt: now + left, expiresAt: now + left },
  } as unknown as Epoch;
  const session = {
    standing: () => standing('verified'),
    current: () => epoch,
    lastVerdict: () => undefined,
  };
  return viewOf({
    ...{ now, lastError: null, standing: words('verified'), conditions: [] },
    traffic: { inFlight: 0, seconds: [], finished: [] },
    verification: verificationDocument(session, { protocol: 'v1', now }),
  });
}

it('the status page does not look verified when the proxy is gone, nor when the secret has expired', {
  skip: CHROMIUM.skip,
  timeout: 600_000,
}, async (t) => {
  const browser = await launchBrowser(CHROMIUM, ['localhost']);
  t.after(() => browser.close());
  let left = 60_000;
  const show = loadStatusPage();
  const server = createServer((_, response) => {
    const { status, headers, body } = show(verifiedView(left));
    response.writeHead(status, headers).end(body);
  });
  const { port, close } = await listening(t, server);
  const page = await browser.open(`http://127.0.0.1:${port}/`);
  /** Resolves once the expression is true in the page. */
  const holds = (expression: string): Promise<boolean> =>
    page.evaluate(`new Promise((resolve, reject) => {
      const began = Date.now();
      (function look() {
        if (${expression}) resolve(true);
        else if (Date.now() - began > 30000) reject(new Error('never: ' + document.body.innerText.slice(0, 600)));
        else setTimeout(look, 50);
      })();
    })`);
  const title = (words: string): string =>
    `document.querySelector('#verdict h2')?.textContent === '${words}'`;

  await holds(title('Verified'));
  assert.equal(await page.evaluate("document.querySelector('#verdict').dataset.tone"), 'good');
  left = -1;
  await holds(title('Not verified'));
  left = 60_000;
  await holds(title('Verified'));
  await close();
  await holds("document.body.innerText.includes('No connection to the proxy')");
  assert.equal(await page.evaluate("document.querySelector('#verdict h2').checkVisibility()"), false);
  await page.titleLike(/^✗ No connection/);
});
