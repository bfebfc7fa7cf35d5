/** Taking a body in, by itself: what is left of it on the request when it is complete. */

import assert from 'node:assert/strict';
import { EventEmitter, getEventListeners, once } from 'node:events';
import { Readable } from 'node:stream';
import { describe, it } from 'node:test';
import { ENDPOINTS } from '../../lib/api/endpoints.ts';
import { type Clock, systemClock } from '../../lib/clock.ts';
import { PrivatemodeError } from '../../lib/errors.ts';
import { Accounts } from '../../lib/gateway/accounts.ts';
import { ClientGone } from '../../lib/gateway/life.ts';
import { createUploadBudget } from '../../lib/gateway/memory-budget.ts';
import { type ReceivedBody, receive as receiveBody, takeIn } from '../../lib/gateway/receive-body.ts';
import type { Exchange, ForwardedExchange } from '../../lib/gateway/request-state.ts';
import { createCounters } from '../../lib/observe/counters.ts';
import type { BodyReader, ParsedBody } from '../../lib/pipeline/request-body.ts';
import { recordingLogger } from '../support/doors/logger.ts';
import { createFakeClock } from '../support/remote/fake-clock.ts';

const SETTINGS = { maxBodyBytes: 100_000, minUploadRate: 0 };
const newAccounts = (receipt?: ConstructorParameters<typeof Accounts>[1]): Accounts =>
  new Accounts({ log: recordingLogger().log, counters: createCounters() }, receipt);
const refuse = (): never => {
  throw new PrivatemodeError('invalid_json', 'no');
};
const PARSED = { model: 'm' } as ParsedBody;

const receive = (
  req: Readable,
  signal = new AbortController().signal,
  read: BodyReader = () => PARSED,
  accounts = newAccounts(),
  { clock = systemClock, minUploadRate = 0 }: { clock?: Clock; minUploadRate?: number } = {},
): { readonly body: Promise<ReceivedBody>; readonly fed: () => string } => {
  let fed = '';
  const stage: BodyReader = (bytes, on) => {
    fed = bytes.toString();
    return read(bytes, on);
  };
  const exchange = {
    deps: {
      clock,
      settings: { ...SETTINGS, minUploadRate },
      memory: { uploads: createUploadBudget(1_000_000, { counters: createCounters(), clock: systemClock }) },
    },
    req: Object.assign(req, { headers: {} }),
    res: new EventEmitter(),
    accounts,
    life: { signal },
  };
  return { body: receiveBody(exchange as unknown as Exchange, stage), fed: () => fed };
};

/** Takes in a body of which so many bytes come in each second; resolves with the code of its refusal. */
async function uploaded(bytesInEachSecond: readonly number[], minUploadRate: number): Promise<string> {
  const clock = createFakeClock();
  const req = new Readable({ read() {} });
  const { body } = receive(req, undefined, undefined, newAccounts(), { clock, minUploadRate });
  const outcome = body.then(
    () => 'taken in',
    (thrown: PrivatemodeError) => thrown.code,
  );
  for (const bytes of bytesInEachSecond) {
    if (bytes > 0) req.push(Buffer.alloc(bytes));
    await clock.advance(1_000);
  }
  req.push(null);
  return outcome;
}

describe('the minimum upload rate, measured over ten seconds', () => {
  it('refuses a body below it', async () => {
    assert.equal(await uploaded(Array<number>(11).fill(900), 1_000), 'upload_too_slow');
  });

  it('refuses a body that begins fast and then falls below it, although its average suffices', async () => {
    assert.equal(await uploaded([50_000, ...Array<number>(20).fill(20)], 1_000), 'upload_too_slow');
  });

  it('accepts a body above it, however long it takes', async () => {
    assert.equal(await uploaded(Array<number>(60).fill(1_100), 1_000), 'taken in');
  });

  it('does not judge the first ten seconds, and with a rate of 0 nothing', async () => {
    assert.equal(await uploaded(Array<number>(9).fill(0), 1_000), 'taken in');
    assert.equal(await uploaded(Array<number>(100).fill(0), 0), 'taken in');
  });
});

