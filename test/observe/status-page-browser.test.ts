/** The status page in a real browser: what a person sees, by mouse, keyboard and screen reader. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { after, before, describe, it } from 'node:test';
import type { StatusReport } from '../../lib/observe/status-report.ts';
import { type Browser, launchBrowser, type Page } from '../support/doors/browser.ts';
import {
  failedScene,
  type StatusServer,
  serveStatusPage,
  verifiedScene,
  withClients,
  withConditions,
} from '../support/doors/status-page.ts';
import { program } from '../support/processes/foreign-programs.ts';

const CHROMIUM = program('chromium');
const AXE = readFileSync(new URL('../../node_modules/axe-core/axe.min.js', import.meta.url), 'utf8');

describe('the status page in a browser', { skip: CHROMIUM.skip, timeout: 600_000 }, () => {
  let browser: Browser;
  const servers: StatusServer[] = [];
  before(async () => {
    browser = await launchBrowser(CHROMIUM, ['localhost']);
  });
  after(async () => {
    await browser?.close();
    for (const server of servers) await server.close().catch(() => {});
  });

  async function open(scene: StatusReport): Promise<{ page: Page; server: StatusServer }> {
    const server = await serveStatusPage(scene);
    servers.push(server);
    return { server, page: await browser.open(server.url) };
  }

  /** Resolves once the expression is true in the page. */
  const holds = (page: Page, expression: string): Promise<boolean> =>
    page.evaluate(`new Promise((resolve, reject) => {
      const began = Date.now();
      (function look() {
        if (${expression}) resolve(true);
        else if (Date.now() - began > 15000) reject(new Error('never: ' + document.body.innerText.slice(0, 600)));
        else setTimeout(look, 50);
      })();
    })`);
  const title = (words: string): string =>
    `document.querySelector('#verdict h2')?.textContent === ${JSON.stringify(words)}`;
  const text = (page: Page, selector = 'main'): Promise<string> =>
    page.evaluate(`document.querySelector('${selector}').innerText`);

  it('says what to do about a rejected service, which check failed, and opens its link', async () => {
    const { page } = await open(await failedScene());
    assert.match(
      await text(page, '#verdict'),
      /^Not verified: the service is rejected\s+No request [^\n]*\s+What to do\s+Do not send [^\n]*\s+Failed check\s+Reported TCB \(snp\.tcb\.reported\)\s+Expected\s[^\n]*\s+Found\s+bootloader 10/,
    );
    assert.match(
      await text(page, 'details[open]'),
      /^Hardware\s+1 of 40 checks failed[\s\S]*Reported TCB\s+fail/,
    );
    await page.close();
  });

  it('updates what changed, and leaves alone the rest: an open link, the focus, a selection', async () => {
    const scene = await verifiedScene();
    const { page, server } = await open(scene);
    await page.evaluate("document.querySelectorAll('summary')[3].focus()");
    await page.evaluate('document.activeElement.click()'); // what Enter and Space do to it
    await page.evaluate("getSelection().selectAllChildren(document.querySelector('#chain h2'))");
    server.scene = withConditions(scene);
    await holds(page, "document.querySelectorAll('#notices li').length === 3");
    assert.deepEqual(
      await page.evaluate("[...document.querySelectorAll('#notices li')].map(({ dataset }) => dataset.tone)"),
      ['bad', 'warn', 'plain'],
    );
    assert.match(await text(page, 'details[open]'), /^Mesh[\s\S]*Issuer of the mesh certificate[\s\S]*Found/);
    assert.match(await text(page, 'summary:focus'), /^Mesh/);
    assert.equal(await page.evaluate('String(getSelection())'), 'Chain of trust');
    server.scene = scene;
    await holds(page, "document.querySelector('#notices') === null");
    await page.close();
  });

  it('does not look verified when the proxy is gone, nor when the secret has expired', async () => {
    const scene = await verifiedScene();
    const { page, server } = await open(scene);
    const { verification } = scene;
    assert.ok(verification.epoch !== null);
    const epoch = { ...verification.epoch, expiresAt: new Date(Date.now() + 1_000).toISOString() };
    server.scene = { ...scene, verification: { ...verification, epoch } };
    await holds(page, title('Not verified'));
    server.scene = scene;
    await holds(page, title('Verified'));
    assert.equal(await page.evaluate("document.querySelector('#verdict').dataset.tone"), 'good');
    await server.close();
    await holds(page, "document.body.innerText.includes('No connection to the proxy')");
    assert.equal(await page.evaluate("document.querySelector('#verdict h2').checkVisibility()"), false);
    assert.match(await text(page, '#verdict'), /As of/);
    await page.titleLike(/^✗ No connection/);
    await page.close();
  });

  it('cuts nothing off on a phone, and has no table that scrolls sideways from 900 px on', async () => {
    const { page } = await open(withClients(await verifiedScene()));
    await page.screenshot({ width: 390, height: 900, scheme: 'light' });
    await page.evaluate("document.querySelector('summary').click()");
    const cut = `[...document.querySelectorAll('main *')]
        .filter((node) => node.clientWidth > 0 && node.scrollWidth > node.clientWidth + 1)
        .map((node) => node.outerHTML.slice(0, 120))`;
    assert.deepEqual(await page.evaluate(cut), []);
    const hidden =
      "[...document.querySelectorAll('.scroll')].map((table) => table.scrollWidth - table.clientWidth)";
    for (const width of [900, 1100, 1280]) {
      await page.screenshot({ width, height: 900, scheme: 'light' });
      assert.deepEqual(await page.evaluate(hidden), [0], `${width}`);
    }
    await page.close();
  });

  for (const [name, scene, width, scheme] of [
    ['not verified, on a phone', failedScene, 360, 'light'],
    ['with conditions', async () => withConditions(await verifiedScene()), 1180, 'light'],
    ['with conditions, in the dark', async () => withConditions(await verifiedScene()), 1180, 'dark'],
  ] as const) {
    it(`has no violation that axe finds: ${name}`, async () => {
      const { page } = await open(await scene());
      await page.screenshot({ width, height: 900, scheme });
      await page.evaluate("document.querySelector('details:not([open]) > summary').click()");
      await page.evaluate(`${AXE};0`);
      const found = await page.evaluate(
        'axe.run().then(({ violations }) => violations.map(({ id, nodes }) => [id, ...nodes.map(({ html }) => html)]))',
      );
      assert.deepEqual(found, []);
      assert.ok(
        await page.evaluate('document.documentElement.scrollWidth <= innerWidth'),
        'nothing sticks out',
      );
      await page.close();
    });
  }
});
