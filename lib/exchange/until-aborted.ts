/** What the promise resolves with, unless the signal aborts before: rejects with its reason then. */
export async function untilAborted<T>(promise: T | Promise<T>, signal: AbortSignal): Promise<T> {
  signal.throwIfAborted();
  const { promise: aborted, reject } = Promise.withResolvers<never>();
  const leave = (): void => reject(signal.reason);
  signal.addEventListener('abort', leave);
  return Promise.race([promise, aborted]).finally(() => signal.removeEventListener('abort', leave));
}
