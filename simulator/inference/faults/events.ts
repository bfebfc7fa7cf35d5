/** Faults in the sequence of events: lost, doubled, swapped, ended too soon, too long, or oddly framed. */
import { withMember } from '../json-text.ts';
import type { ModelEvent } from '../models/response.ts';
import { type Change, type FaultRow, harmless, isAt, row, streams } from './intervention.ts';

/** Replaces the event at this index. */
const substitute = (at: number, events: (event: Buffer) => Buffer[]): { ofWire: Change<Buffer, Buffer> } => ({
  ofWire: (piece, { index }) => (index === at ? events(piece) : [piece]),
});

/** Swaps the event at this index with the next one. */
function swap(at: number): Change<Buffer, Buffer> {
  let held: Buffer[] = [];
  return (piece, { index }) => {
    if (index !== at) return [piece, ...held.splice(0)];
    held = [piece];
    return [];
  };
}

/** Sends the terminal event that many times. */
const terminals = (times: number): { ofWire: Change<Buffer, Buffer> } => ({
  ofWire: (piece, { terminal }) =>
    piece.includes(terminal) ? Array.from({ length: times }, () => piece) : [piece],
});

/** Ends the stream after that many events, with `ending`. */
const endAfter = (events: number, ending: (terminal: string) => Buffer[]) => ({
  ofWire: ((piece, { index, terminal }) =>
    index < events ? [piece] : [...ending(terminal), 'end']) satisfies Change<Buffer, Buffer>,
});

/**
 * The JSON text with an authentic member more. `wireBytes`: its size on the wire, where hex doubles it.
 * Responses of the messages API cannot have extra members, so there it goes into the delta or the first
 * block.
 */
function padded(text: string, wireBytes: number): string {
  if (!text.startsWith('{')) return text;
  const padding = 'x'.repeat(wireBytes / 2);
  const { delta, content } = JSON.parse(text) as { delta?: object; content?: object[] };
  if (delta !== undefined) return withMember(text, 'delta', JSON.stringify({ ...delta, padding }));
  if (content === undefined) return withMember(text, 'padding', JSON.stringify(padding));
  return withMember(text, 'content', JSON.stringify([{ ...content[0], padding }, ...content.slice(1)]));
}

const BROKE_OFF = 'the simulated model broke off';

/** The model server's error, in the API style of the stream. Only Anthropic's events have names. */
function errorEvents(isNamed: boolean): ModelEvent[] {
  const anthropic = { type: 'error', error: { type: 'api_error', message: BROKE_OFF } };
  if (isNamed) return [{ event: 'error', data: JSON.stringify(anthropic) }];
  const error = { message: BROKE_OFF, type: 'InternalServerError', param: null, code: 500 };
  return [{ data: JSON.stringify({ error }) }, { data: '[DONE]' }];
}

const NOTES = Buffer.from(': keep-alive\nid: 7\nretry: 1000\n');

export const EVENT_FAULTS = {
  huge_line: row('makes event 3 an authentic line of this many bytes (10485760)', ({ number }) => {
    const bytes = number(0, 10 * 1024 * 1024);
    return {
      ofModel: (event, place) => [isAt(3, place) ? { ...event, data: padded(event.data, bytes) } : event],
    };
  }),
  replay: streams('sends event n (3) twice', ({ event }) => substitute(event(), (each) => [each, each])),
  reorder: streams('swaps event n (3) with the next one', ({ event }) => ({ ofWire: swap(event()) })),
  drop: streams('leaves event n (3) out', ({ event }) => substitute(event(), () => [])),
  missing_terminal: streams('ends the stream without its terminal event', () => terminals(0)),
  duplicate_terminal: harmless(streams('sends the terminal event twice', () => terminals(2))),
  truncate: streams('ends the stream cleanly after n events (3)', ({ event }) => endAfter(event(), () => [])),
  forged_terminal: streams('ends the stream with a forged terminal event after n events (3)', ({ event }) =>
    endAfter(event(), (terminal) => [Buffer.from(terminal)]),
  ),
  error_event: streams(
    'the model server breaks off with an encrypted error event after n events (3)',
    (args) => {
      const events = args.event();
      return {
        ofModel: (event, { index }) =>
          index < events ? [event] : [...errorEvents(event.event !== undefined), 'end'],
      };
    },
  ),
  crlf: harmless(
    streams('ends the lines of a stream with CR LF', () => ({
      ofWire: (piece) => [Buffer.from(piece.toString().replaceAll('\n', '\r\n'))],
    })),
  ),
  comments: harmless(
    streams('puts a comment, an id and a retry line before every event', () => ({
      ofWire: (piece) => [Buffer.concat([NOTES, piece])],
    })),
  ),
} satisfies Record<string, FaultRow>;
