/**
 * What an event must hold to be delivered. Values are authenticated, but neither the names of members nor the
 * type of an event are (inference.md 6.2): by renaming `choices`, or relabelling a delta as a ping, a gateway could
 * make clients skip content, which is truncation nobody sees. So the members that carry the content must be
 * there, and open to the kind of value they have.
 */
import type { EventLayout } from './event-layout.ts';
import type { TerminalEvent } from './stream-end.ts';

/** Encrypted member → the character its JSON text begins with; undefined for any. */
type Shape = Readonly<Record<string, '{' | '[' | undefined>>;

const ERROR: Shape = { error: undefined };
/** A chunk of chat, completions or transcriptions, whatever else it has. */
const CHUNK: Shape = { choices: '[' };
/** The events of the messages API by their type; those with an empty shape have no content. */
const MESSAGE_EVENTS: ReadonlyMap<string, Shape> = new Map<string, Shape>([
  ['message_start', { message: '{' }],
  ['content_block_start', { index: undefined, content_block: '{' }],
  ['content_block_delta', { index: undefined, delta: '{' }],
  ['content_block_stop', { index: undefined }],
  ['message_delta', { delta: '{' }],
  ['error', ERROR],
  ['ping', {}],
  ['message_stop', {}],
]);

/** A part of the layout, and the byte its text begins with; undefined for any. */
export interface RequiredPart {
  readonly part: number;
  readonly first: number | undefined;
}

/**
 * The parts that events of that layout must hold, or undefined where the API has no such event: one without
 * content that is no ping and no end, or with content and labelled as such.
 */
export function requiredParts(layout: EventLayout, api: TerminalEvent): RequiredPart[] | undefined {
  const encrypted = new Set(layout.order.map((part) => layout.names[part]!));
  const chunk = encrypted.has('choices') ? CHUNK : ERROR;
  const shape = api === 'done' ? chunk : MESSAGE_EVENTS.get(layout.type ?? '');
  if (shape === undefined) return undefined;
  const required = Object.entries(shape);
  if (required.length === 0 && encrypted.size > 0) return undefined;
  if (required.some(([name]) => !encrypted.has(name))) return undefined;
  return required.map(([name, first]) => ({
    part: layout.names.indexOf(name),
    first: first?.charCodeAt(0),
  }));
}

/** Whether the opened parts, by their number, are of the kinds required. */
export function hasShape(required: readonly RequiredPart[], opened: readonly Buffer[]): boolean {
  for (let k = 0; k < required.length; k++) {
    const { part, first } = required[k]!;
    if (first !== undefined && opened[part]![0] !== first) return false;
  }
  return true;
}
