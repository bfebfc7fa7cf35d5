/**
 * Responses as a gateway without the key can read and rewrite them: names, sealed messages as text, plain
 * values. What is written again is JSON, LF only, whatever was read.
 */
import { literalOrder } from './literal-envelope.ts';

export interface WireMember {
  readonly name: string;
  /** JSON text; of a sealed member, the message with its quotes. */
  readonly value: string;
}

/** One event, or a whole body. */
export interface WireEvent {
  /** The `event:` line; undefined: there is none. A list: several lines. */
  readonly event?: string | readonly string[] | undefined;
  /** Members in the order of the text, or the data where it is no JSON object: `[DONE]`. */
  readonly data: readonly WireMember[] | string;
}

/** A whole body; the members of an array are named by their index. */
export interface WireBody {
  readonly isArray: boolean;
  readonly members: readonly WireMember[];
}

const MESSAGE = /^"[^":]+:[0-9a-f]{24}:[0-9a-f]{24}:[0-9a-f]{32,}"$/i;

export const isSealed = ({ value }: WireMember): boolean => MESSAGE.test(value);

/** The members of one event; none where its data is no object. */
export const membersOf = ({ data }: WireEvent): readonly WireMember[] =>
  typeof data === 'string' ? [] : data;

/**
 * The members that are not in `plain`, in the order of their sequence numbers. Names that repeat stay apart.
 */
export function inSequence<T extends Pick<WireMember, 'name'>>(
  members: readonly T[],
  plain: readonly string[],
): T[] {
  const order = literalOrder([...new Set(members.map(({ name }) => name))], plain);
  return order.flatMap((name) => members.filter((member) => member.name === name));
}

export function parseBody(text: string): WireBody {
  const value = JSON.parse(text) as Record<string, unknown>;
  const members = Object.entries(value).map(([name, member]) => ({ name, value: JSON.stringify(member) }));
  return { isArray: Array.isArray(value), members };
}

export const writeBody = ({ isArray, members }: WireBody): string =>
  isArray
    ? `[${members.map(({ value }) => value).join(',')}]`
    : `{${members.map(({ name, value }) => `${JSON.stringify(name)}:${value}`).join(',')}}`;

/** Of a stream as the service writes it: LF, one `data` line an event. */
export function parseEvents(text: string): WireEvent[] {
  return text
    .split('\n\n')
    .filter((block) => block !== '')
    .map((block) => {
      const event = /^event: (.*)$/m.exec(block)?.[1];
      const data = /^data: (.*)$/m.exec(block)?.[1] ?? '';
      return { event, data: data.startsWith('{') ? parseBody(data).members : data };
    });
}

export function writeEvent({ event, data }: WireEvent): string {
  const names = event === undefined ? [] : typeof event === 'string' ? [event] : event;
  const text = typeof data === 'string' ? data : writeBody({ isArray: false, members: data });
  return `${names.map((name) => `event: ${name}\n`).join('')}data: ${text}\n\n`;
}

export const writeEvents = (events: readonly WireEvent[]): string => events.map(writeEvent).join('');

/**
 * The sealed messages of a request body, in the order of their sequence numbers; forms and raw bodies have
 * them in order.
 */
export function messagesOf(body: string, plain: readonly string[]): string[] {
  if (body.startsWith('{')) {
    return inSequence(parseBody(body).members, plain)
      .filter(isSealed)
      .map(({ value }) => value);
  }
  return [...body.matchAll(/"[^":\r\n]+:[0-9a-f]{24}:[0-9a-f]{24}:[0-9a-f]{32,}"/g)].map(([text]) => text);
}

/** The message with its iv in upper-case hex. */
export const withUpperCaseIv = (message: string): string =>
  message.replace(/:([0-9a-f]{24}):(?=[0-9a-f]{32,}"$)/, (_, iv: string) => `:${iv.toUpperCase()}:`);
