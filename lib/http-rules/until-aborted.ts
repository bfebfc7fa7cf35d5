/**
 * Resolves with what the promise resolves with. If the signal aborts before that, rejects with the signal's
 * reason; the promise may then reject without anyone waiting for it, and is not reported as unhandled.
 */
export async function untilAborted<T>(promise: T | Promise<T>, signal: AbortSignal): Promise<T> {
  const { promise: aborted, reject } = Promise.withResolvers<never>();
  const leave = (): void => reject(signal.reason);
  if (signal.aborted) leave();
  else signal.addEventListener('abort', leave);
  return Promise.race([aborted, promise]).finally(() => signal.removeEventListener('abort', leave));
}
