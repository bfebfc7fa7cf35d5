/** The step before the body: a permit for the request, from the limits of its client and the places for all. */

import { untilAborted } from '../exchange/until-aborted.ts';
import type { Exchange } from './exchange.ts';

/**
 * Gets the exchange its permit, which the end of the exchange gives back. Nothing of its body is read before that. Rejects with the codes of the
 * gate (lib/limits/request-gate.ts), and with the reason of the exchange's signal where that is aborted meanwhile; a permit that comes
 * after that goes back at once. Without a gate nobody waits.
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
