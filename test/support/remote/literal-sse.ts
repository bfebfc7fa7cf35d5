/**
 * The client's side of an event stream written a second time: slow, literal, the whole text at once,
 * JSON.parse, no layouts remembered (docs/protocol/inference.md 6.2, the WHATWG rules for event streams). It
 * shares no code with lib/.
 */
import { type LiteralExchange, literalOpen, literalOrder } from './literal-envelope.ts';

export interface LiteralStream {
  /**
   * The opened data of each event, in order, up to the first that cannot be opened; the terminal one
   * included.
   */
  readonly data: readonly string[];
  /** Whether the terminal event came, after an authenticated finish or error. */
  readonly complete: boolean;
}

/** The data of each event: what its `data` lines say, joined by LF. Without any, it is no event. */
export function literalData(text: string): string[] {
  const blocks: string[] = [];
  let lines: string[] = [];
  for (const line of text.replace(/^\ufeff/, '').split(/\r\n|\r|\n/)) {
    if (line !== '') {
      const field = /^data(?:: ?(.*))?$/s.exec(line);
      if (field !== null) lines.push(field[1] ?? '');
      continue;
    }
    if (lines.length > 0) blocks.push(lines.join('\n'));
    lines = [];
  }
  return blocks;
}

type Members = Record<string, unknown>;

/** Secret id and nonce at the head of a message are ignored, whatever they say (section 4). */
const LABELS = /"[^":]*:[^":]*:(?=[0-9a-f]{24}:)/gi;

/** Opens a stream; `terminal` is `[DONE]`, or the type of the event that ends it. */
export function literalOpenStream(
  exchange: LiteralExchange,
  wire: Uint8Array,
  plain: readonly string[],
  terminal: '[DONE]' | 'message_stop',
): LiteralStream {
  const data: string[] = [];
  let sequence = 0;
  let finished = false;
  for (const each of literalData(Buffer.from(wire).toString('utf8'))) {
    // A heartbeat without data, or an end that is no part of this API, means nothing and goes.
    const isDone = each.toUpperCase() === '[DONE]';
    if (each === '' || (isDone && terminal !== '[DONE]')) continue;
    if (isDone) return { data: finished ? [...data, each] : data, complete: finished };
    try {
      const members = JSON.parse(each.replace(LABELS, `"id:${'0'.repeat(24)}:`)) as Members;
      const names = literalOrder(Object.keys(members), plain);
      for (const name of names) {
        const message = members[name];
        if (typeof message !== 'string') throw new Error('not encrypted');
        members[name] = JSON.parse(literalOpen(exchange, sequence++, message).toString());
      }
      const isEnd = terminal === 'message_stop' && members['type'] === 'message_stop' && names.length === 0;
      if (isEnd && !finished) return { data, complete: false };
      data.push(JSON.stringify(members));
      if (isEnd) return { data, complete: true };
      if (isFinish(members)) finished = true;
    } catch {
      return { data, complete: false };
    }
  }
  return { data, complete: false };
}

/** A reason to stop, in either dialect, or an error of the model server. */
function isFinish({ choices, delta, error }: Members): boolean {
  const list = Array.isArray(choices) ? (choices as ({ finish_reason?: unknown } | null)[]) : [];
  const { stop_reason } = (delta ?? {}) as { stop_reason?: unknown };
  return [error, stop_reason, ...list.map((choice) => choice?.finish_reason)].some((each) => each != null);
}
