/**
 * The result of reading or fetching something that later checks build on: the value, or the typed error that the check
 * responsible for it reports. Undefined stands for "not tried, because an earlier check failed".
 */
import { PrivatemodeError } from '../errors.ts';

export type Attempt<T> = { readonly value: T } | { readonly error: PrivatemodeError } | undefined;

export function attempt<T>(read: () => T): Attempt<T> {
  try {
    return { value: read() };
  } catch (error) {
    if (error instanceof PrivatemodeError) return { error };
    throw error;
  }
}

export async function attemptAsync<T>(read: () => Promise<T>): Promise<Attempt<T>> {
  try {
    return { value: await read() };
  } catch (error) {
    if (error instanceof PrivatemodeError) return { error };
    throw error;
  }
}

/** The value, or undefined where there is none for whatever reason. */
export function valueIn<T>(result: Attempt<T>): T | undefined {
  return result !== undefined && 'value' in result ? result.value : undefined;
}

/** For the check that is responsible: the value, undefined where it was not tried, else the error is thrown. */
export function demand<T>(result: Attempt<T>): T | undefined {
  if (result !== undefined && 'error' in result) throw result.error;
  return valueIn(result);
}
