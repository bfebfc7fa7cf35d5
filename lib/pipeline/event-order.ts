/**
 * The order of a stream's events. Those that end it (`[DONE]`, `message_stop`) are plain, and a gateway could
 * forge them: they count only after authenticated content has said that the response is complete.
 */
import { isObject, type Members, notAuthentic } from './decrypter.ts';
import type { ResponseGrammar } from './response-grammar.ts';

/**
 * Takes the next event: its type and, if it has them, the parsed values of its content (choices or delta) and
 * of `index`. Returns whether the event that ends the stream would be true now. Throws response_not_authentic
 * if the event cannot come here.
 */
export type EventOrder = (type: string, content: unknown, index: unknown) => boolean;

/** The order of one stream. `choices`: how many the request asked for, at least 1. */
export const orderOf = ({ order }: Pick<ResponseGrammar, 'order'>, choices: number): EventOrder =>
  order === 'blocks' ? blocksOrder() : chunksOrder(order === 'audio', choices);

const isSet = (value: unknown): boolean => value !== undefined && value !== null;

/** Whether a choice only names its role: then it has no tokens yet. */
function isRoleOnly({ delta }: Members): boolean {
  if (!isObject(delta)) return false;
  const { role, ...rest } = delta;
  return typeof role === 'string' && Object.values(rest).every((value) => value === '' || !isSet(value));
}

/**
 * Chat and completions: choices 0 to `wanted` - 1 finish once each, and nothing follows the finish of a
 * choice. The closing chunk without choices comes last. After it, a choice that is the only one and got no
 * token needs no finish (vLLM 0.20 sends none). Of several all must finish: that chunk could be of a run that
 * was asked for fewer. Of transcriptions each stretch of audio finishes, so the closing chunk alone counts.
 */
function chunksOrder(isAudio: boolean, wanted: number): EventOrder {
  const states = new Map<number, 'role' | 'content' | 'finished'>();
  let finished = 0;
  let began = false;
  let closed = false;
  return (type, content) => {
    if (type !== 'chunk') return false;
    if (closed) throw notAuthentic('the stream goes on after its last chunk');
    const choices = content as readonly Members[];
    for (const choice of isAudio ? [] : choices) {
      const index = choice['index'] as number;
      if (!(Number.isInteger(index) && index >= 0 && index < wanted)) {
        throw notAuthentic('a choice of the stream was not asked for');
      }
      const state = states.get(index);
      if (state === 'finished') throw notAuthentic('a choice of the stream goes on after its end');
      const isFinish = isSet(choice['finish_reason']);
      if (isFinish) finished += 1;
      const begun = state === undefined && isRoleOnly(choice) ? 'role' : 'content';
      states.set(index, isFinish ? 'finished' : begun);
    }
    closed = began && choices.length === 0;
    began ||= choices.length > 0;
    const isOver = finished === wanted || (closed && wanted === 1 && states.get(0) === 'role');
    return isAudio ? closed : isOver;
  };
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
 * Messages: the start; blocks 0, 1, ..., each begun, continued by deltas of its index, and stopped; deltas of
 * the message, the last with a stop_reason; the end. `ping` and `error` may come at any time.
 */
function blocksOrder(): EventOrder {
  let state = 'new';
  let block = 0; // the number of the open block, or of the next one
  return (type, content, index) => {
    const [after, next] = BLOCK_EVENTS.get(type) ?? [[state], state];
    const allowed = after.includes(state) && (!type.startsWith('content_block_') || index === block);
    if (!allowed) throw notAuthentic('an event of the message comes where it cannot');
    const hasStopped = type === 'message_delta' && isSet((content as Members)['stop_reason']);
    state = hasStopped ? 'stopped' : next;
    if (type === 'content_block_stop') block += 1;
    return state === 'stopped';
  };
}
