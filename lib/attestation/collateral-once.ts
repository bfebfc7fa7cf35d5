/** A collateral source for one verification: the same question is asked once, and none after a failed check. */
import { PrivatemodeError } from '../errors.ts';
import type { CollateralSource } from './collateral.ts';

/**
 * Wraps a source. `allowed` = false refuses every question. Whatever the source rejects with, the caller sees
 * collateral_unavailable.
 */
export function askOnce(source: CollateralSource, allowed: boolean): CollateralSource {
  const answers = new Map<string, Promise<unknown>>();
  const once =
    <Args extends unknown[], T>(name: string, ask: (...args: Args) => Promise<T>) =>
    (...args: Args): Promise<T> => {
      const question = `${name} ${JSON.stringify(args)}`;
      const known = answers.get(question) as Promise<T> | undefined;
      const answer = known ?? (allowed ? askSafely(() => ask(...args)) : refuse<T>());
      answers.set(question, answer);
      return answer;
    };
  return {
    amdVcek: once('amdVcek', (query) => source.amdVcek(query)),
    amdCrl: once('amdCrl', (query) => source.amdCrl(query)),
    intelTcbInfo: once('intelTcbInfo', (query) => source.intelTcbInfo(query)),
    intelQeIdentity: once('intelQeIdentity', (query) => source.intelQeIdentity(query)),
    intelPckCrl: once('intelPckCrl', () => source.intelPckCrl()),
    intelRootCrl: once('intelRootCrl', (query) => source.intelRootCrl(query)),
  };
}

async function askSafely<T>(ask: () => Promise<T>): Promise<T> {
  try {
    return await ask();
  } catch (cause) {
    if (cause instanceof PrivatemodeError && cause.code === 'collateral_unavailable') throw cause;
    throw new PrivatemodeError('collateral_unavailable', 'the collateral could not be fetched', { cause });
  }
}

const refuse = <T>(): Promise<T> =>
  Promise.reject<T>(
    new PrivatemodeError('collateral_unavailable', 'not asked for, because an earlier check failed'),
  );
