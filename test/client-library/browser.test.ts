/** The client library alone in a real browser: examples/browser against simulated deployments. */
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { gzipSync } from 'node:zlib';
import { type Simulator, startSimulator } from '../../simulator/simulator.ts';
import { type Browser, launchBrowser } from '../support/doors/browser.ts';
import {
  askPage,
  bundleClient,
  type ClientPages,
  serveClientPages,
  shown,
} from '../support/doors/client-page.ts';
import { sharedHardware } from '../support/doors/stack.ts';
import { program } from '../support/processes/foreign-programs.ts';

const CHROMIUM = program('chromium');
const CANARY = 'canary-page-71c3 typed into a page';
/** The simulator's certificate is of a CA of its own; nothing but loopback is reachable in this browser. */
const FLAGS = ['--ignore-certificate-errors'];

describe('the browser bundle of the client library', () => {
  it('is at most 200 kB, minified and compressed, without the SDK', async () => {
    const modules = await bundleClient({ minify: true });
    let size = 0;
    for (const bytes of modules.values()) {
      size += gzipSync(bytes, { level: 9 }).length;
      assert.doesNotMatch(Buffer.from(bytes).toString(), /from"node:/);
    }
    assert.ok(modules.has('fetch.js') && modules.has('index.js'));
    assert.ok(size <= 200_000, `${size} bytes`);
  });
});

describe('the client library in a browser', { skip: CHROMIUM.skip, timeout: 600_000 }, () => {
  let browser: Browser;
  let pages: ClientPages;
  const simulators: Simulator[] = [];
  before(async () => {
    pages = await serveClientPages();
    browser = await launchBrowser(CHROMIUM, ['localhost'], FLAGS);
  });
  after(async () => {
    await browser?.close();
    await pages?.close();
    for (const simulator of simulators) await simulator.close();
  });

  async function deploy(tee: 'snp' | 'tdx', faults: Readonly<Record<string, unknown>> = {}) {
    const simulator = await startSimulator({ hardware: await sharedHardware(), cors: true, tee, faults });
    simulators.push(simulator);
    return simulator;
  }

  for (const [tee, name] of [
    ['snp', 'AMD SEV-SNP'],
    ['tdx', 'Intel TDX'],
  ] as const)
    it(`verifies a deployment on ${name}, streams an answer, sends no text in clear and stores nothing`, async () => {
      const simulator = await deploy(tee);
      const page = await pages.open(browser, simulator, 'sim-10x50');
      await askPage(page, CANARY);
      assert.equal(await shown(page, '#headline'), `! Verified: ${name} (simulated hardware)`);
      assert.match(
        await shown(page, '#reason'),
        new RegExp(`^manifest ${simulator.manifestSha256.slice(0, 16)}`),
      );
      assert.equal(await shown(page, '.answer'), 't0 t1 t2 t3 t4 t5 t6 t7 t8 t9');
      assert.match(await shown(page, '.receipt'), /^Decrypted here/);
      assert.ok(simulator.exchanges.last()?.opened.includes(CANARY));
      assert.equal(simulator.recorder.containing('canary-page').length, 0);
      const kept = await page.evaluate(`(async () => [
        localStorage.length, sessionStorage.length, document.cookie,
        (await caches.keys()).length, (await indexedDB.databases()).length,
      ])()`);
      assert.deepEqual(kept, [0, 0, '', 0, 0]);
      await page.close();
    });

  for (const [tee, fault, check] of [
    ['snp', 'evidence-signature', 'snp.report.signature'],
    ['tdx', 'evidence-signature', 'tdx.quote.signature'],
  ] as const)
    it(`refuses a ${tee} deployment with the fault ${fault}, names the check ${check}, and sends no prompt`, async () => {
      const simulator = await deploy(tee, { [fault]: true });
      const page = await pages.open(browser, simulator);
      await askPage(page, CANARY);
      assert.match(await shown(page, '#headline'), /^✗ Refused: /);
      assert.ok((await shown(page, '#headline, #reason, #checks .fail')).includes(check));
      assert.equal(simulator.exchanges.last(), undefined);
      assert.equal(await shown(page, '.answer'), '');
      await page.close();
    });
});
