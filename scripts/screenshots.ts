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
  /** The status page as it is once it has shown this. */
  const look = async (shown: Scene, how: Parameters<typeof page.screenshot>[0]): Promise<Buffer> => {
    status.scene = shown;
    const opened = await browser.open(status.url);
    await opened.evaluate('new Promise((resolve) => setTimeout(resolve, 2500))');
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
        'status-failed': [await failedScene(), WIDE],
        'status-new-manifest': [withNewManifest(scene), { ...WIDE, height: 1900 }],
        'status-phone': [scene, { ...PHONE, height: 2400, scheme: 'light' }],
        'status-dark': [scene, { ...WIDE, scheme: 'dark' }],
        'status-failed-phone-dark': [await failedScene(), { ...PHONE, height: 1600 }],
      } as const;
      for (const [name, [shown, how]] of Object.entries(states))
        writeFileSync(join(others, `${name}.png`), await look(shown, how));
    }
  } finally {
    await status.close();
  }
} finally {
  await browser.close();
  await pages.close();
  await simulator.close();
}
