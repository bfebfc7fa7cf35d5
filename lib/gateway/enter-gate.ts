/**
 * The step before the body: the request gets its permit, from the limits of its client and the places for all
 * requests.
 */

import { untilAborted } from '../http-rules/until-aborted.ts';
import type { Exchange } from './request-state.ts';

/**
 * Waits for the permit of the exchange, which the end of the exchange gives back. Nothing of the body is read
 * before the permit is there. Rejects with the codes of the gate (lib/limits/request-gate.ts), and with the
 * reason of the exchange's signal if that aborts meanwhile. A permit that comes after the abort is given back
 * at once. Without a gate, nobody waits.
 */
export async function enterGate({ deps: { gate }, caller, life, accounts }: Exchange): Promise<void> {
  if (gate === undefined) return;
  const { signal } = life;
  const entering = gate.enter({ client: caller.client, signal });
  if (!(entering instanceof Promise)) return accounts.permit(entering);
  try {
    accounts.permit(await untilAborted(entering, signal));
  } catch (thrown) {
    entering.then(
      (late) => late.release(0),
      () => {},
    );
    throw thrown;
  }
}
