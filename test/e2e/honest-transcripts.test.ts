/**
 * Everything that an honest model server sends passes the real program: byte for byte, blanks between members
 * aside, ended well, and whole in the eyes of the official clients. Sealed by the simulator, in front of a
 * model server that sends the transcripts.
 */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { after, before, describe, it } from 'node:test';
import type Anthropic from '@anthropic-ai/sdk';
import {
  ANTHROPIC_CLIENTS,
  type AnthropicClass,
  all,
  OPENAI_CLIENTS,
  type OpenAIClass,
} from '../applications/versions.ts';
import { type Stack, startStack } from '../support/doors/stack.ts';
import { PATHS, served, TRANSCRIPTS, titleOf, transcriptOf } from '../support/remote/transcripts/corpus.ts';
import { breaches } from '../support/remote/transcripts/grammar.ts';
import {
  type EndpointName,
  type Members,
  type Transcript,
  type TranscriptEvent,
  textOf,
} from '../support/remote/transcripts/transcript.ts';

/** The request asks for all the usage that the service forces, so that none of it is taken out. */
function askedFor({ endpoint, request }: Transcript): Members {
  const options = { include_usage: true, continuous_usage_stats: true };
  const hasOptions = request['stream'] === true && (endpoint === 'chat' || endpoint === 'completions');
  if (hasOptions) return { ...request, stream_options: options };
  if (endpoint !== 'transcription' || request['stream'] === undefined) return request;
  return { ...request, stream_include_usage: 'true', stream_continuous_usage_stats: 'true' };
}

/** What came through the program, for any number of clients to read. */
interface Received {
  readonly status: number;
  readonly headers: Headers;
  readonly text: string;
}

const replay =
  ({ text, status, headers }: Received): typeof fetch =>
  async () =>
    new Response(text, { status, headers });

const OPTIONS = { apiKey: 'a key', maxRetries: 0, baseURL: 'http://127.0.0.1:1/v1' };
const FILE = { bytes: Buffer.from('RIFF some sound'), name: 'sound.wav' };

/**
 * Reads a response through the method of the client that belongs to the endpoint: the events of a stream, or
 * the whole.
 */
type Reader = (fetch: typeof globalThis.fetch, request: Members) => Promise<unknown>;

/** The tests are about responses: what the requests hold is not for the compiler to judge. */
const eventsOr = async (answer: Promise<unknown>, { stream }: Members): Promise<unknown> =>
  stream === undefined ? answer : all((await answer) as AsyncIterable<unknown>);

const openaiReaders = (Client: OpenAIClass): Partial<Record<EndpointName, Reader>> => ({
  chat: (fetch, request) =>
    eventsOr(new Client({ ...OPTIONS, fetch }).chat.completions.create(request as never), request),
  completions: (fetch, request) =>
    eventsOr(new Client({ ...OPTIONS, fetch }).completions.create(request as never), request),
  embeddings: (fetch, request) => new Client({ ...OPTIONS, fetch }).embeddings.create(request as never),
  async transcription(fetch, request) {
    const { transcriptions } = new Client({ ...OPTIONS, fetch }).audio;
    const stream = request['stream'] === undefined ? {} : { stream: true };
    const file = await Client.toFile(FILE.bytes, FILE.name);
    return eventsOr(transcriptions.create({ ...request, ...stream, file } as never), request);
  },
});

const anthropicReaders = (Client: AnthropicClass): Partial<Record<EndpointName, Reader>> => ({
  messages: (fetch, request) =>
    eventsOr(new Client({ ...OPTIONS, fetch }).messages.create(request as never), request),
});

interface SdkReaders {
  readonly name: string;
  readonly APIError: new (...args: never[]) => Error;
  readonly readers: Partial<Record<EndpointName, Reader>>;
}

const SDKS: readonly SdkReaders[] = [
  ...Object.entries(OPENAI_CLIENTS).map(([name, Client]) => ({
    name,
    APIError: Client.APIError as unknown as SdkReaders['APIError'],
    readers: openaiReaders(Client),
  })),
  ...Object.entries(ANTHROPIC_CLIENTS).map(([name, Client]) => ({
    name,
    APIError: Client.APIError as unknown as SdkReaders['APIError'],
    readers: anthropicReaders(Client),
  })),
];

/** What a client should have read in the end, parsed: all events but pings and the end, or the whole. */
function content(transcript: Transcript): unknown {
  const response = served(transcript);
  if (response.kind === 'whole') return response.body;
  return response.events
    .map(({ data }) => data)
    .filter((data) => data !== '[DONE]' && data['type'] !== 'ping');
}

