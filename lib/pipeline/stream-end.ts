/**
 * When a stream may end well (design decision 2). The terminal events are plain and could be forged or
 * brought forward, so they count only after an authenticated finish: a `finish_reason` or `stop_reason` that is
 * not null, in opened data, of every choice that had content.
 */
import { PrivatemodeError } from '../errors.ts';

export type TerminalEvent = 'done' | 'message_stop';

/** The encrypted member that carries the finish: of chat, completions and transcriptions, and of messages. */
export const FINISH_MEMBER: Readonly<Record<TerminalEvent, string>> = {
  done: 'choices',
  message_stop: 'delta',
};

/** Follows a stream to its finish. */
export interface StreamEnd {
  /** Takes the next opened text (JSON, latin1) of that member. Throws response_malformed. */
  take(text: string): void;
  /** Whether a terminal event would be the truth now. */
  readonly reached: boolean;
}

const property = (value: unknown, key: string): unknown =>
  typeof value === 'object' && value !== null ? (value as Record<string, unknown>)[key] : undefined;

const isReason = (value: unknown): boolean => value !== undefined && value !== null;

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (thrown) {
    throw new PrivatemodeError('response_malformed', 'an event is malformed', { cause: thrown });
  }
}

const INDEX = '"index":';
const FIRST_INDEX = `[{${INDEX}`;
const FINISH = '"finish_reason":';
const EMPTY_CHOICES = '[]';

/**
 * The index of the only choice of that text where it is written as the model server writes it and has no finish;
 * -1 where that takes parsing. The keys cannot occur inside a JSON string unescaped.
 */
function onlyUnfinished(text: string): number {
  if (!text.startsWith(FIRST_INDEX)) return -1;
  let at = FIRST_INDEX.length;
  let index = 0;
  for (let digit = text.charCodeAt(at) - 48; digit >= 0 && digit <= 9; digit = text.charCodeAt(++at) - 48) {
    index = index * 10 + digit;
  }
  if (at === FIRST_INDEX.length || text.charAt(at) !== ',' || text.includes(INDEX, at)) return -1;
  const finish = text.indexOf(FINISH, at);
  if (finish < 0) return index;
  const value = finish + FINISH.length;
  return text.startsWith('null', value) && !text.includes(FINISH, value) ? index : -1;
}

/**
 * Content of a choice opens it and a finish closes it; the end is reached where `wanted` different choices have
 * finished and none is open, so that no choice, and no stretch of audio, is cut off. The usage chunk, with
 * empty choices, changes nothing.
 */
function choicesEnd(wanted: number): StreamEnd {
  const open = new Set<number>();
  const finished = new Set<number>();
  const end = {
    reached: false,
    take(text: string): void {
      if (text === EMPTY_CHOICES) return;
      const only = onlyUnfinished(text);
      if (only >= 0) {
        open.add(only);
        end.reached = false;
        return;
      }
      const choices = parsed(text);
      for (const choice of Array.isArray(choices) ? choices : []) {
        const index = property(choice, 'index');
        const number = typeof index === 'number' ? index : 0; // transcriptions have no index
        if (isReason(property(choice, 'finish_reason'))) {
          open.delete(number);
          finished.add(number);
        } else open.add(number);
      }
      end.reached = open.size === 0 && finished.size >= wanted;
    },
  };
  return end;
}

/** A delta with a stop_reason is the end, unless another delta comes after it. */
function messageEnd(): StreamEnd {
  const end = {
    reached: false,
    take(text: string): void {
      end.reached = text.includes('"stop_reason":') && isReason(property(parsed(text), 'stop_reason'));
    },
  };
  return end;
}

/** `choices`: how many were asked for, at least 1. */
export const streamEnd = (terminal: TerminalEvent, choices: number): StreamEnd =>
  terminal === 'done' ? choicesEnd(choices) : messageEnd();
