/**
 * When a stream may end well (design decision 2). The terminal events are plain and could be forged or
 * brought forward, so they count only after an authenticated finish: a `finish_reason` or `stop_reason` that is
 * not null, in opened data.
 */

export type TerminalEvent = 'done' | 'message_stop';

interface FinishRule {
  /** The encrypted member that carries the finish. */
  readonly member: string;
  /** The key in it, as the model server writes it. */
  readonly key: string;
  /** The values of that key in the parsed member. */
  readonly reasons: (value: unknown) => readonly unknown[];
}

const property = (value: unknown, key: string): unknown =>
  typeof value === 'object' && value !== null ? (value as Record<string, unknown>)[key] : undefined;

/** Chat, completions and transcription chunks all have OpenAI's choices; messages have a `message_delta`. */
export const FINISH_RULES: Readonly<Record<TerminalEvent, FinishRule>> = {
  done: {
    member: 'choices',
    key: '"finish_reason":',
    reasons: (value) =>
      Array.isArray(value) ? value.map((choice) => property(choice, 'finish_reason')) : [],
  },
  message_stop: {
    member: 'delta',
    key: '"stop_reason":',
    reasons: (value) => [property(value, 'stop_reason')],
  },
};

const EMPTY_CHOICES = '[]';

/**
 * Whether the stream is finished after an event whose finish-bearing member opened to `text` (JSON, latin1),
 * given whether it was before. Content without a finish takes it back, so that with several choices, or
 * several stretches of audio, it is the last content of all that has to bear it. The usage chunk, with
 * empty choices, changes nothing.
 *
 * The key cannot occur inside a JSON string unescaped, so its absence, or a null after its only occurrence,
 * needs no parsing; whatever else is parsed, once or twice per stream.
 */
export function finishedAfter(rule: FinishRule, text: string, before: boolean): boolean {
  if (text === EMPTY_CHOICES) return before;
  const at = text.indexOf(rule.key);
  if (at < 0) return false;
  const value = at + rule.key.length;
  if (text.startsWith('null', value) && !text.includes(rule.key, value)) return false;
  try {
    const reasons = rule.reasons(JSON.parse(text));
    return reasons.some((reason) => reason !== undefined && reason !== null);
  } catch {
    return false;
  }
}
