/**
 * Makes the pictures of the documentation, from a simulated deployment, the demo and a real browser: `npm run
 * screenshots`. Other states of the pages go to the directory that is named as an argument, to look at.
 */
import { spawn } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { startSimulator } from '../simulator/simulator.ts';
import { launchBrowser } from '../test/support/doors/browser.ts';
import { askPage, press, serveClientPages } from '../test/support/doors/client-page.ts';
import {
  failedScene,
  type Scene,
  serveStatusPage,
  verifiedScene,
  withClients,
  withNewManifest,
} from '../test/support/doors/status-page.ts';
import { program } from '../test/support/processes/foreign-programs.ts';

const PICTURE = join(import.meta.dirname, '../docs/client-page.png');
const STATUS_PICTURE = join(import.meta.dirname, '../docs/status-page.png');
const DEMO = join(import.meta.dirname, '../bin/demo.ts');
const MAX_BYTES = 150_000;
const DESK = { width: 860, height: 760, scheme: 'light' } as const;
const WIDE = { width: 1080, height: 1000, scheme: 'light' } as const;
const PHONE = { width: 390, height: 844, scheme: 'dark' } as const;
/** sim-echo answers with what it was asked. */
const PROMPT = 'Everything above was verified in this page, before this sentence was encrypted.';

const simulator = await startSimulator({ cors: true });
const pages = await serveClientPages();
const browser = await launchBrowser(
  program('chromium'),
  ['localhost'],
  ['--ignore-certificate-errors', '--hide-scrollbars'],
);
const others = process.argv[2];
try {
  const page = await pages.open(browser, simulator);
  await askPage(page, PROMPT);
  keep(PICTURE, await page.screenshot(DESK));
  await photographDemo();
  if (others !== undefined) {
    mkdirSync(others, { recursive: true });
    writeFileSync(join(others, 'phone-dark.png'), await page.screenshot(PHONE));
    simulator.faults.set('evidence-signature', true);
    const refused = await pages.open(browser, simulator);
    await press(refused, 'verify');
    writeFileSync(join(others, 'refused.png'), await refused.screenshot(DESK));
    writeFileSync(join(others, 'refused-phone-dark.png'), await refused.screenshot(PHONE));
  }
  const scene = await verifiedScene();
  const status = await serveStatusPage(scene, { frozen: true });
  /** The status page as it is once it has shown this; undefined: once the proxy does not answer any more. */
  const look = async (
    shown: Scene | undefined,
    how: Parameters<typeof page.screenshot>[0],
  ): Promise<Buffer> => {
    status.scene = shown ?? scene;
    const opened = await browser.open(status.url);
    await opened.evaluate('new Promise((resolve) => setTimeout(resolve, 2500))');
    if (shown === undefined)
      await opened.evaluate(
        'fetch = () => Promise.reject(new Error()), new Promise((resolve) => setTimeout(resolve, 6500))',
      );
    const taken = await opened.screenshot(how);
    await opened.close();
    return taken;
  };
  try {
    if (others !== undefined) {
      const states = {
        verified: withClients(scene),
        rejected: await failedScene(),
        'new-manifest': withNewManifest(scene),
        unreachable: undefined,
      };
      for (const [name, shown] of Object.entries(states))
        for (const scheme of ['light', 'dark'] as const)
          for (const [width, height] of [
            [1280, 1600],
            [390, 2600],
          ] as const)
            writeFileSync(
              join(others, `status-${name}-${width}-${scheme}.png`),
              await look(shown, { width, height, scheme }),
            );
    }
  } finally {
    await status.close();
  }
} finally {
  await browser.close();
  await pages.close();
  await simulator.close();
}

/** Writes a picture that is small enough for a page. */
function keep(path: string, picture: Buffer): void {
  if (picture.length > MAX_BYTES) throw new Error(`the picture has ${picture.length} bytes`);
  writeFileSync(path, picture);
  console.log(`${path}: ${picture.length} bytes`);
}

/** The status page of the demo after half a minute of requests. */
async function photographDemo(): Promise<void> {
  const demo = spawn(process.execPath, [DEMO, '--port', '0'], { stdio: ['ignore', 'pipe', 'ignore'] });
  try {
    let said = '';
    for await (const text of demo.stdout.setEncoding('utf8')) {
      said += text;
      if (said.includes('Try it,')) break;
    }
    const [, admin] = /^The status page: (\S+)$/m.exec(said) as unknown as [string, string];
    const [, url] = /^The proxy listens on (\S+)/m.exec(said) as unknown as [string, string];
    const opened = await browser.open(admin);
    const asked: Promise<unknown>[] = [];
    for (let second = 0; second < 30; second++) {
      const messages = [{ role: 'user', content: PROMPT }];
      const body = JSON.stringify({ model: 'sim-20x100', stream: second % 4 > 0, messages });
      const headers = { 'content-type': 'application/json' };
      const sent = fetch(`${url}/v1/chat/completions`, { method: 'POST', headers, body });
      asked.push(sent.then((response) => response.text()));
      await delay(500 + 250 * (second % 5));
    }
    await Promise.all(asked);
    await delay(2_000);
    keep(STATUS_PICTURE, await opened.screenshot(WIDE));
    await opened.close();
  } finally {
    demo.kill();
  }
}
