import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { systemClock } from '../../lib/clock.ts';
import type { EpochWire, News, ToPrimary } from '../../lib/workers/messages.ts';
import { createRemoteSession } from '../../lib/workers/remote-session.ts';

const epoch = (secretId: string, expiresIn: number): EpochWire => ({
  secretId,
  keyBytes: new Uint8Array(32).fill(7),
  manifestSha256: 'ab',
  verdictSha256: 'cd',
  attestedAt: Date.now(),
  renewAt: Date.now() + expiresIn,
  expiresAt: Date.now() + expiresIn,
  expiresMonotonic: systemClock.monotonic() + expiresIn,
});
const news = (told: EpochWire | undefined, facts: Partial<News['facts']> = {}): News => ({
  epoch: told,
  facts: {
    ...{ closed: false, key: 'configured', last: 'ok', confirmed: false, error: undefined },
    secret: told && { ...told, suspended: false },
    ...facts,
  },
  configuredKey: undefined,
});
const isZero = ({ keyBytes }: EpochWire): boolean => keyBytes.every((byte) => byte === 0);

describe("a worker's half of the session", () => {
  it('uses an unexpired epoch without asking the primary', async () => {
    const asked: ToPrimary[] = [];
    const session = createRemoteSession(
      news(epoch('a', 60_000)),
      (message) => asked.push(message),
      systemClock,
    );
    assert.equal((await session.acquire({ timeoutMs: 1 })).secretId, 'a');
    assert.deepEqual(asked, []);
  });

  it('asks the primary, with the API key of the client, when it has no epoch', async () => {
    const asked: ToPrimary[] = [];
    const session = createRemoteSession(news(undefined), (message) => asked.push(message), systemClock);
    const pending = session.acquire({ offeredKey: 'k', timeoutMs: 9 });
    assert.deepEqual(asked, [{ type: 'acquire', id: 1, offeredKey: 'k', timeoutMs: 9 }]);
    session.receive({ type: 'answer', id: 1, epoch: epoch('b', 60_000) });
    assert.equal((await pending).secretId, 'b');
  });

  it('passes the key of a client on if its epoch is due and the primary has no key to renew with', async () => {
    const asked: ToPrimary[] = [];
    const due = { ...epoch('a', 60_000), renewAt: Date.now() - 1 };
    const session = createRemoteSession(
      news(due, { key: 'awaited' }),
      (message) => asked.push(message),
      systemClock,
    );
    assert.equal((await session.acquire({ offeredKey: 'k', timeoutMs: 9 })).secretId, 'a');
    assert.deepEqual(asked, [{ type: 'acquire', id: 1, offeredKey: 'k', timeoutMs: 9 }]);
    session.receive({ type: 'answer', id: 1, error: { code: 'api_key_rejected', message: 'no' } });
    await session.acquire({ timeoutMs: 9 });
    session.receive({ type: 'news', news: news({ ...due, secretId: 'b' }, { key: 'kept' }) });
    await session.acquire({ offeredKey: 'k', timeoutMs: 9 });
    assert.equal(asked.length, 1, 'without a key, or where the primary renews by itself');
  });

  it('rejects with the error that the primary names', async () => {
    const session = createRemoteSession(news(undefined), () => {}, systemClock);
    const pending = session.acquire({ timeoutMs: 9 });
    session.receive({ type: 'answer', id: 1, error: { code: 'api_key_rejected', message: 'no' } });
    await assert.rejects(pending, { code: 'api_key_rejected' });
  });

  it('is no longer verified when its epoch has expired, whatever the primary said last', () => {
    const session = createRemoteSession(news(epoch('a', -1)), () => {}, systemClock);
    assert.equal(session.current(), undefined);
    assert.equal(session.standing().state, 'starting');
    const error = { code: 'upstream_unreachable', message: 'gone' } as const;
    session.receive({ type: 'news', news: news(epoch('a', -1), { last: 'silent', error }) });
    assert.equal(session.standing().state, 'unreachable');
  });

  it('overwrites the key bytes of the epoch in use, of an epoch sent again, and of an answer to no request', () => {
    const first = epoch('a', 60_000);
    const session = createRemoteSession(news(first), () => {}, systemClock);
    const again = epoch('a', 60_000);
    session.receive({ type: 'news', news: news(again) });
    const late = epoch('c', 60_000);
    session.receive({ type: 'answer', id: 99, epoch: late });
    assert.deepEqual([first, again, late].map(isZero), [true, true, true]);
  });

  it('rejects waiting requests with shutting_down when it is closed', async () => {
    const session = createRemoteSession(news(undefined), () => {}, systemClock);
    const pending = session.acquire({ timeoutMs: 9 });
    session.close();
    await assert.rejects(pending, { code: 'shutting_down' });
  });
});
