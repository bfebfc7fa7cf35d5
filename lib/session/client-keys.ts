/**
 * Attests with the API keys of clients where the proxy has none of its own, and limits how many keys are
 * tried and how often.
 */
import { SecretKey } from '#crypto';
import type { Clock } from '../clock.ts';
import { randomBytes } from '../crypto/random.ts';
import { PrivatemodeError } from '../errors.ts';
import { aboutPlaceholder } from './control-api.ts';
import type { Epoch } from './epoch.ts';

interface ClientKeysDeps {
  readonly attest: (apiKey: string) => Promise<Epoch>;
  readonly clock: Clock;
}

const MAX_REMEMBERED = 1024;
/** How many different keys attest at the same time, and how many more may wait for their turn. */
const MAX_RUNNING = 8;
const MAX_WAITING = 64;

/**
 * Attests with the keys of clients where none is configured (docs/protocol/inference.md 9). Requests that
 * bring the same key at the same time share one attestation. A rejected key is not tried again for a while,
 * so that a misconfigured client costs the service nothing. Keys are remembered only as keyed hashes. Rejects
 * with api_key_rejected, with not_ready when too many keys are being tried, and with what the attestation
 * threw; each error reaches only the clients of that key.
 */
export function createClientKeys({ attest, clock }: ClientKeysDeps): ClientKeysDeps['attest'] {
  const hashKey = new SecretKey(randomBytes(32));
  const running = new Map<string, Promise<Epoch>>();
  const rejectedAt = new Map<string, number>();
  const turns: (() => void)[] = [];
  let busy = 0;

  function rememberRejection(id: string): void {
    rejectedAt.delete(id); // keeps the map in order of time
    const [oldest] = rejectedAt.keys();
    if (rejectedAt.size >= MAX_REMEMBERED && oldest !== undefined) rejectedAt.delete(oldest);
    rejectedAt.set(id, clock.now());
  }

  async function attestInTurn(apiKey: string): Promise<Epoch> {
    if (busy < MAX_RUNNING) busy++;
    else if (turns.length < MAX_WAITING) await new Promise<void>((resolve) => turns.push(resolve));
    else throw new PrivatemodeError('not_ready', 'too many API keys are being tried');
    return attest(apiKey).finally(() => {
      const next = turns.shift();
      if (next === undefined) busy--;
      else next();
    });
  }

  async function tryKey(id: string, apiKey: string): Promise<Epoch> {
    const age = clock.now() - (rejectedAt.get(id) ?? Number.NEGATIVE_INFINITY);
    if (age >= 0 && age < clock.times.refusedKeyKept) {
      // A negative age means that the clock was turned back; then the key is tried again.
      const message = `the service rejected this API key a moment ago${aboutPlaceholder(apiKey)}`;
      throw new PrivatemodeError('api_key_rejected', message);
    }
    try {
      return await attestInTurn(apiKey);
    } catch (error) {
      if (error instanceof PrivatemodeError && error.code === 'api_key_rejected') rememberRejection(id);
      throw error;
    }
  }

  return (apiKey) => {
    const id = hashKey.hmacSha256(apiKey);
    const attempt = running.get(id) ?? tryKey(id, apiKey).finally(() => running.delete(id));
    running.set(id, attempt);
    return attempt;
  };
}