describe('a body that is taken in', () => {
  it('leaves no listeners on the request once it is complete', async () => {
    const req = Readable.from([Buffer.from('a prompt')], { objectMode: false });
    const { body, fed } = receive(req);
    assert.equal((await body).model, PARSED.model);
    assert.equal(fed(), 'a prompt');
    for (const event of ['data', 'error', 'close']) assert.equal(req.listenerCount(event), 0, event);
  });

  it('has its chunks freed once they are copied, except for one that shares memory with others', async () => {
    const shared = Buffer.alloc(50_000);
    const chunks = [Buffer.alloc(5_000), shared.subarray(0, 6_000), Buffer.from('short')];
    await receive(Readable.from(chunks, { objectMode: false })).body;
    assert.deepEqual(
      chunks.map(({ length }) => length),
      [0, 6_000, 5],
    );
    assert.equal(shared.length, 50_000);
  });

  it('is refused by what reads it', async () => {
    for (const read of [refuse, () => Promise.reject(new PrivatemodeError('invalid_json', 'no'))]) {
      const { body } = receive(Readable.from([Buffer.alloc(9)]), undefined, read);
      await assert.rejects(body, { code: 'invalid_json' });
    }
  });

  it('is given up if the signal aborts before or during its arrival, and leaves no listener on the signal', async () => {
    const reason = new Error('shut down');
    await assert.rejects(receive(new Readable({ read() {} }), AbortSignal.abort(reason)).body, reason);
    const control = new AbortController();
    const req = new Readable({ read() {} });
    const { body } = receive(req, control.signal);
    req.push('half a pro');
    control.abort(reason);
    await assert.rejects(body, reason);
    assert.equal(getEventListeners(control.signal, 'abort').length, 0);
  });

  it('is given up if the client has left before its reading begins', { timeout: 600_000 }, async () => {
    const req = new Readable({ read() {} });
    req.push('half a pro');
    const closed = once(req, 'close');
    req.destroy();
    await closed;
    await assert.rejects(receive(req).body, ClientGone);
  });

  it('is given up if the client leaves before its end', async () => {
    const req = new Readable({ read() {} });
    const { body } = receive(req);
    req.push('half a pro');
    req.destroy();
    await assert.rejects(body, ClientGone);
  });
});

describe('a body that is translated', () => {
  /**
   * Takes in a body whose translation has three pieces, each of which takes a while; `between` runs after the
   * first.
   */
  async function takeTranslated(between: (control: AbortController) => void): Promise<string[]> {
    const control = new AbortController();
    const order: string[] = [];
    const translator = {
      request:
        () =>
        async (_bytes: Buffer, { pause }: { pause: () => Promise<void> | undefined }) => {
          for (const piece of ['first', 'second', 'third']) {
            order.push(piece);
            for (const end = performance.now() + 10; performance.now() < end; );
            if (order.length === 1)
              setImmediate(() => {
                order.push('another');
                between(control);
              });
            await pause();
          }
          return {};
        },
      leftOut: () => undefined,
      held: () => 0,
    };
    const exchange = {
      deps: {
        clock: systemClock,
        settings: SETTINGS,
        memory: {
          uploads: createUploadBudget(1_000_000, { counters: createCounters(), clock: systemClock }),
        },
        salt: { shared: undefined },
        createTranslator: () => translator,
      },
      req: Object.assign(Readable.from([Buffer.from('{}')], { objectMode: false }), { headers: {} }),
      res: new EventEmitter(),
      caller: {},
      accounts: newAccounts(),
      match: { endpoint: ENDPOINTS.find(({ id }) => id === 'responses') },
      life: { signal: control.signal },
    };
    await takeIn(exchange as unknown as ForwardedExchange);
    return order;
  }

  it('lets other work run between its pieces', async () => {
    const order = await takeTranslated(() => {});
    assert.deepEqual(order, ['first', 'another', 'second', 'third']);
  });

  it('is given up between its pieces if the signal aborts', async () => {
    const reason = new Error('shut down');
    await assert.rejects(
      takeTranslated((control) => control.abort(reason)),
      reason,
    );
  });
});
