/** Faults in the sequence of events: lost, doubled, swapped, ended too soon, too long, or oddly framed. */
import { withMember } from '../json-text.ts';
import type { ModelEvent, ModelResponse } from '../models/response.ts';
import type { FaultRow, Intervention } from './intervention.ts';
import { DEFAULT_EVENT } from './messages.ts';

type Pieces = AsyncIterable<Buffer>;

/** Changes event streams only; a unary response stays as it is. */
const reshape = (change: (pieces: Pieces, terminal: string) => Pieces): Intervention => ({
  wire: (wire, terminal) => (wire.streaming ? { ...wire, pieces: change(wire.pieces, terminal) } : wire),
});

/** Replaces the event at `position`; `next` takes the one after it out of the stream. */
const substitute = (
  position: number,
  replacement: (event: Buffer, next: () => Promise<Buffer | undefined>) => Promise<Buffer[]>,
): Intervention =>
  reshape(async function* (pieces) {
    const iterator = pieces[Symbol.asyncIterator]();
    const next = async (): Promise<Buffer | undefined> => {
      const { value, done } = await iterator.next();
      return done === true ? undefined : value;
    };
    for (let index = 0; ; index++) {
      const piece = await next();
      if (piece === undefined) return;
      if (index === position) yield* await replacement(piece, next);
      else yield piece;
    }
  });

/** Sends the last event of the stream `times` times. */
const lastEvent = (times: number): Intervention =>
  reshape(async function* (pieces) {
    let held: Buffer | undefined;
    for await (const piece of pieces) {
      if (held !== undefined) yield held;
      held = piece;
    }
    for (let sent = 0; sent < times && held !== undefined; sent++) yield held;
  });

const endAfter = (events: number, ending: (terminal: string) => string): Intervention =>
  reshape(async function* (pieces, terminal) {
    let left = events;
    for await (const piece of pieces) {
      if (left-- <= 0) break;
      yield piece;
    }
    if (ending(terminal) !== '') yield Buffer.from(ending(terminal));
  });

/**
 * Adds an authentic member to one event or to a unary response. `wireBytes`: its size on the wire, where hex
 * doubles it. Responses of the messages API cannot have extra members, so there it goes into the delta or the
 * first block.
 */
function pad(response: ModelResponse, position: number, wireBytes: number): ModelResponse {
  const padded = (text: string): string => {
    if (!text.startsWith('{')) return text;
    const padding = 'x'.repeat(wireBytes / 2);
    const { delta, content } = JSON.parse(text) as { delta?: object; content?: object[] };
    if (delta !== undefined) return withMember(text, 'delta', JSON.stringify({ ...delta, padding }));
    if (content === undefined) return withMember(text, 'padding', JSON.stringify(padding));
    return withMember(text, 'content', JSON.stringify([{ ...content[0], padding }, ...content.slice(1)]));
  };
  if (response.kind === 'unary') return { ...response, body: padded(response.body) };
  const { events } = response;
  async function* long(): AsyncGenerator<ModelEvent> {
    let index = 0;
    for await (const event of events) {
      yield index++ === position ? { ...event, data: padded(event.data) } : event;
    }
  }
  return { ...response, events: long() };
}

const BROKE_OFF = 'the simulated model broke off';

/** The model server's error, in the API style of the stream. Only Anthropic's events have names. */
const errorEvents = (named: boolean): ModelEvent[] => {
  if (named) {
    const error = { type: 'error', error: { type: 'api_error', message: BROKE_OFF } };
    return [{ event: 'error', data: JSON.stringify(error) }];
  }
  const error = { message: BROKE_OFF, type: 'InternalServerError', param: null, code: 500 };
  return [{ data: JSON.stringify({ error }) }, { data: '[DONE]' }];
};

function breakOff(response: ModelResponse, after: number): ModelResponse {
  if (response.kind === 'unary') return response;
  const { events } = response;
  async function* broken(): AsyncGenerator<ModelEvent> {
    let left = after;
    for await (const event of events) {
      if (left-- <= 0) {
        yield* errorEvents(event.event !== undefined);
        return;
      }
      yield event;
    }
  }
  return { ...response, events: broken() };
}

const NOTES = Buffer.from(': keep-alive\nid: 7\nretry: 1000\n');

export const EVENT_FAULTS = {
  huge_line: {
    does: 'makes event 3 an authentic line of this many bytes (10485760)',
    applies: 'any',
    arm: (args) => ({
      modelResponse: (response) => pad(response, DEFAULT_EVENT, args.number(0, 10 * 1024 * 1024)),
    }),
  },
  replay: {
    does: 'sends event n (3) twice',
    applies: 'stream',
    arm: (args) => substitute(args.number(0, DEFAULT_EVENT), async (event) => [event, event]),
  },
  reorder: {
    does: 'swaps event n (3) with the next one',
    applies: 'stream',
    arm: (args) =>
      substitute(args.number(0, DEFAULT_EVENT), async (event, next) => {
        const following = await next();
        return following === undefined ? [event] : [following, event];
      }),
  },
  drop: {
    does: 'leaves event n (3) out',
    applies: 'stream',
    arm: (args) => substitute(args.number(0, DEFAULT_EVENT), async () => []),
  },
  missing_terminal: {
    does: 'ends the stream without its terminal event',
    applies: 'stream',
    arm: () => lastEvent(0),
  },
  duplicate_terminal: {
    does: 'sends the terminal event twice',
    applies: 'stream',
    harmless: true,
    arm: () => lastEvent(2),
  },
  truncate: {
    does: 'ends the stream cleanly after n events (3)',
    applies: 'stream',
    arm: (args) => endAfter(args.number(0, DEFAULT_EVENT), () => ''),
  },
  forged_terminal: {
    does: 'ends the stream with a forged terminal event after n events (3)',
    applies: 'stream',
    arm: (args) => endAfter(args.number(0, DEFAULT_EVENT), (terminal) => terminal),
  },
  error_event: {
    does: 'the model server breaks off with an encrypted error event after n events (3)',
    applies: 'stream',
    arm: (args) => ({ modelResponse: (response) => breakOff(response, args.number(0, DEFAULT_EVENT)) }),
  },
  crlf: {
    does: 'ends the lines of a stream with CR LF',
    applies: 'stream',
    harmless: true,
    arm: () =>
      reshape(async function* (pieces) {
        for await (const piece of pieces) yield Buffer.from(piece.toString().replaceAll('\n', '\r\n'));
      }),
  },
  comments: {
    does: 'puts a comment, an id and a retry line before every event',
    applies: 'stream',
    harmless: true,
    arm: () =>
      reshape(async function* (pieces) {
        for await (const piece of pieces) yield Buffer.concat([NOTES, piece]);
      }),
  },
} satisfies Record<string, FaultRow>;
