/** Whether requests get through to the service, judged by how they ended: "verified" does not say so. */
import type { Clock } from '../clock.ts';
import type { NoticeSink } from './notices.ts';

export type ServiceWatch = ReturnType<typeof watchService>;

/** Failures in a row, within `failuresWithin`, that are more than chance. */
const FAILURES = 3;

/**
 * service_failing holds from the third failure in a row within a minute until the next answer of the service.
 * Nothing is asked of the service to learn this.
 */
export function watchService(notices: NoticeSink, clock: Pick<Clock, 'monotonic' | 'times'>) {
  /** When the last requests failed, in a row, by the monotonic clock. */
  let failures: number[] = [];
  let failing: string | undefined;
  return {
    /** A request did not get through; `reason`: an error of ours, in words. */
    failed(reason: string): void {
      failures = [...failures.slice(1 - FAILURES), clock.monotonic()];
      const [first = 0, , last] = failures;
      if (failing === undefined && (last === undefined || last - first > clock.times.failuresWithin)) return;
      if (failing === undefined) notices.set('service_failing', reason);
      failing = reason;
    },
    /** The service answered a request, or made a secret. */
    answered(): void {
      failures = [];
      if (failing === undefined) return;
      failing = undefined;
      notices.clear('service_failing');
    },
    /**
     * Why no load balancer should send requests here; undefined: it should. Some time after the last failure
     * it should again, because only requests find out whether the service is back.
     */
    notServing(): string | undefined {
      const since = clock.monotonic() - (failures.at(-1) ?? 0);
      return since < clock.times.servingAgain ? failing : undefined;
    },
  };
}
