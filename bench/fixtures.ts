/** What the benchmark sends and gets: chat chunks as vLLM makes them, sealed as the service seals them. */
import { createSealer, type Protection, type Sealer } from '../simulator/inference/envelope.ts';

/** The secret under which bare proxies are asked, which have none of their own; nothing is hidden by it. */
export const OPEN_SECRET = {
  id: Buffer.alloc(32, 'bench').toString('base64'),
  key: Buffer.alloc(32, 'privatemode bench'),
  nonce: Buffer.alloc(12, 'bench'),
};
export const OPEN_PROTECTION: Protection = {
  secretId: OPEN_SECRET.id,
  key: OPEN_SECRET.key,
  nonce: OPEN_SECRET.nonce,
};

/** What a request asks of the benchmark's upstream; travels as the model name, which nobody encrypts. */
export interface Plan {
  /** Chunks with content, before `[DONE]`. */
  readonly events: number;
  /** ms between two chunks; 0: as fast as the reader takes them. */
  readonly pace: number;
  /** When the first chunk leaves, ms since 1970; 0: at once. */
  readonly start: number;
  /** After the chunks, silence instead of the end. */
  readonly hold: boolean;
  /** One JSON answer instead of a stream. */
  readonly unary: boolean;
  /**
   * Under the open secret, the events of an earlier stream as they are: sealing them would take longer than
   * passing them on.
   */
  readonly again: boolean;
}

export const PLAN: Plan = {
  events: 1,
  pace: 0,
  start: 0,
  hold: false,
  unary: false,
  again: false,
};

export function modelOf(plan: Partial<Plan>): string {
  const { events, pace, start, hold, unary, again } = { ...PLAN, ...plan };
  return `bench/${events}/${pace}/${start}/${Number(hold)}/${Number(unary)}/${Number(again)}`;
}

/** Undefined for another model. */
export function planOf(model: string): Plan | undefined {
  const [name, ...parts] = model.split('/');
  const numbers = parts.map(Number);
  if (name !== 'bench' || numbers.length !== 6 || numbers.some(Number.isNaN)) return undefined;
  const [events, pace, start, hold, unary, again] = numbers as [
    number,
    number,
    number,
    number,
    number,
    number,
  ];
  return { events, pace, start, hold: hold === 1, unary: unary === 1, again: again === 1 };
}

const MODEL = '"openai/gpt-oss-120b"';
const TOKENS = [' the', ' answer', ' is', ' streamed', ',', ' token', ' by', ' token', '.', '\\n'];

/**
 * The JSON text of chunk `index` of `count`, its encrypted members through `seal`, in the order of their
 * numbers.
 */
function chunkText(index: number, count: number, seal: Sealer): string {
  const finish = index === count - 1 ? '"stop"' : 'null';
  const token = TOKENS[index % TOKENS.length]!;
  const choices = seal(
    `[{"index":0,"delta":{"content":"${token}"},"logprobs":null,"finish_reason":${finish},"token_ids":null}]`,
  );
  const created = seal('1763683200');
  const model = seal(MODEL);
  const object = seal('"chat.completion.chunk"');
  const usage = `{"prompt_tokens":131,"total_tokens":${132 + index},"completion_tokens":${index + 1}}`;
  return `{"id":"chatcmpl-6f1d0e5ab2c34f0f8a3f7a1c2b9d4e5f","object":${object},"created":${created},"model":${model},"choices":${choices},"usage":${usage}}`;
}

const plainly: Sealer = (text) => text;
const eventsOf = (count: number, seal: Sealer): string[] =>
  Array.from({ length: count }, (_, index) => `data: ${chunkText(index, count, seal)}\n\n`);

export const DONE = 'data: [DONE]\n\n';

/** The events of a stream as the application must get them. */
export const plainEvents = (count: number): string[] => eventsOf(count, plainly);
/** The same as the service sends them. */
export const sealedEvents = (count: number, protection: Protection): Buffer[] =>
  eventsOf(count, createSealer(protection)).map((text) => Buffer.from(text, 'latin1'));

/** The JSON text of a whole answer, its encrypted members through `seal`, in the order of their numbers. */
function answerText(seal: Sealer): string {
  const choices = seal(
    '[{"index":0,"message":{"role":"assistant","content":"It is."},"logprobs":null,"finish_reason":"stop"}]',
  );
  const created = seal('1763683200');
  const model = seal(MODEL);
  const object = seal('"chat.completion"');
  const usage = '{"prompt_tokens":131,"total_tokens":134,"completion_tokens":3}';
  return `{"id":"chatcmpl-6f1d0e5ab2c34f0f8a3f7a1c2b9d4e5f","object":${object},"created":${created},"model":${model},"choices":${choices},"usage":${usage}}`;
}

export const plainAnswer = (): string => answerText(plainly);
export const sealedAnswer = (protection: Protection): string => answerText(createSealer(protection));

/** A chat request with about that many bytes of prompt, plain. */
export function chatBody(plan: Partial<Plan>, promptBytes = 400): Buffer {
  const turn =
    'Every byte of this sentence crosses the wire encrypted, and "comes back" token by token. '.repeat(45);
  const messages: { role: string; content: string }[] = [];
  for (let left = promptBytes; left > 0; left -= turn.length) {
    messages.push({
      role: messages.length % 2 === 0 ? 'user' : 'assistant',
      content: turn.slice(0, left),
    });
  }
  return Buffer.from(
    JSON.stringify({
      model: modelOf(plan),
      messages,
      stream: plan.unary !== true,
      // All that the service sends: then every subject writes the same bytes.
      ...(plan.unary === true
        ? {}
        : { stream_options: { include_usage: true, continuous_usage_stats: true } }),
      temperature: 0.7,
    }),
  );
}

/** The same request sealed with the open secret, as a bare proxy would get it from a client that encrypts. */
export function sealedChatBody(plan: Partial<Plan>, promptBytes = 400): Buffer {
  const seal = createSealer(OPEN_PROTECTION);
  const { messages, temperature } = JSON.parse(chatBody(plan, promptBytes).toString()) as Record<
    string,
    unknown
  >;
  const [sealedMessages, sealedTemperature] = [seal(JSON.stringify(messages)), seal(String(temperature))];
  return Buffer.from(
    `{"model":"${modelOf(plan)}","messages":${sealedMessages},"stream":${plan.unary !== true},"temperature":${sealedTemperature}}`,
  );
}

/** The secret id and nonce of the first sealed message in a request body, wherever it is. */
export function protectionIn(
  body: string,
): { readonly secretId: string; readonly nonce: Buffer } | undefined {
  const found = /([A-Za-z0-9+/]{43}=):([0-9a-f]{24}):[0-9a-f]{24}:/.exec(body);
  return found === null ? undefined : { secretId: found[1]!, nonce: Buffer.from(found[2]!, 'hex') };
}
