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

const PICTURE = join(import.meta.dirname, '../docs/client-page.png');
const MAX_BYTES = 150_000;
const DESK = { width: 860, height: 760, scheme: 'light' } as const;
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
} finally {
  await browser.close();
  await pages.close();
  await simulator.close();
}
