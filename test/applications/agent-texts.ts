/**
 * What the four agents do when the service refuses or fails, measured: `npm run table:agents [-- WORDS]`.
 * Each agent reads a file with a tool of its own, the next request gets the error, and the row says what
 * followed. Real agents, the real proxy, and a model server that is scripted; at most a minute each. `--
 * --write` puts the rows into docs/agent-errors.md.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { errorResponse } from '../../lib/api/error-response.ts';
import { asPrivatemodeError, type PrivatemodeError } from '../../lib/errors.ts';
import { createShardKeyHash } from '../../lib/pipeline/shard-key.ts';
import { replaceSection } from '../../scripts/marked-section.ts';
import type { JsonObject } from '../../simulator/inference/request.ts';
import { startStack } from '../support/doors/stack.ts';
import { temporaryDirectory } from '../support/processes/temporary-directory.ts';
import { ROOT } from '../support/processes/tools.ts';
import {
  AGENT_VERSIONS,
  installAgents,
  newHome,
  runAgent,
  TRIED,
  type TriedAgent,
} from './installed-agents.ts';
import { type AskedModel, type ModelAnswer, serveModel } from './scripted-model.ts';

const WINDOW = 65_536;
/** Tokens of the prompt in the rows about the output alone. */
const PROMPT = 40_000;
const MARK = 'canary-file-content';
const DONE = 'DONE-OK';

const outputOf = ({ request }: AskedModel): number =>
  Number(request['max_tokens'] ?? request['max_completion_tokens'] ?? 0);
/** How the four ask for a summary of the conversation. */
const SUMMARY =
  /followed by a <summary> block|context summarization (?:agent|assistant)|CONTEXT CHECKPOINT COMPACTION/;
const isSummary = ({ text }: AskedModel): boolean => SUMMARY.test(text);

const openai = (message: string, more: JsonObject = {}): JsonObject => ({
  error: { message, type: 'BadRequestError', param: null, code: 400, ...more },
});
const anthropic = (message: string): JsonObject => ({
  type: 'error',
  error: { type: 'invalid_request_error', message },
});
const both = (message: string, more?: JsonObject) => (asked: AskedModel) =>
  asked.isMessages ? anthropic(message) : openai(message, more);

const exceeds = (prompt: number, output: number): string =>
  `input length and \`max_tokens\` exceed context limit: ${prompt} + ${output} > ${WINDOW}`;

/** The proxy's own refusal of a prompt that is too long for a shared prompt cache. */
function refusedForCache(): PrivatemodeError {
  try {
    createShardKeyHash(Buffer.alloc(32)).update(Buffer.alloc(5_000_000));
  } catch (thrown) {
    return asPrivatemodeError(thrown);
  }
  throw new Error('the prompt was not refused');
}

/** What is said of a prompt whose images are too many tokens. */
const DECODER = `The decoder prompt (length 70000) is longer than the maximum model length of ${WINDOW}. Make sure that \`max_model_len\` is no smaller than the number of text tokens plus multimodal tokens.`;

interface Row {
  readonly text: string;
  /** The sealed error of the model server, status 400 unless told; with 200 the first event of a stream. */
  readonly body?: (asked: AskedModel) => JsonObject;
  readonly status?: number;
  /** Whether a smaller output is all that it takes. */
  readonly outputOnly?: boolean;
  /** A fault of the simulator in its place, and whether it stays. */
  readonly fault?: string;
  readonly stays?: boolean;
}

