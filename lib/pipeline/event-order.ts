/**
 * Follows the order of a stream's events.
 *
 * The events that end a stream (`[DONE]`, `message_stop`) are plain: a gateway could forge them or bring them
 * forward. So they count only after authenticated content has said that the response is complete.
 */
import { notAuthentic } from './decrypter.ts';
import type { StreamGrammar } from './response-grammar.ts';

export interface EventOrder {
  /** Whether the event that ends the stream would be true now. */
  readonly complete: boolean;
  /**
   * Takes the next event: its type and, if it has them, the parsed values of the member that its row names as
   * `content`, and of `index`. Throws response_not_authentic if the event cannot come here.
   */
  take(type: string, content: unknown, index: unknown): void;
}

type Choice = Readonly<Record<string, unknown>>;

const isSet = (value: unknown): boolean => value !== undefined && value !== null;

/** Whether a choice only names its role: then it has no tokens yet. */
function isRoleOnly({ delta }: Choice): boolean {
  if (typeof delta !== 'object' || delta === null) return false;
  const { role, ...rest } = delta as Choice;
  return typeof role === 'string' && Object.values(rest).every((value) => value === '' || !isSet(value));
}

/**
 * Chat and completions: choices 0 to `wanted` - 1 finish once each, and nothing follows the finish of a
 * choice. The closing chunk without choices comes last. After it, a choice that is the only one and got no
 * token needs no finish (vLLM 0.20 sends none). Of several choices all must finish, since the closing chunk
 * could be that of a run that was asked for fewer.
 *
 * Transcriptions: each stretch of audio finishes, so only the closing chunk says that all have finished.
 */
function chunksOrder(isAudio: boolean, wanted: number): EventOrder {
  const states = new Map<number, 'role' | 'content' | 'finished'>();
  let finished = 0;
  let began = false;
  let closed = false;

  const takeChoice = (choice: Choice): void => {
    const index = choice['index'] as number;
    if (!(Number.isInteger(index) && index >= 0 && index < wanted)) {
      throw notAuthentic('a choice of the stream was not asked for');
    }
    const state = states.get(index);
    if (state === 'finished') throw notAuthentic('a choice of the stream goes on after its end');
    if (isSet(choice['finish_reason'])) {
      states.set(index, 'finished');
      finished += 1;
    } else if (state !== 'content') {
      states.set(index, state === undefined && isRoleOnly(choice) ? 'role' : 'content');
    }
  };

  const order = {
    complete: false,
    take(type: string, content: unknown): void {
      if (type !== 'chunk') return;
      if (closed) throw notAuthentic('the stream goes on after its last chunk');
      const choices = content as readonly Choice[];
      if (!isAudio) for (const choice of choices) takeChoice(choice);
      closed = began && choices.length === 0;
      began ||= choices.length > 0;
      const isOver = finished === wanted || (closed && wanted === 1 && states.get(0) === 'role');
      order.complete = isAudio ? closed : isOver;
    },
  };
  return order;
}

/** For each event of a message: the states after which it may come, and the state after it. */
const BLOCK_EVENTS: ReadonlyMap<string, readonly [after: readonly string[], next: string]> = new Map([
  ['message_start', [['new'], 'between']],
  ['content_block_start', [['between'], 'block']],
  ['content_block_delta', [['block'], 'block']],
  ['content_block_stop', [['block'], 'between']],
  ['message_delta', [['between', 'closing'], 'closing']],
]);

/**
 * Messages: first the start; then blocks 0, 1, ..., each begun, continued by deltas of its index, and
 * stopped; then the deltas of the message, the last of which has a stop_reason; then the end. `ping` and
 * `error` may come at any time.
 */
function blocksOrder(): EventOrder {
  let state = 'new';
  let block = 0; // the number of the open block, or of the next one
  const order = {
    complete: false,
    take(type: string, content: unknown, index: unknown): void {
      const row = BLOCK_EVENTS.get(type);
      if (row === undefined) return;
      const [after, next] = row;
      const ofBlock = type.startsWith('content_block_');
      const allowed = after.includes(state) && (!ofBlock || index === block);
      if (!allowed) throw notAuthentic('an event of the message comes where it cannot');
      state = next;
      if (type === 'content_block_stop') block += 1;
      if (type !== 'message_delta' || !isSet((content as Choice)['stop_reason'])) return;
      state = 'stopped';
      order.complete = true;
    },
  };
  return order;
}

/** The order of one stream. `choices`: how many the request asked for, at least 1. */
export const orderOf = ({ order }: StreamGrammar, choices: number): EventOrder =>
  order === 'blocks' ? blocksOrder() : chunksOrder(order === 'audio', choices);
