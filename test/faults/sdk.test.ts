/**
 * The columns of the fault matrix that the official clients are: the whole answer, or an error that is
 * raised. A shortened answer that a program takes for the whole would be the worst a proxy can do.
 */
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { CLIENTS, type Client } from '../applications/ask.ts';
import { type Stack, startStack } from '../support/doors/stack.ts';
import { MATRIX, nameOf, PROXIES } from './matrix.ts';

/** Enough for faults at the fourth event; each word is a further event in five hundred responses. */
const PROMPT = Array.from({ length: 6 }, (_, i) => `word-${i}`).join(' ');

const WAYS = {
  'whole answer': { stream: false },
  'loop over a stream': { stream: true, loop: true },
  'stream helper': { stream: true },
} as const;

/** The current majors in every way, the previous ones in the loop that most programs have. */
const COLUMNS = [...CLIENTS].flatMap(([name, client]) =>
  Object.entries(WAYS)
    .filter(([way]) => client.current || way === 'loop over a stream')
    .map(([way, how]) => [`${name}, ${way}`, client, how] as const),
);

/** Whether a program could act on it: an error of the client's own kind that carries our code. */
function tells({ classes }: Client, error: unknown, code: string | undefined): boolean {
  assert.ok(error instanceof classes.APIError, String(error));
  const text = `${error.message} ${JSON.stringify(error.error)}`;
  if (code !== undefined) assert.ok(text.includes(code), text);
  return true;
}

describe('the fault matrix, through the official clients', () => {
  const stacks = new Map<string, Stack>();
  before(async () => {
    for (const [proxy, flags] of Object.entries(PROXIES)) stacks.set(proxy, await startStack({ flags }));
  });
  after(async () => {
    for (const stack of stacks.values()) await stack.close();
  });

  // A renewal that is forced is allowed but once in a while: those rows need proxies of their own, which
  // matrix.test.ts starts.
  const rows = MATRIX.filter(({ proxy, uploadBytes }) => proxy !== 'fresh' && uploadBytes === undefined);
  for (const [column, client, how] of COLUMNS) {
    describe(column, { concurrency: 8 }, () => {
      for (const row of rows) {
        const { shows, code } = row.cells[how.stream ? 'stream' : 'unary'];
        it(`${nameOf(row)}: ${shows === 'answer' ? 'the whole answer' : 'an error is raised'}`, async () => {
          const { url } = stacks.get(row.proxy ?? 'patient') as Stack;
          const answer = client.ask({
            ...{ baseURL: url + client.base, model: `sim-echo+${row.asks}`, content: PROMPT },
            ...{ headers: {}, apiKey: 'placeholder', maxRetries: 0, fetch, ...how },
          });
          if (shows === 'answer') assert.equal((await answer).trim(), PROMPT);
          else await assert.rejects(answer, (error) => tells(client, error, code));
        });
      }
    });
  }
});
