/** Judges by the outcome of requests whether the service is reachable, even after it was verified. */
import type { Clock } from '../clock.ts';
import type { NoticeSink } from './notices.ts';

export type ServiceWatch = ReturnType<typeof watchService>;

/** So many failures in a row, within `failuresWithin` (lib/times.ts), are more than chance. */
const FAILURES = 3;

/**
 * Sets the notice service_failing at the third failure in a row within a minute, and clears it at the next
 * response of the service. The watch sends no requests of its own.
 */
export function watchService(notices: NoticeSink, clock: Pick<Clock, 'monotonic' | 'times'>) {
  /** When the last requests failed, each in ms of the monotonic clock. */
  let failures: number[] = [];
  let failing: string | undefined;
  return {
    /** Called when a request did not reach the service. `reason`: what went wrong, in words. */
    failed(reason: string): void {
      failures = [...failures.slice(1 - FAILURES), clock.monotonic()];
      const [first = 0, , last] = failures;
      if (failing === undefined && (last === undefined || last - first > clock.times.failuresWithin)) return;
      if (failing === undefined) notices.set('service_failing', reason);
      failing = reason;
    },
    /** Called when the service has responded to a request, or has sent a secret. */
    answered(): void {
      failures = [];
      if (failing === undefined) return;
      failing = undefined;
      notices.clear('service_failing');
    },
    /**
     * Returns why load balancers should send no requests to this proxy; undefined if they should. Some time
     * after the last failure they should, because only requests show whether the service is back.
     */
    notServing(): string | undefined {
      const since = clock.monotonic() - (failures.at(-1) ?? 0);
      return since < clock.times.servingAgain ? failing : undefined;
    },
  };
}
