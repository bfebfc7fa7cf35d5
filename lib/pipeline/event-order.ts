/** Checks the order of a stream's events, and tells when the response is complete. */
import { isObject, type Members, notAuthentic } from './decrypter.ts';

/**
 * Takes the next event by its type, its parsed content (choices or delta) and its `index`. An event may lack
 * content and `index`. Returns whether the response is complete. In an incomplete response `[DONE]` and
 * `message_stop` do not count: anybody could forge these plain texts. Throws response_not_authentic if the
 * event cannot come now.
 */
export type EventOrder = (type: string, content: unknown, index: unknown) => boolean;

const isSet = (value: unknown): boolean => value !== undefined && value !== null;

/** Whether a choice has only a role. Such a choice has no tokens yet. */
function isRoleOnly({ delta }: Members): boolean {
  if (!isObject(delta)) return false;
  const { role, ...rest } = delta;
  return typeof role === 'string' && Object.values(rest).every((value) => value === '' || !isSet(value));
}

/**
 * The order of events in chats and completions. Choices 0 to `wanted` - 1 finish once each, and nothing
 * follows the finish of a choice. The closing chunk, which has no choices, comes last. After the closing
 * chunk, a single choice without tokens needs no finish, as vLLM 0.20 sends none. Several choices must all
 * finish, because the closing chunk could come from a run that was asked for fewer choices. In a
 * transcription each stretch of audio has a finish, so only the closing chunk counts.
 */
export function chunksOrder(wanted: number, isAudio = false): EventOrder {
  const finished = new Set<number>();
  let began = false;
  let isEmpty = false; // whether the only choice has no token
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
      if (finished.has(index)) throw notAuthentic('a choice of the stream goes on after its end');
      if (isSet(choice['finish_reason'])) finished.add(index);
      isEmpty = wanted === 1 && !began && isRoleOnly(choice);
      began = true;
    }
    closed = began && choices.length === 0;
    began ||= choices.length > 0;
    return isAudio ? closed : finished.size === wanted || (closed && isEmpty);
  };
}

/** For each event type of the Messages API: the states in which it may come, and the state after it. */
const BLOCK_EVENTS: ReadonlyMap<string, readonly [after: readonly string[], next: string]> = new Map([
  ['message_start', [['new'], 'between']],
  ['content_block_start', [['between'], 'block']],
  ['content_block_delta', [['block'], 'block']],
  ['content_block_stop', [['block'], 'between']],
  ['message_delta', [['between', 'closing'], 'closing']],
]);

/** In the Messages API blocks count from 0, a stop_reason ends them, and `ping` and `error` come anytime. */
export function blocksOrder(): EventOrder {
  let state = 'new';
  let block = 0; // the number of the open block; if none is open, of the next block
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
