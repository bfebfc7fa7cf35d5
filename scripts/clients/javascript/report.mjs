/** What every program here has in common: the questions, and the lines that scripts/clients.ts reads. */
import { createInterface } from 'node:readline';

const { BASE_URL } = process.env;
export const OPENAI_URL = `${BASE_URL}/v1`;
export const ANTHROPIC_URL = BASE_URL;
export const QUESTION = 'Say this back, word by word';
/** What the model sim-20x0 answers. */
export const TWENTY = Array.from({ length: 20 }, (_, index) => `t${index}`).join(' ');

export function equal(found, expected) {
  const [a, b] = [found, expected].map((value) => JSON.stringify(value));
  if (a !== b) throw new Error(`${a} instead of ${b}`);
}

/** Throws unless `ask` fails, in the service's words, for either status. */
export async function failsInWords(ask) {
  for (const status of [401, 429]) {
    let words;
    try {
      await ask(`sim-error-${status}`);
    } catch (error) {
      words = String(error?.message ?? error);
    }
    if (words === undefined) throw new Error(`no error for ${status}`);
    if (!words.includes(`the simulated model answers ${status}`)) throw new Error(`${status}: ${words}`);
  }
}

/** Runs the features by name; one may give its counts of tokens in and out. Waits for a line after each. */
export async function report(features) {
  const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
  for (const [feature, run] of Object.entries(features)) {
    let line;
    try {
      line = { feature, ok: true, counted: await run() };
    } catch (error) {
      line = { feature, ok: false, detail: String(error?.message ?? error) };
    }
    console.log(JSON.stringify(line));
    await lines.next();
  }
  process.exit(0);
}
