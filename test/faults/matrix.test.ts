/**
 * Every cell of the fault matrix over real sockets and real cryptography, in one API style each: rows next to
 * each other change places.
 */
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { ERRORS } from '../../lib/errors.ts';
import { FORGED } from '../../simulator/inference/faults/messages.ts';
import { INFERENCE_FAULTS } from '../../simulator/inference/faults.ts';
import { newCanaries } from '../support/doors/canaries.ts';
import { atRest, type Guard, guard, resources } from '../support/doors/invariants.ts';
import { proxyAlone } from '../support/doors/library-door.ts';
import { type Stack, startStack } from '../support/doors/stack.ts';
import { temporaryDirectory } from '../support/processes/temporary-directory.ts';
import { type ApiStyle, ask, type ChatResponse, type Mode } from './ask.ts';
import { type Cell, summary } from './cells.ts';
import { type FaultRow, faultName, MATRIX, PROXIES } from './matrix.ts';

/** Counts by name, those of a map or an object as `name.key`. */
const flat = (counters: object): Map<string, number> =>
  new Map(
    Object.entries(counters).flatMap(([name, value]) => {
      if (typeof value === 'number') return [[name, value]];
      const counts: [string, number][] = value instanceof Map ? [...value] : Object.entries(value);
      return counts.map(([key, count]) => [`${name}.${key}`, count]);
    }),
  );

const CANARIES = newCanaries();
/** The model answers with the same words, so that both directions carry the canary. */
const PROMPT = Array.from({ length: 12 }, (_, i) => `${CANARIES.prompt}-${i}`).join(' ');

const FLAGS = { ...PROXIES, fresh: [] };

const STYLES: readonly [ApiStyle, ApiStyle] = ['openai', 'anthropic'];

const PLAIN = { style: 'openai', mode: 'stream', model: 'sim-echo', prompt: 'x' } as const;

/** What leaves no connection in the pool, or one. */
const PREPARATIONS = { new: 'sim-echo+fault=reset_after_headers', reused: 'sim-echo' } as const;

interface Guarded {
  readonly stack: Stack;
  readonly guard: Guard;
}

describe('the fault matrix', () => {
  const temporary = process.env['TMPDIR'];
  const directory = temporaryDirectory('privatemode-faults-');
  const stacks = new Map<string, Guarded>();

  async function start(kind: keyof typeof FLAGS): Promise<Stack> {
    const stack = await startStack({ apiKey: CANARIES.key, flags: FLAGS[kind] });
    // Connections that are kept are made before the baseline is taken.
    for (const mode of ['stream', 'unary'] as const) await ask(stack.url, { ...PLAIN, mode });
    await atRest(stack);
    return stack;
  }

  async function guarded(kind: keyof typeof FLAGS): Promise<Guarded> {
    const known = stacks.get(kind);
    if (known !== undefined) return known;
    const stack = await start(kind);
    return { stack, guard: await guard(stack, CANARIES, [directory], resources()) };
  }

  before(async () => {
    process.env['TMPDIR'] = directory; // whatever is written goes where the guard looks
    const started = new Map<keyof typeof FLAGS, Stack>();
    for (const kind of ['patient', 'impatient', 'strict'] as const) started.set(kind, await start(kind));
    const baseline = resources();
    for (const [kind, stack] of started) {
      stacks.set(kind, { stack, guard: await guard(stack, CANARIES, [directory], baseline) });
    }
  });
  after(async () => {
    for (const { stack } of stacks.values()) await stack.close();
    if (temporary === undefined) delete process.env['TMPDIR'];
    else process.env['TMPDIR'] = temporary;
  });

  for (const [at, row] of MATRIX.entries()) {
    describe(row.does, () => {
      const [stream, unary] = at % 2 === 0 ? STYLES : STYLES.toReversed();
      for (const [mode, style] of Object.entries({ stream, unary }) as [Mode, ApiStyle][]) {
        const cell = row.cells[mode];
        const skip = cell.code === 'upstream_closed_during_upload' && proxyAlone('sockets');
        it(`${style} ${mode}: ${summary(cell)}`, { skip }, async () => {
          const { stack, guard: watched } = await guarded(row.proxy ?? 'patient');
          try {
            if (row.connection !== undefined) {
              await ask(stack.url, { ...PLAIN, model: PREPARATIONS[row.connection] });
              await watched.verify({ upstream: 1 });
            }
            const before = proxyAlone('counters') ? undefined : flat(stack.proxy.counters);
            const lines = stack.logLines.length;
            const response = await ask(stack.url, question(row, style, mode));
            assertSeen(response, cell, mode);
            const shown = [JSON.stringify(response.headers), JSON.stringify(response.error ?? '')];
            if (response.status >= 400) shown.push(response.body);
            await watched.verify({ upstream: cell.upstream, shown });
            if (before === undefined) return;
            const counted = [...flat(stack.proxy.counters)].flatMap(([name, count]) => {
              const added = count - (before.get(name) ?? 0);
              return added === 0 ? [] : [[name, added] as const];
            });
            assertTold(stack.logLines.slice(lines), new Map(counted), cell);
          } finally {
            if (row.proxy === 'fresh') await stack.close();
          }
        });
      }
    });
  }

  it('has a row for every fault of the simulator', () => {
    const rows = new Set<string>(MATRIX.map(faultName));
    assert.deepEqual([...rows].sort(), Object.keys(INFERENCE_FAULTS).sort());
  });
});