/** What every client of the endpoint makes of the response: the whole of it, or its error. */
async function assertRead(transcript: Transcript, received: Received): Promise<void> {
  for (const { name, APIError, readers } of SDKS) {
    const read = readers[transcript.endpoint];
    if (read === undefined) continue;
    const reading = read(replay(received), transcript.request);
    if (transcript.ends === 'error') {
      await assert.rejects(reading, (error) => error instanceof APIError, name);
    } else {
      assert.deepEqual(JSON.parse(JSON.stringify(await reading)), content(transcript), name);
    }
  }
}

/** Per block, what its deltas come to; and why the message stopped. */
function told(events: readonly Members[]): { readonly blocks: readonly string[]; readonly reason: unknown } {
  const blocks: string[] = [];
  let reason: unknown;
  for (const { type, index, delta = {} } of events) {
    const { text, thinking, signature, partial_json: json, stop_reason: stop } = delta as Members;
    if (type === 'content_block_start') blocks.push('');
    const piece = text ?? thinking ?? signature ?? json;
    if (type === 'content_block_delta') blocks[index as number] = `${blocks[index as number]}${piece}`;
    if (type === 'message_delta') reason = stop;
  }
  return { blocks, reason };
}

const isMessageStream = ({ endpoint, ends, response }: Transcript): boolean =>
  endpoint === 'messages' && ends === 'well' && response.kind === 'stream';

/** The helper of the messages client that gathers a stream has to come to what the deltas say. */
async function assertGathered(transcript: Transcript, received: Received): Promise<void> {
  for (const Client of Object.values(ANTHROPIC_CLIENTS)) {
    const client = new Client({ ...OPTIONS, fetch: replay(received) });
    const message = await client.messages.stream(transcript.request as never).finalMessage();
    assertMessage(message, told(content(transcript) as readonly Members[]));
  }
}

function assertMessage(message: Anthropic.Message, { blocks, reason }: ReturnType<typeof told>): void {
  assert.equal(message.stop_reason, reason);
  assert.equal(message.content.length, blocks.length);
  for (const [index, block] of message.content.entries()) {
    const pieces = blocks[index] as string;
    if (block.type === 'text') assert.equal(block.text, pieces);
    else if (block.type === 'thinking') assert.equal(block.thinking + block.signature, pieces);
    else {
      assert.ok(block.type === 'tool_use', block.type);
      assert.deepEqual(block.input, JSON.parse(pieces || '{}'));
    }
  }
}

/** A member of each request, which the model server reads: which transcript it is to send. */
const ASKED = /the transcript with the number (\d+)/;
const asking = (transcript: Transcript): string =>
  `the transcript with the number ${TRANSCRIPTS.indexOf(transcript)}`;

