/**
 * Lets the requests of workers pass the gate of the primary: a worker's half of it, and the primary's half
 * for one worker.
 */

import type { Permit } from '../limits/limits.ts';
import type { Entering, RequestGate } from '../limits/request-gate.ts';
import { type AtGate, type Entered, errorToWire } from './messages.ts';
import { Questions } from './questions.ts';

/**
 * A gate that asks the primary over `send`. `receive` takes in the primary's answers. `close` ends the
 * requests that still wait.
 */
export function createRemoteGate(send: (message: AtGate) => void) {
  const questions = new Questions<void>();

  async function enter({ client, signal }: Entering): Promise<Permit> {
    signal.throwIfAborted();
    let id = 0;
    const ask = (given: number): void => {
      id = given;
      send({ type: 'enter', id, client: client && { name: client.name, limits: client.limits } });
    };
    await questions.ask(ask, signal, () => send({ type: 'leave-queue', id }));
    let isOver = false;
    return {
      release(tokens) {
        if (!isOver) send({ type: 'release', id, tokens });
        isOver = true;
      },
    };
  }

  return {
    enter,
    receive: ({ id, error }: Entered): void =>
      questions.receive(id, error === undefined ? { answer: undefined } : { error }),
    close: (): void => questions.close(),
  };
}

/**
 * The requests of one worker that wait at `gate` or run. `close`, at the end of the worker, releases all
 * their permits.
 */
export function createGateKeeper(gate: RequestGate, send: (message: Entered) => void) {
  const requests = new Map<number, { readonly control: AbortController; permit: Permit | undefined }>();
  let closed = false;

  async function enter(id: number, client: Entering['client']): Promise<void> {
    const control = new AbortController();
    const request = { control, permit: undefined as Permit | undefined };
    requests.set(id, request);
    try {
      const permit = await gate.enter({ client, signal: control.signal });
      if (control.signal.aborted) permit.release(0);
      else {
        request.permit = permit;
        send({ type: 'entered', id });
      }
    } catch (thrown) {
      if (!requests.delete(id)) return; // the request left the queue
      send({ type: 'entered', id, error: errorToWire(thrown) });
    }
  }

  /** Ends a request, whether it runs, waits, or is over already. */
  function end(id: number, tokens: number): void {
    const request = requests.get(id);
    requests.delete(id);
    request?.permit?.release(tokens);
    request?.control.abort();
  }

  return {
    receive(message: AtGate): void {
      if (closed) return;
      if (message.type === 'enter') void enter(message.id, message.client);
      else end(message.id, message.type === 'release' ? message.tokens : 0);
    },
    close(): void {
      closed = true;
      for (const id of [...requests.keys()]) end(id, 0);
    },
  };
}