function question({ asks, uploadBytes = 0 }: FaultRow, style: ApiStyle, mode: Mode) {
  return { style, mode, model: `sim-echo+${asks}`, prompt: PROMPT, padding: uploadBytes };
}

/** What the client sees. */
function assertSeen(response: ChatResponse, cell: Cell, mode: Mode): void {
  assert.equal(response.status, cell.status, response.body);
  assert.equal(response.ended, cell.ended, 'the end of the connection');
  for (const [name, value] of Object.entries(cell.headers)) assert.equal(response.headers[name], value, name);
  assert.ok(!response.body.includes(FORGED), 'a forged text was shown');
  if (cell.shows === 'answer') {
    assert.equal(response.error, undefined);
    assert.equal(response.text.trim(), PROMPT);
    assert.ok(response.terminal, 'the end of the answer is missing');
    return;
  }
  assert.ok(response.error, 'no error was shown');
  if (cell.code !== undefined) assert.equal(response.error.code, cell.code);
  assert.ok(String(response.error.message).length > 0, 'an error without words');
  if (cell.shows === 'error') assert.equal(response.text, '');
  // What came before the fault is shown, and nothing that would let it pass for the whole.
  else assert.ok(PROMPT.startsWith(response.text.trimEnd()), 'words that the model did not say');
  if (cell.ended === 'broken') assert.ok(!response.terminal, 'an end was shown');
  if (mode === 'stream' && cell.ended === 'broken') {
    const last = response.body.trimEnd().split('\n\n').at(-1) ?? '';
    assert.match(last, /"error"/, 'the error is not the last event');
  }
}

/** What the operator is told, by lines of the log and by what the counters got. */
function assertTold(logLines: readonly string[], added: ReadonlyMap<string, number>, cell: Cell): void {
  // The code of an error is that of the line in the log.
  const counted = [...added].filter(([name]) => !/^(?:bytes|errors)\./.test(name));
  assert.deepEqual(new Map(counted), flat(cell.counters), 'counters');
  const lines = logLines.map((line) => JSON.parse(line));
  // A condition is logged when it begins or grows worse, not by each request: test/e2e/conditions.test.ts.
  const loud = lines.filter(
    ({ level, condition }) => (level === 'WARN' || level === 'ERROR') && condition === undefined,
  );
  assert.deepEqual(loud.map(label), cell.log, 'log');
  const { status, code, shows } = cell;
  const ends = lines.filter(({ level, msg }) => level === 'INFO' && msg === 'Request ended');
  const ended = ends.map((line) => [line.outcome, line.status, line.code]);
  assert.deepEqual(ended, [[outcomeOf(cell), status, code]], 'the line of the request');
  if (shows !== 'answer') return;
  const { tokensIn, tokensOut } = ends[0];
  assert.ok(tokensIn > 0 && tokensOut > 0, `${tokensIn} and ${tokensOut} tokens`);
}

/** How the line of the request says that it ended. */
function outcomeOf({ shows, code, ended }: Cell): string {
  if (shows === 'answer') return 'answered';
  if (code === undefined) return 'service_error';
  if (ended === 'broken') return 'broken_off';
  return ERRORS[code].blame === 'client' ? 'refused' : 'failed';
}

/** A log line in one word: its code, the retry it announces, the service's status, or its message. */
function label(line: { code?: string; retry?: string; status?: number; msg: string }): string {
  if (line.code !== undefined) return line.code;
  if (line.retry !== undefined) return `retry ${line.retry}`;
  return line.status === undefined ? line.msg : `status ${line.status}`;
}
