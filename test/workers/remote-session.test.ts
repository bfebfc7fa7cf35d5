import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { systemClock } from '../../lib/session/clock.ts';
import type { EpochWire, Standing, ToPrimary } from '../../lib/workers/messages.ts';
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
const standing = (told: EpochWire | undefined, extra: Partial<Standing> = {}): Standing => ({
  epoch: told,
  state: told === undefined ? 'starting' : 'ready',
  lastError: undefined,
  configuredKey: undefined,
  ...extra,
});
const isZero = ({ keyBytes }: EpochWire): boolean => keyBytes.every((byte) => byte === 0);

describe("a worker's half of the session", () => {
  it('uses an unexpired epoch without asking', async () => {
    const asked: ToPrimary[] = [];
    const session = createRemoteSession(standing(epoch('a', 60_000)), (message) => asked.push(message));
    assert.equal((await session.acquire({ timeoutMs: 1 })).secretId, 'a');
    assert.deepEqual(asked, []);
  });

  it('asks the primary, with the key of the client, where it has none', async () => {
    const asked: ToPrimary[] = [];
    const session = createRemoteSession(standing(undefined), (message) => asked.push(message));
    const pending = session.acquire({ offeredKey: 'k', timeoutMs: 9 });
    assert.deepEqual(asked, [{ type: 'acquire', id: 1, offeredKey: 'k', timeoutMs: 9 }]);
    session.receive({ type: 'answer', id: 1, epoch: epoch('b', 60_000) });
    assert.equal((await pending).secretId, 'b');
  });

  it('rejects with the error that the primary names', async () => {
    const session = createRemoteSession(standing(undefined), () => {});
    const pending = session.acquire({ timeoutMs: 9 });
    session.receive({ type: 'answer', id: 1, error: { code: 'api_key_rejected', message: 'no' } });
    await assert.rejects(pending, { code: 'api_key_rejected' });
  });

  it('is not ready any more when its epoch has expired, whatever it was told last', () => {
    const session = createRemoteSession(standing(epoch('a', -1)), () => {});
    assert.equal(session.current(), undefined);
    assert.equal(session.state(), 'starting');
    const lastError = { code: 'upstream_unreachable', message: 'gone' } as const;
    session.receive({ type: 'standing', standing: standing(epoch('a', -1), { lastError }) });
    assert.equal(session.state(), 'failing');
  });

  it('keeps no key bytes: not of the epoch in use, of one told again, or of an answer nobody waits for', () => {
    const first = epoch('a', 60_000);
    const session = createRemoteSession(standing(first), () => {});
    const again = epoch('a', 60_000);
    session.receive({ type: 'standing', standing: standing(again) });
    const late = epoch('c', 60_000);
    session.receive({ type: 'answer', id: 99, epoch: late });
    assert.deepEqual([first, again, late].map(isZero), [true, true, true]);
  });

  it('ends what waits when it is closed', async () => {
    const session = createRemoteSession(standing(undefined), () => {});
    const pending = session.acquire({ timeoutMs: 9 });
    session.close();
    await assert.rejects(pending, { code: 'shutting_down' });
  });
});
