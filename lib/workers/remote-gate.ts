/** The gate of the primary, for the requests of its workers: a worker's half, and the primary's half for one worker. */

import { PrivatemodeError } from '../errors.ts';
import type { Permit } from '../limits/limits.ts';
import type { Entering, RequestGate } from '../limits/request-gate.ts';
import { type AtGate, type Entered, errorFromWire, errorToWire } from './messages.ts';

/** A gate that asks the primary over `send`; `receive` takes in what it answers. `close` ends what still waits. */
export function createRemoteGate(send: (message: AtGate) => void) {
  const waiting = new Map<number, PromiseWithResolvers<void>>();
  let nextId = 1;

  async function enter({ client, signal }: Entering): Promise<Permit> {
    signal.throwIfAborted();
    const id = nextId++;
    const entered = Promise.withResolvers<void>();
    const left = (): void => {
      if (!waiting.delete(id)) return; // its permit is here
      send({ type: 'leave-queue', id });
      entered.reject(signal.reason);
    };
    signal.addEventListener('abort', left, { once: true });
    waiting.set(id, entered);
    const limited = client && { name: client.name, limits: client.limits };
    send({ type: 'enter', id, client: limited });
    await entered.promise.finally(() => signal.removeEventListener('abort', left));
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
    receive({ id, error }: Entered): void {
      const entered = waiting.get(id); // undefined: the request is over
      waiting.delete(id);
      if (error === undefined) entered?.resolve();
      else entered?.reject(errorFromWire(error));
    },
    close(): void {
      const ended = new PrivatemodeError('shutting_down', 'the proxy is shutting down');
      for (const { reject } of waiting.values()) reject(ended);
      waiting.clear();
    },
  };
}

/** The requests of one worker that wait at `gate` or run. `close`, at the end of the worker, gives back all that they hold. */
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
      if (!requests.delete(id)) return; // it left
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
