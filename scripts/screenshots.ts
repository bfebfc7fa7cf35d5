/**
 * Makes the pictures of the documentation, from a simulated deployment and a real browser: `npm run screenshots`. Other states of the
 * page go to the directory that is named as an argument, to look at.
 */
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { startSimulator } from '../simulator/simulator.ts';
import { launchBrowser } from '../test/support/browser.ts';
import { askPage, press, serveClientPages } from '../test/support/client-page.ts';
import { program } from '../test/support/foreign-programs.ts';
import {
  failedScene,
  type Scene,
  serveStatusPage,
  verifiedScene,
  withClients,
  withNewManifest,
} from '../test/support/status-page.ts';

const PICTURE = join(import.meta.dirname, '../docs/client-page.png');
const STATUS_PICTURE = join(import.meta.dirname, '../docs/status-page.png');
const MAX_BYTES = 150_000;
const DESK = { width: 860, height: 760, scheme: 'light' } as const;
const WIDE = { width: 1080, height: 1000, scheme: 'light' } as const;
const PHONE = { width: 390, height: 844, scheme: 'dark' } as const;
/** sim-echo answers with what it was asked. */
const PROMPT = 'Everything above was verified in this page, before this sentence was encrypted.';

const simulator = await startSimulator({ cors: true });
const pages = await serveClientPages();
const browser = await launchBrowser(program('chromium'), ['localhost'], ['--ignore-certificate-errors']);
const others = process.argv[2];
try {
  const page = await pages.open(browser, simulator);
  await askPage(page, PROMPT);
  const picture = await page.screenshot(DESK);
  if (picture.length > MAX_BYTES) throw new Error(`the picture has ${picture.length} bytes`);
  writeFileSync(PICTURE, picture);
  console.log(`${PICTURE}: ${picture.length} bytes`);
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
    const verified = await look(scene, WIDE);
    if (verified.length > MAX_BYTES) throw new Error(`the picture has ${verified.length} bytes`);
    writeFileSync(STATUS_PICTURE, verified);
    console.log(`${STATUS_PICTURE}: ${verified.length} bytes`);
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
