/**
 * What an event must hold to be delivered. Values are authenticated, but neither the names of members nor the
 * type of an event are (inference.md 6.2): by renaming `choices`, or relabelling a delta as a ping, a gateway could
 * make clients skip content, which is truncation nobody sees. So the members that carry the content must be
 * there, open to what belongs there, and stand alone where the API has nothing beside them.
 */
import type { EventLayout } from './event-layout.ts';
import type { TerminalEvent } from './stream-end.ts';

/** Whether an opened value (JSON text) is what belongs there. */
type Content = (opened: Buffer) => boolean;

interface EventShape {
  /** The encrypted members that must be there. */
  readonly holds: Readonly<Record<string, Content>>;
  /** Those that are judged where they are there. */
  readonly judged?: Readonly<Record<string, Content>>;
  /** Whether more encrypted members may stand beside these. */
  readonly others: boolean;
}

const HEAD_BYTES = 64;
const LEFT_BRACE = 0x7b;
const isDigit = (byte: number | undefined): boolean => byte !== undefined && byte >= 0x30 && byte <= 0x39;

const anObject: Content = (opened) => opened[0] === LEFT_BRACE;
const aNumber: Content = (opened) => isDigit(opened[0]);
const anErrorOrNull: Content = (opened) => anObject(opened) || opened.equals(Buffer.from('null'));
const nothing: Content = () => false;
/** Objects or none: an array of numbers, token ids for instance, cannot stand in for the choices. */
const choices: Content = (opened) => /^\[\s*[{\]]/.test(opened.toString('latin1', 0, HEAD_BYTES));

const STOP_REASON = '"stop_reason"';

/** The object's own `type`, and whether it has a stop_reason; undefined where it is no object. */
function parsed(opened: Buffer): { readonly type: unknown; readonly stops: boolean } | undefined {
  if (!anObject(opened)) return undefined;
  try {
    const value = JSON.parse(opened.toString('latin1')) as Record<string, unknown>;
    return { type: value['type'], stops: Object.hasOwn(value, 'stop_reason') };
  } catch {
    return undefined;
  }
}

const isDelta = (type: unknown): boolean => typeof type === 'string' && type.endsWith('_delta');

/** The delta of a block. It comes with every token, so it is parsed only where it is unlike the usual ones. */
const blockDelta: Content = (opened) => {
  const usual = /^\{\s*"type"\s*:\s*"[a-z_]+_delta"/.test(opened.toString('latin1', 0, HEAD_BYTES));
  if (usual && !opened.includes(STOP_REASON, 0, 'latin1')) return true;
  const object = parsed(opened);
  return object !== undefined && isDelta(object.type) && !object.stops;
};
/** A block that begins: what a delta passed off as one would be lost with. */
const block: Content = (opened) => {
  const object = parsed(opened);
  return typeof object?.type === 'string' && !isDelta(object.type);
};
/** The delta of the message has the reason why it stopped, and no type: deltas of blocks and messages have one. */
const messageDelta: Content = (opened) => {
  const object = parsed(opened);
  return object?.stops === true && typeof object.type !== 'string';
};

const ERROR: EventShape = { holds: { error: anObject }, others: true };
/** A chunk of chat, completions or transcriptions. */
const CHUNK: EventShape = { holds: { choices }, judged: { error: anErrorOrNull }, others: true };
/** The events of the messages API by their type. Where others may stand, what counts is told by its content. */
const MESSAGE_EVENTS: ReadonlyMap<string, EventShape> = new Map<string, EventShape>([
  ['message_start', { holds: { message: anObject }, others: false }],
  ['content_block_start', { holds: { index: aNumber, content_block: block }, others: false }],
  ['content_block_delta', { holds: { index: aNumber, delta: blockDelta }, others: true }],
  ['content_block_stop', { holds: { index: aNumber }, others: false }],
  ['message_delta', { holds: { delta: messageDelta }, judged: { index: nothing }, others: true }],
  ['error', ERROR],
  ['ping', { holds: {}, others: false }],
  ['message_stop', { holds: {}, others: false }],
]);

/** A part of the layout, and what its text must be. */
export interface RequiredPart {
  readonly part: number;
  readonly content: Content;
}

/**
 * What is asked of the parts of events of that layout, or undefined where the API has no such event: one without
 * content that is no ping and no end, or with members that are not its own.
 */
export function requiredParts(layout: EventLayout, api: TerminalEvent): RequiredPart[] | undefined {
  const encrypted = layout.order.map((part) => layout.names[part]!);
  const chunk = encrypted.includes('choices') ? CHUNK : ERROR;
  const shape = api === 'done' ? chunk : MESSAGE_EVENTS.get(layout.type ?? '');
  if (shape === undefined) return undefined;
  const { holds, judged = {}, others } = shape;
  if (Object.keys(holds).some((name) => !encrypted.includes(name))) return undefined;
  if (!others && encrypted.some((name) => !Object.hasOwn(holds, name))) return undefined;
  return Object.entries({ ...judged, ...holds })
    .filter(([name]) => encrypted.includes(name))
    .map(([name, content]) => ({ part: layout.names.indexOf(name), content }));
}

/** Whether the opened parts, by their number, are what is asked of them. */
export function hasShape(required: readonly RequiredPart[], opened: readonly Buffer[]): boolean {
  for (let k = 0; k < required.length; k++) {
    const { part, content } = required[k]!;
    if (!content(opened[part]!)) return false;
  }
  return true;
}
