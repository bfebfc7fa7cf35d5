import { PrivatemodeError } from '../errors.ts';
import { type ErrorWire, errorFromWire } from './messages.ts';

/** Questions to another process, by number, each until its answer is here. */
export class Questions<Answer> {
  readonly #waiting = new Map<number, PromiseWithResolvers<Answer>>();
  #nextId = 1;

  /**
   * Has a question sent under its number, and waits as long as the other process takes. Rejects with the error of the answer, and with the
   * reason of `signal`, unless the answer is here; `left` is called before that.
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

  /** Takes in an answer; perhaps nobody waits for it any more. */
  receive(id: number, told: { readonly error: ErrorWire } | { readonly answer: Answer }): void {
    const waiting = this.#waiting.get(id);
    this.#waiting.delete(id);
    if ('error' in told) waiting?.reject(errorFromWire(told.error));
    else waiting?.resolve(told.answer);
  }

  /** Ends those that wait still, with shutting_down. */
  close(): void {
    const ended = new PrivatemodeError('shutting_down', 'the proxy is shutting down');
    for (const { reject } of this.#waiting.values()) reject(ended);
    this.#waiting.clear();
  }
}