/** A model server that sends the transcript that the request asks for. */
async function startModelServer(): Promise<{ readonly server: Server; readonly url: string }> {
  const server = createServer((request, response) => {
    let body = '';
    request.setEncoding('latin1').on('data', (chunk: string) => {
      body += chunk;
    });
    request.once('end', () => {
      const sent = (TRANSCRIPTS[Number(ASKED.exec(body)?.[1])] as Transcript).response;
      const [status, type] =
        sent.kind === 'stream'
          ? [200, 'text/event-stream; charset=utf-8']
          : [sent.status, 'application/json'];
      response.writeHead(status, { 'Content-Type': type }).end(textOf(sent));
    });
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  return { server, url: `http://127.0.0.1:${(server.address() as AddressInfo).port}` };
}

function bodyOf(transcript: Transcript): string | FormData {
  const members = { ...askedFor(transcript), user: asking(transcript) };
  if (transcript.endpoint !== 'transcription') return JSON.stringify(members);
  const form = new FormData();
  for (const [name, value] of Object.entries(members)) form.append(name, String(value));
  form.append('file', new Blob([FILE.bytes]), FILE.name);
  return form;
}

/** Versions that send the same are asked once. */
const DISTINCT: readonly Transcript[] = [
  ...new Map(
    TRANSCRIPTS.toReversed().map((transcript) => {
      const { endpoint, request, response } = transcript;
      return [JSON.stringify([endpoint, request, response]), transcript];
    }),
  ).values(),
].toReversed();

describe('transcripts of honest responses', { timeout: 600_000 }, () => {
  let stack: Stack;
  let model: Awaited<ReturnType<typeof startModelServer>>;
  before(async () => {
    model = await startModelServer();
    stack = await startStack({ simulator: { backend: model.url } });
  });
  after(async () => {
    assert.deepEqual(stack.simulator.exchanges.violations(), []);
    await stack.close();
    model.server.closeAllConnections();
    await new Promise((resolve) => model.server.close(resolve));
  });

  /** The response as it came through the program; `body` rejects where the connection broke. */
  const ask = (transcript: Transcript): Promise<Response> => {
    const json = transcript.endpoint !== 'transcription';
    return fetch(`${stack.url}${PATHS[transcript.endpoint]}`, {
      method: 'POST',
      ...(json ? { headers: { 'content-type': 'application/json' } } : {}),
      body: bodyOf(transcript),
    });
  };

  describe('are examples of the grammar', () => {
    it('and each have a name of their own', () => {
      assert.equal(new Set(TRANSCRIPTS.map(titleOf)).size, TRANSCRIPTS.length);
    });
    it('and break none of its rules', () => {
      const wrong = TRANSCRIPTS.filter(({ ends }) => ends !== 'unfinished')
        .map((transcript) => [
          titleOf(transcript),
          ...breaches(transcript.endpoint, transcript.request, transcript.response),
        ])
        .filter(([, ...found]) => found.length > 0);
      assert.deepEqual(wrong, []);
    });

    const eventsOf = (title: string): readonly TranscriptEvent[] => {
      const { response } = transcriptOf(title);
      assert.ok(response.kind === 'stream');
      return response.events;
    };
    const chat = eventsOf('chat 0.20: plain text'); // role, four pieces, finish, closing, end
    const message = eventsOf('messages 0.33: plain text'); // start, block of three deltas, stop, delta, end
    const changed = (events: readonly TranscriptEvent[], at: number, more: Members): TranscriptEvent[] =>
      events.with(at, {
        ...(events[at] as TranscriptEvent),
        data: { ...(events[at]?.data as Members), ...more },
      });
    const dishonest: Readonly<Record<string, readonly [EndpointName, readonly TranscriptEvent[]]>> = {
      'no finish': ['chat', chat.toSpliced(5, 1)],
      'two finishes': ['chat', chat.toSpliced(6, 0, chat[5] as TranscriptEvent)],
      'content after the finish': ['chat', chat.toSpliced(6, 0, chat[1] as TranscriptEvent)],
      'no closing chunk': ['chat', chat.toSpliced(6, 1)],
      'no end': ['chat', chat.slice(0, -1)],
      'no role': ['chat', chat.slice(1)],
      'another time': ['chat', changed(chat, 2, { created: 1 })],
      'a member that nobody knows': ['chat', changed(chat, 2, { note: 'x' })],
      'a member too few': ['chat', changed(chat, 2, { model: undefined })],
      'an index that was not asked for': [
        'chat',
        changed(chat, 2, { choices: [{ index: 1, delta: { role: 'assistant' } }] }),
      ],
      'a block that does not end': ['messages', message.toSpliced(5, 1)],
      'a delta of another block': ['messages', changed(message, 3, { index: 1 })],
      'a delta of another kind': [
        'messages',
        changed(message, 3, { delta: { type: 'thinking_delta', thinking: 'x' } }),
      ],
      'a name that is not the type': ['messages', changed(message, 3, { type: 'ping' })],
      'no stop': ['messages', message.slice(0, -1)],
    };
    for (const [what, [endpoint, events]] of Object.entries(dishonest)) {
      it(`which refuses a response with ${what}`, () => {
        assert.notDeepEqual(breaches(endpoint, {}, { kind: 'stream', events }), []);
      });
    }
  });

  /** Asks for it, and asserts that what came is what the model server sent. */
  async function pass(transcript: Transcript): Promise<Received> {
    const expected = served(transcript);
    const response = await ask(transcript);
    const { status, headers } = response;
    assert.equal(status, expected.kind === 'stream' ? 200 : expected.status);
    const text = await response.text();
    const isLaidOut = expected.kind === 'whole' && typeof expected.body === 'string';
    const sent = textOf(expected);
    assert.equal(text, isLaidOut ? JSON.stringify(JSON.parse(sent)) : sent);
    return { status, headers, text };
  }

  const isRefused = ({ ends, request }: Transcript): boolean =>
    ends === 'unfinished' || request['response_format'] === 'text';

  describe('pass byte for byte (blanks between members aside), and the official clients read them to the end', {
    concurrency: 4,
  }, () => {
    for (const transcript of DISTINCT.filter((candidate) => !isRefused(candidate))) {
      it(titleOf(transcript), async () => {
        const received = await pass(transcript);
        await assertRead(transcript, received);
        if (isMessageStream(transcript)) await assertGathered(transcript, received);
      });
    }
  });

  it('end in a broken connection if a message has no stop reason', async () => {
    const unfinished = DISTINCT.filter(({ ends }) => ends === 'unfinished');
    assert.ok(unfinished.length > 0);
    for (const transcript of unfinished) {
      await assert.rejects(
        ask(transcript).then((response) => response.text()),
        titleOf(transcript),
      );
    }
  });

  it('are refused with 400 unsupported_response_format in the format text, before anything is sent', async () => {
    const asked = TRANSCRIPTS.find(({ request }) => request['response_format'] === 'text') as Transcript;
    const before = stack.simulator.exchanges.all().length;
    const response = await ask(asked);
    assert.equal(response.status, 400);
    assert.match(await response.text(), /unsupported_response_format/);
    assert.equal(stack.simulator.exchanges.all().length, before);
  });
});
