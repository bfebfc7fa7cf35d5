/**
 * Numbers the questions that one process asks another, and hands each answer to the code that waits for it.
 */
import { PrivatemodeError } from '../errors.ts';
import { type ErrorWire, errorFromWire } from './messages.ts';

/** Questions to another process, by number, each kept until its answer is here. */
export class Questions<Answer> {
  readonly #waiting = new Map<number, PromiseWithResolvers<Answer>>();
  #nextId = 1;

  /**
   * Calls `send` with the number of the question, and waits for the answer as long as the other process
   * takes. Rejects with the error of the answer. If `signal` is aborted before the answer is here, calls
   * `left` and rejects with the signal's reason.
   */
  ask(
    send: (id: number) => void,
    signal?: AbortSignal,
    left: (id: number) => void = () => {},
  ): Promise<Answer> {
    const id = this.#nextId++;
    const answer = Promise.withResolvers<Answer>();
    const aborted = (): void => {
      if (!this.#waiting.delete(id)) return;
      left(id);
      answer.reject(signal?.reason);
    };
    signal?.addEventListener('abort', aborted, { once: true });
    this.#waiting.set(id, answer);
    send(id);
    return answer.promise.finally(() => signal?.removeEventListener('abort', aborted));
  }

  /** Takes in an answer. Perhaps nobody waits for it any more. */
  receive(id: number, result: { readonly error: ErrorWire } | { readonly answer: Answer }): void {
    const waiting = this.#waiting.get(id);
    this.#waiting.delete(id);
    if ('error' in result) waiting?.reject(errorFromWire(result.error));
    else waiting?.resolve(result.answer);
  }

  /** Rejects the questions that still wait, with shutting_down. */
  close(): void {
    const ended = new PrivatemodeError('shutting_down', 'the proxy is shutting down');
    for (const { reject } of this.#waiting.values()) reject(ended);
    this.#waiting.clear();
  }
}
