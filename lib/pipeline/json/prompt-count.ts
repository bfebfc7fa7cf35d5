/** Counts the prompts of a completions request, each of which gets `n` choices, without parsing them. */
import type { JsonVisitor } from './json-index.ts';

export interface PromptCount extends JsonVisitor {
  /**
   * A string is one prompt, an array of token ids too; another array has as many prompts as elements. Final after the last
   * byte. Arrays that mix kinds, and values of other kinds, count as something: the service refuses them.
   */
  count(): number;
}

/** Counts the prompts in the value of `member` while the index scans it. */
export function createPromptCount(member: string): PromptCount {
  let depth = 0;
  let list = false; // the value is an array
  let prompts = 0;

  const began = (): void => {
    if (depth === 0 || (depth === 1 && list)) prompts += 1;
  };

  return {
    member,
    opened(isObject) {
      if (depth === 0) list = !isObject;
      else began();
      depth += 1;
    },
    closed(empty) {
      depth -= 1;
      // Numbers are not heard: an array in which nothing was, but something is, holds token ids.
      if (depth === 0 && list && prompts === 0 && !empty) prompts = 1;
    },
    stringBegan() {
      began();
      return false;
    },
    stringBytes: () => false,
    stringEnded() {},
    count: () => prompts,
  };
}
