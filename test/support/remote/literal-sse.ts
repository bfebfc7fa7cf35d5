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
    if (each === '') continue; // a heartbeat without data: it means nothing and goes
    if (each.toUpperCase() === '[DONE]') {
      if (terminal !== '[DONE]') continue; // no part of this API: it means nothing and goes
      if (finished) data.push(each);
      return { data, complete: finished };
    }
    try {
      const members = JSON.parse(each.replace(LABELS, '"id:nonce:')) as Members;
      const names = literalOrder(Object.keys(members), plain);
      const opened = new Map<string, string>();
      for (const name of names) {
        const message = members[name];
        if (typeof message !== 'string') throw new Error('not encrypted');
        opened.set(name, literalOpen(exchange, sequence, `"${message}"`).toString());
        sequence += 1;
      }
      const isEnd = terminal === 'message_stop' && members['type'] === 'message_stop' && names.length === 0;
      if (isEnd && !finished) return { data, complete: false };
      const whole = Object.entries(members).map(
        ([name, value]) => [name, opened.has(name) ? JSON.parse(opened.get(name) as string) : value] as const,
      );
      data.push(JSON.stringify(Object.fromEntries(whole)));
      if (isEnd) return { data, complete: true };
      if (isFinish(Object.fromEntries(whole))) finished = true;
    } catch {
      return { data, complete: false };
    }
  }
  return { data, complete: false };
}

/** A reason to stop, in either dialect, or an error of the model server. */
function isFinish(event: Members): boolean {
  const { choices, delta, error } = event as {
    choices?: readonly { finish_reason?: unknown }[];
    delta?: { stop_reason?: unknown };
    error?: unknown;
  };
  const reasons = [
    delta?.stop_reason,
    ...(Array.isArray(choices) ? choices.map((c) => c?.finish_reason) : []),
  ];
  return (error ?? null) !== null || reasons.some((reason) => (reason ?? null) !== null);
}
