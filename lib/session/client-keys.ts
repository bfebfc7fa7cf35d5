import { hmacSha256, secretKey } from '#crypto/aead';
import { randomBytes } from '../crypto/random.ts';
import { PrivatemodeError } from '../errors.ts';
import type { Clock } from './clock.ts';
import type { Epoch } from './epoch.ts';

export interface ClientKeysDeps {
  /** Attests with a key that a client brought. */
  readonly attest: (apiKey: string) => Promise<Epoch>;
  readonly clock: Pick<Clock, 'now'>;
}

/** ms a rejected key is remembered: short, because a key may be activated any moment. */
const REMEMBER_REJECTION = 30_000;
const MAX_REMEMBERED = 1024;
/** Different keys at the same time; more of them wait for their turn. */
const MAX_RUNNING = 8;
const MAX_WAITING = 64;

/**
 * Attests with the keys of clients where none is configured (docs/protocol/inference.md 9). Requests that bring the same
 * key at the same time share one attempt, and a rejected key is not tried again for a while, so that a misconfigured client
 * costs the service nothing. Keys are remembered as a keyed hash only. Rejects with api_key_rejected, not_ready when too
 * many keys are being tried, and what the attestation threw: each to the clients of this key alone.
 */
export function createClientKeys({ attest, clock }: ClientKeysDeps): (apiKey: string) => Promise<Epoch> {
  const hashKey = secretKey(randomBytes(32));
  const running = new Map<string, Promise<Epoch>>();
  const rejectedUntil = new Map<string, number>();
  const turns: (() => void)[] = [];
  let busy = 0;

  function wasRejected(id: string): boolean {
    const left = (rejectedUntil.get(id) ?? 0) - clock.now();
    if (left > 0 && left <= REMEMBER_REJECTION) return true;
    rejectedUntil.delete(id); // it is over, or the clock was turned back
    return false;
  }

  function rememberRejection(id: string): void {
    const [oldest] = rejectedUntil.keys();
    if (rejectedUntil.size >= MAX_REMEMBERED && oldest !== undefined) rejectedUntil.delete(oldest);
    rejectedUntil.set(id, clock.now() + REMEMBER_REJECTION);
  }

  async function takeTurn(): Promise<void> {
    if (busy < MAX_RUNNING) {
      busy++;
      return;
    }
    if (turns.length >= MAX_WAITING) {
      throw new PrivatemodeError('not_ready', 'too many API keys are being tried');
    }
    await new Promise<void>((resolve) => turns.push(resolve));
  }

  function passTurn(): void {
    const next = turns.shift();
    if (next === undefined) busy--;
    else next();
  }

  async function tryKey(id: string, apiKey: string): Promise<Epoch> {
    if (wasRejected(id)) {
      throw new PrivatemodeError('api_key_rejected', 'the service rejected this API key a moment ago');
    }
    try {
      await takeTurn();
      return await attest(apiKey).finally(passTurn);
    } catch (error) {
      if (error instanceof PrivatemodeError && error.code === 'api_key_rejected') rememberRejection(id);
      throw error;
    }
  }

  return (apiKey) => {
    const id = hmacSha256(hashKey, apiKey);
    const known = running.get(id);
    if (known !== undefined) return known;
    const attempt = tryKey(id, apiKey).finally(() => running.delete(id));
    running.set(id, attempt);
    return attempt;
  };
}