const ROWS: readonly Row[] = [
  {
    text: 'vLLM: `maximum context length is … However, you requested … tokens (… in the messages, …)`',
    body: both(
      `This model's maximum context length is ${WINDOW} tokens. However, you requested 102000 tokens (70000 in the messages, 32000 in the completion). Please reduce the length of the messages or completion.`,
    ),
  },
  {
    text: 'vLLM: `maximum context length is … However, your request has … input tokens`',
    body: both(
      `This model's maximum context length is ${WINDOW} tokens. However, your request has 70000 input tokens. Please reduce the length of the input messages.`,
    ),
  },
  {
    text: "vLLM: `Input length (…) exceeds model's maximum context length (…)`",
    body: both(`Input length (70000) exceeds model's maximum context length (${WINDOW}).`),
  },
  {
    text: 'vLLM: `The decoder prompt (length …) is longer than the maximum model length of …`',
    body: both(DECODER),
  },
  {
    text: 'the same, as the first event of a stream',
    status: 200,
    body: both(DECODER),
  },
  {
    text: 'vLLM: `You passed … input characters and requested … output tokens. … context length is only …`',
    body: (asked) =>
      both(
        `You passed 9000000 input characters and requested ${outputOf(asked)} output tokens. However, the model's context length is only ${WINDOW} tokens, resulting in a maximum input length of ${WINDOW - outputOf(asked)} tokens (at most ${(WINDOW - outputOf(asked)) * 128} characters). Please reduce the length of the input prompt. (parameter=input_text, value=9000000)`,
        { param: 'input_text' },
      )(asked),
  },
  {
    text: 'vLLM: `You passed … input tokens and requested … output tokens. … context length is only …`, the prompt fits',
    outputOnly: true,
    body: (asked) => {
      const most = WINDOW - outputOf(asked);
      return both(
        `You passed ${most + 1} input tokens and requested ${outputOf(asked)} output tokens. However, the model's context length is only ${WINDOW} tokens, resulting in a maximum input length of ${most} tokens. Please reduce the length of the input prompt. (parameter=input_tokens, value=${most + 1})`,
        { param: 'input_tokens' },
      )(asked);
    },
  },
  {
    text: 'vLLM: `requested … output tokens and your prompt contains at least …`, the prompt fits',
    outputOnly: true,
    body: (asked) => {
      const least = WINDOW - outputOf(asked) + 1;
      return both(
        `This model's maximum context length is ${WINDOW} tokens. However, you requested ${outputOf(asked)} output tokens and your prompt contains at least ${least} input tokens, for a total of at least ${WINDOW + 1} tokens. Please reduce the length of the input prompt or the number of requested output tokens. (parameter=input_tokens, value=${least})`,
        { param: 'input_tokens' },
      )(asked);
    },
  },
  {
    text: 'vLLM: `max_tokens … is too large: … your request has … input tokens`, the prompt fits',
    outputOnly: true,
    body: (asked) =>
      both(
        `'max_tokens' or 'max_completion_tokens' is too large: ${outputOf(asked)}. This model's maximum context length is ${WINDOW} tokens and your request has ${PROMPT} input tokens (${outputOf(asked)} > ${WINDOW} - ${PROMPT}).`,
      )(asked),
  },
  {
    text: 'Anthropic: ``input length and `max_tokens` exceed context limit: a + b > c``, the prompt fits',
    outputOnly: true,
    body: (asked) => both(exceeds(PROMPT, outputOf(asked)))(asked),
  },
  {
    text: 'the same, where a is only the least that the prompt can have',
    outputOnly: true,
    body: (asked) => both(exceeds(WINDOW - outputOf(asked) + 1, outputOf(asked)))(asked),
  },
  {
    text: 'the same, where a leaves half of the output',
    outputOnly: true,
    body: (asked) => both(exceeds(WINDOW - Math.floor(outputOf(asked) / 2), outputOf(asked)))(asked),
  },
  {
    text: 'OpenAI: code `context_length_exceeded`',
    body: both(
      'Your input exceeds the context window of this model. Please adjust your input and try again.',
      {
        type: 'invalid_request_error',
        param: 'input',
        code: 'context_length_exceeded',
      },
    ),
  },
  {
    text: 'Anthropic: `prompt is too long: … tokens > … maximum`',
    body: both(`prompt is too long: 70000 tokens > ${WINDOW} maximum`),
  },
  {
    text: 'the proxy: `context_too_large`',
    body: ({ isMessages }) => {
      const format = isMessages ? 'anthropic' : 'openai';
      const { body } = errorResponse(refusedForCache(), { format, requestId: 'proxy_1' });
      return JSON.parse(body.toString()) as JsonObject;
    },
  },
  { text: 'status 401', fault: 'status:401', stays: true },
  { text: 'status 403', fault: 'status:403', stays: true },
  {
    text: 'status 404, the model does not exist',
    status: 404,
    body: both('The model `scripted` does not exist.', { type: 'NotFoundError', param: 'model', code: 404 }),
  },
  { text: 'status 429 once, `Retry-After: 2`', fault: 'status:429,2' },
  { text: 'status 503 once', fault: 'status:503' },
  { text: 'status 503 for good', fault: 'status:503', stays: true },
  { text: 'a stream that is cut once', fault: 'truncate:3' },
];

interface Outcome {
  readonly effect: string;
  readonly says: string;
}

