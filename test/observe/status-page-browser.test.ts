/**
 * The status page in a real browser: what a person sees, by mouse, keyboard and screen reader, whatever the
 * proxy says.
 */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { after, before, describe, it } from 'node:test';
import { type Browser, launchBrowser, type Page } from '../support/doors/browser.ts';
import {
  failedScene,
  type Scene,
  type StatusServer,
  serveStatusPage,
  verifiedScene,
  withClients,
  withConditions,
  withNewManifest,
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

  async function open(scene: Scene): Promise<{ page: Page; server: StatusServer }> {
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
    `document.querySelector('#verdict-title').textContent === ${JSON.stringify(words)}`;
  const text = (page: Page): Promise<string> => page.evaluate('document.body.innerText');

  it('says that the service is verified, since when and until when, and shows the traffic', async () => {
    const { page } = await open(await verifiedScene());
    await holds(page, title('Verified'));
    assert.equal(await page.evaluate("document.querySelector('#verdict').dataset.tone"), 'good');
    assert.match(
      await page.evaluate("document.querySelector('#verdict-times').innerText"),
      /4 min ago[\s\S]*min left/,
    );
    assert.match(
      await text(page),
      /Requests in flight[\s\S]*Tokens per second[\s\S]*Time to first token[\s\S]*Gap between tokens/,
    );
    assert.match(await text(page), /broken off[\s\S]*stream_unfinished/);
    await page.close();
  });

  it('shows the checks of a link of the chain when the button of that link is pressed by keyboard', async () => {
    const { page } = await open(await verifiedScene());
    await holds(page, "document.querySelectorAll('.link').length === 5");
    await page.evaluate("document.querySelectorAll('.link')[3].focus()");
    assert.equal(await page.evaluate('document.activeElement.getAttribute("aria-expanded")'), 'false');
    await page.evaluate('document.activeElement.click()'); // what Enter and Space do to a button
    assert.equal(await page.evaluate('document.activeElement.tagName'), 'BUTTON');
    assert.equal(await page.evaluate('document.activeElement.getAttribute("aria-expanded")'), 'true');
    const panel = 'document.getElementById(document.activeElement.getAttribute("aria-controls"))';
    assert.match(
      await page.evaluate(`${panel}.innerText`),
      /Issuer of the mesh certificate[\s\S]*Expected[\s\S]*Found/,
    );
    await page.close();
  });

  it('says what to do about a rejected service, names the failed check, folds its details and opens its link', async () => {
    const { page } = await open(await failedScene());
    await holds(page, title('Not verified: the service is rejected'));
    await holds(page, "document.querySelector('.link[aria-expanded=true]') !== null");
    const verdict = "document.querySelector('#verdict-words')";
    assert.match(
      await page.evaluate(`${verdict}.innerText`),
      /^Not verified: the service is rejected\s+No request [^\n]*\s+What to do: Do not send [^\n]*\s+Failed check: Reported TCB \(attestation_failed\)\s+What was expected, and what was found$/,
    );
    await page.evaluate(`${verdict}.querySelector('summary').click()`);
    assert.match(await page.evaluate(`${verdict}.innerText`), /Expected: [^\n]*Found: bootloader 10/);
    assert.match(await text(page), /No request leaves this machine/);
    await page.close();
  });

  it('shows the conditions, the worst first, and removes them once they are over', async () => {
    const scene = withConditions(await verifiedScene());
    const { page, server } = await open(scene);
    const shown =
      "[...document.querySelectorAll('.condition')].map(({ dataset, innerText }) => [dataset.tone, innerText])";
    await holds(page, "document.querySelectorAll('.condition').length === 3");
    const [first, second, third] = await page.evaluate<[string, string][]>(shown);
    assert.deepEqual([first?.[0], second?.[0], third?.[0]], ['bad', 'warn', 'plain']);
    assert.match(String(first?.[1]), /^The clients file cannot be used[\s\S]*EACCES[\s\S]*Repair the file/);
    assert.match(String(first?.[1]), /critical, since \d{4}-\d\d-\d\d [\d:]+ UTC · clients_file_unusable$/);
    assert.match(await text(page), /Needs attention/);
    server.scene = { ...scene, status: { ...scene.status, conditions: [] } };
    await holds(page, "document.querySelectorAll('.condition').length === 0");
    assert.doesNotMatch(await text(page), /Needs attention/);
    await page.close();
  });

  it('leaves out the chain of trust and the manifests while there are none', async () => {
    const scene = await failedScene();
    const nothing = { ...scene.verification, verdict: null, chain: [], manifests: [] };
    const { page, server } = await open({ ...scene, verification: nothing });
    await holds(page, title('Not verified: the service is rejected'));
    await holds(page, '!document.querySelector("#facts").parentElement.hidden');
    assert.doesNotMatch(await text(page), /Chain of trust|Enforced manifests/);
    server.scene = await verifiedScene();
    await holds(page, title('Verified'));
    assert.match(await text(page), /Chain of trust[\s\S]*Enforced manifests/);
    await page.close();
  });

  it('shows for each request its id, its client if known, and the local time on hover', async () => {
    const { page } = await open(withClients(await verifiedScene()));
    await holds(page, "document.querySelectorAll('#requests tr').length === 9");
    const [first, , , fourth] = await page.evaluate<string[]>(
      "[...document.querySelectorAll('#requests tr')].map(({ innerText }) => innerText)",
    );
    assert.match(first!, /proxy_019ab3d2-7c40-705e-9d0a-4f6b1c2e8a77[\s\S]*gpt-oss-120b\s+ann/);
    assert.doesNotMatch(fourth!, /ann|bob|search-service/);
    assert.equal(await page.evaluate("document.querySelector('#model-column').textContent"), 'Model, client');
    assert.match(await page.evaluate("document.querySelector('#requests time').title"), /, local time$/);
    await page.close();
    const { page: alone } = await open(await verifiedScene());
    await holds(alone, "document.querySelectorAll('#requests tr').length === 9");
    assert.equal(await alone.evaluate("document.querySelector('#model-column').textContent"), 'Model');
    await alone.close();
  });

  it('shows the date of a request that is not of today', async () => {
    const scene = await verifiedScene();
    const [at, ago] = [scene.status.now, scene.status.now - 48 * 3_600_000];
    const { traffic } = scene.status;
    const [finished, refused] = [traffic.finished.slice(0, 2), traffic.refused].map((list) =>
      list.map((each, i) => ({ ...each, at: i === 1 ? at : ago })),
    ) as unknown as [typeof traffic.finished, typeof traffic.refused];
    const { page } = await open({
      ...scene,
      status: { ...scene.status, traffic: { ...traffic, finished, refused } },
    });
    await holds(page, "document.querySelectorAll('#requests tr').length === 2");
    const times = await page.evaluate(
      "[...document.querySelectorAll('#requests time, #refused time')].map((time) => time.textContent)",
    );
    const shown = (ms: number): string => new Date(ms).toISOString().slice(0, 19).replace('T', ' ');
    assert.deepEqual(times, [shown(ago), shown(at).slice(11), shown(ago)]);
    await page.close();
  });

  it('counts refused requests by method, path and error code if there are any', async () => {
    const { page } = await open(await verifiedScene());
    await holds(page, "document.querySelectorAll('#refused tr').length === 1");
    const shown = "document.querySelector('#refused-section')";
    assert.match(
      await page.evaluate(`${shown}.innerText`),
      /^Refused requests[\s\S]*POST \/openai\/\*\s+unknown_path\s+(?:Times: )?12/,
    );
    await page.close();
    const { page: clean } = await open(await failedScene());
    await holds(clean, title('Not verified: the service is rejected'));
    assert.equal(await clean.evaluate(`${shown}.hidden`), true);
    await clean.close();
  });

  it('says how many input tokens came from the cache if the service tells that', async () => {
    const scene = await verifiedScene();
    const { page, server } = await open(scene);
    const line = "document.querySelector('#cached')";
    await holds(page, `${line}.textContent === 'Of 25,168 tokens in, 18,877 came from the cache.'`);
    const { traffic } = scene.status;
    const finished = traffic.finished.map((request) => ({ ...request, id: 'other', tokensCached: null }));
    server.scene = { ...scene, status: { ...scene.status, traffic: { ...traffic, finished } } };
    await holds(page, `${line}.hidden`);
    await page.close();
  });

  it('cuts nothing off on a phone', async () => {
    const { page } = await open(withClients(await verifiedScene()));
    await page.screenshot({ width: 390, height: 900, scheme: 'light' });
    await holds(page, "document.querySelectorAll('#requests tr').length === 9");
    await page.evaluate("document.querySelector('.link').click()");
    const cut = await page.evaluate<string[]>(
      `[...document.querySelectorAll('main *')]
        .filter((node) => node.clientWidth > 0 && node.scrollWidth > node.clientWidth + 1)
        .map((node) => node.outerHTML.slice(0, 120))`,
    );
    assert.deepEqual(cut, []);
    await page.close();
  });

  it('has no table that scrolls sideways at 900 px', async () => {
    const { page } = await open(withClients(await verifiedScene()));
    await page.screenshot({ width: 900, height: 900, scheme: 'light' });
    await holds(page, "document.querySelectorAll('#requests tr').length === 9");
    const hidden = await page.evaluate(
      "[...document.querySelectorAll('.scroll')].map((table) => table.scrollWidth - table.clientWidth)",
    );
    assert.deepEqual(hidden, [0, 0]);
    await page.close();
  });

  it('shows a new manifest without a reload', async () => {
    const scene = await verifiedScene();
    const { page, server } = await open(scene);
    await holds(page, title('Verified'));
    server.scene = withNewManifest(scene);
    await holds(page, "document.querySelectorAll('.manifest').length === 4");
    await page.close();
  });

  it('does not look verified when the proxy is gone', async () => {
    const { page, server } = await open(await verifiedScene());
    await holds(page, title('Verified'));
    await server.close();
    await holds(page, title('No connection to the proxy'));
    assert.notEqual(await page.evaluate("document.querySelector('#verdict').dataset.tone"), 'good');
    await page.close();
  });

  it('does not look verified when the secret has expired, whatever the proxy says', async () => {
    const scene = await verifiedScene();
    const epoch = scene.status.epoch;
    assert.ok(epoch !== null);
    const { page, server } = await open(scene);
    await holds(page, "document.querySelector('#verdict').dataset.tone === 'good'");
    const expiring = { ...epoch, expiresAt: Date.now() + 1_000 };
    server.scene = { ...scene, status: { ...scene.status, epoch: expiring } };
    await holds(page, "document.querySelector('#verdict').dataset.tone === 'bad'");
    await page.close();
  });

  it('has the tone of a warning under custom trust roots', async () => {
    const scene = await verifiedScene();
    const { verdict } = scene.verification;
    assert.ok(verdict !== null);
    const verification = { ...scene.verification, verdict: { ...verdict, roots: 'custom' as const } };
    const { page } = await open({ ...scene, verification });
    await holds(page, "document.querySelector('#verdict').dataset.tone === 'warn'");
    assert.match(await page.evaluate("document.querySelector('#verdict').innerText"), /roots/);
    const hardware = "document.querySelector('#link-hardware')";
    await holds(page, `${hardware}?.querySelector('use').getAttribute('href') === '#icon-warn'`);
    assert.match(await page.evaluate(`${hardware}.innerText`), /checks under custom roots/);
    assert.equal(await page.evaluate(`${hardware}.dataset.tone`), 'warn');
    const heights =
      "[...document.querySelectorAll('.link b')].map((name) => name.getBoundingClientRect().height)";
    for (const width of [360, 390, 1280]) {
      await page.screenshot({ width, height: 900, scheme: 'light' });
      const [first, ...others] = await page.evaluate<number[]>(heights);
      assert.deepEqual(new Set(others), new Set([first]), `${width}: each name is one line`);
    }
    await page.close();
  });

  it('shows words of the service as text, never as HTML', async () => {
    const scene = await failedScene();
    const attack = '<img src=x onerror="document.title=1"><script>document.title=2</script>';
    const { verdict } = scene.verification;
    assert.ok(verdict !== null);
    const checks = verdict.checks.map((check) => ({ ...check, found: attack, expected: attack }));
    const { page } = await open({
      status: {
        ...scene.status,
        lastError: { code: attack, message: attack, remedy: attack },
        traffic: {
          ...scene.status.traffic,
          finished: [
            { ...(await verifiedScene()).status.traffic.finished[0]!, model: attack, endpoint: attack },
          ],
        },
      },
      verification: { ...scene.verification, verdict: { ...verdict, checks } },
    });
    await holds(page, `document.body.innerText.includes('onerror')`);
    assert.equal(await page.evaluate("document.querySelectorAll('img').length"), 0);
    assert.match(await page.evaluate('document.title'), /privatemode-proxy/);
    await page.close();
  });

  for (const [name, scene] of [
    ['verified', verifiedScene],
    ['not verified', failedScene],
    ['with conditions', async () => withConditions(await verifiedScene())],
  ] as const) {
    for (const [look, width, scheme] of [
      ['light', 1180, 'light'],
      ['dark', 1180, 'dark'],
      ['phone', 360, 'light'],
    ] as const) {
      it(`has no violation that axe finds: ${name}, ${look}`, async () => {
        const { page } = await open(await scene());
        await page.screenshot({ width, height: 900, scheme });
        await holds(page, "document.querySelectorAll('.link').length === 5");
        await page.evaluate("document.querySelector('.link').click()");
        await page.evaluate(`${AXE};0`);
        const found = await page.evaluate<readonly { id: string; nodes: readonly { html: string }[] }[]>(
          'axe.run().then(({ violations }) => violations.map(({ id, nodes }) => ({ id, nodes: nodes.map(({ html }) => ({ html })) })))',
        );
        assert.deepEqual(found, []);
        assert.ok(
          await page.evaluate('document.documentElement.scrollWidth <= innerWidth'),
          'nothing sticks out',
        );
        await page.close();
      });
    }
  }
});