/** What a person sees of it: the last line that speaks of the error, without colours and what `run` adds. */
function saidIn(output: string): string {
  const esc = String.fromCharCode(27);
  const lines = output
    .split('\n')
    .map((line) => line.replaceAll(new RegExp(`${esc}\\[[\\d;]*m`, 'g'), '').trim())
    .filter((line) =>
      /error|exceed|limit|retry|too long|unexpected|reconnect|unavailable|issue with/i.test(line),
    )
    .filter((line) => !/^(?:To go on|\[claude-code|warning: Model metadata)/.test(line));
  return (lines.at(-1) ?? '')
    .replaceAll('|', '\\|')
    .replaceAll('`', "'")
    .replace(/, url: .*/, '')
    .slice(0, 110);
}

/** Three files that fill some of the window: none of the agents compacts a conversation that is short. */
const FILES = ['a.txt', 'b.txt', 'c.txt'];
const contentOf = (file: string): string => `${MARK} ${file}\n`.repeat(1200);

async function tried(agent: TriedAgent, row: Row, below: string): Promise<Outcome> {
  let home = '';
  let failedAt: number | undefined;
  let isShort = false;
  const model = await serveModel((asked, before): ModelAnswer => {
    if (isSummary(asked)) {
      isShort = true;
      return { say: '<analysis>It went well.</analysis>\n<summary>The three files were read.</summary>' };
    }
    if (asked.request['tools'] === undefined) return { say: 'a title' };
    if (isShort) return { say: DONE };
    const next = FILES.find((file) => !asked.text.includes(`${MARK} ${file}`));
    if (next !== undefined) {
      if (next === 'c.txt' && row.fault !== undefined) arm();
      return agent.read(join(home, 'work', next));
    }
    const isRefused = !row.outputOnly || outputOf(asked) > WINDOW - PROMPT;
    if (row.body !== undefined && isRefused && before.length < 40) {
      failedAt ??= before.length;
      return { status: row.status ?? 400, body: row.body(asked) };
    }
    return { say: DONE };
  });
  const stack = await startStack({ simulator: { backend: model.url }, flags: ['--responses-api'] });
  const posts = (): number =>
    stack.simulator.exchanges.all().filter(({ method }) => method === 'POST').length;
  const arm = (): void => {
    failedAt = posts();
    stack.simulator.faults.set(row.stays ? 'inference' : 'inference-once', row.fault as string);
  };
  try {
    await stack.proxy.session.acquire({ timeoutMs: 20_000 });
    home = newHome(below, Object.fromEntries(FILES.map((file) => [`work/${file}`, contentOf(file)])));
    const command = agent.command(
      { url: stack.url, model: 'scripted', home },
      'Read the files a.txt, b.txt and c.txt',
    );
    const { status, output } = await runAgent(command, home);
    const goesOn = output.includes(DONE);
    if (failedAt === undefined)
      return { effect: goesOn ? 'asks for less: not refused' : 'was not refused', says: '' };
    const after = model.asked.slice(failedAt + 1);
    const more = row.fault === undefined ? after.length : posts() - failedAt - 1;
    const first = model.asked[failedAt];
    const isSmaller =
      first && after.some((asked) => outputOf(asked) > 0 && outputOf(asked) < outputOf(first));
    const effect = [
      ...(isShort ? ['compacts'] : []),
      ...(row.outputOnly && isSmaller && !isShort ? ['asks for less output'] : []),
      goesOn ? 'goes on' : status === undefined ? 'still tries after 60 s' : 'ends',
    ].join(', ');
    const numbers = `${more} more ${more === 1 ? 'request' : 'requests'}${status === undefined ? '' : `, exit code ${status}`}`;
    return { effect: `${effect} (${numbers})`, says: saidIn(output) };
  } finally {
    await stack.close();
    model.close();
  }
}

const words = process.argv.slice(2).filter((word) => !word.startsWith('--'));
const chosen = (name: string): boolean => words.length === 0 || words.some((word) => name.includes(word));
installAgents();
const below = temporaryDirectory('agent-texts-');
const agents = Object.values(TRIED);
const effects = [
  `| the service says | ${agents.map(({ title }) => title).join(' | ')} |`,
  `| --- |${' --- |'.repeat(agents.length)}`,
];
const shown = ['| agent | shows | for |', '| --- | --- | --- |'];
for (const row of ROWS.filter(({ text }) => chosen(text))) {
  const cells: string[] = [];
  // Two at a time: most of a row is waiting.
  for (let at = 0; at < agents.length; at += 2) {
    const pair = agents.slice(at, at + 2);
    const outcomes = await Promise.all(pair.map((agent) => tried(agent, row, below)));
    for (const [index, { effect, says }] of outcomes.entries()) {
      cells.push(effect);
      if (says !== '' && /ends|still/.test(effect))
        shown.push(`| ${pair[index]?.title} | \`${says}\` | ${row.text} |`);
    }
  }
  effects.push(`| ${row.text} | ${cells.join(' | ')} |`);
  process.stderr.write(`${effects.at(-1)}\n`);
}
const lines = [
  `Measured with ${agents.map(({ title, package: name }) => `${title} ${AGENT_VERSIONS[name]}`).join(', ')}.`,
  ...['', ...effects, '', ...shown],
];
if (process.argv.includes('--write')) {
  const page = join(ROOT, 'docs/agent-errors.md');
  writeFileSync(page, replaceSection(readFileSync(page, 'utf8'), 'agent-texts', lines.join('\n')));
} else process.stdout.write(`${lines.join('\n')}\n`);
process.exit(0);
