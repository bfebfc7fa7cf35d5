import { type Counters, count } from '../observe/counters.ts';
import type { Logger } from '../observe/log.ts';
import type { Observer } from './events.ts';

/** Session events as log lines, and in the counters. */
export function eventLog(log: Logger, counters: Counters): Observer {
  const session = log.child({ component: 'session' });
  return (event) => {
    const { message } = event;
    switch (event.type) {
      case 'attested':
        count(counters.attestations, 'accepted');
        return session.info(
          { manifestSha256: event.verdict.manifestSha256, tee: event.verdict.tee },
          message,
        );
      case 'rejected': {
        count(counters.attestations, 'failed');
        const { outcome, failure } = event.verdict;
        const { id, expected, found } = failure ?? {};
        return session.debug({ outcome, check: id, expected, found }, message);
      }
      case 'manifest-refetched':
        return session.warn(
          { code: event.error.code, reason: event.error.message, changed: event.changed },
          message,
        );
      case 'manifest-enforced':
        return session.info({ path: event.path, manifestSha256: event.manifestSha256 }, message);
      case 'epoch': {
        const { secretId, expiresAt } = event;
        return session.info({ secretId, expiresAt: new Date(expiresAt).toISOString() }, message);
      }
      case 'round-failed':
        return session.debug(
          { code: event.error.code, reason: event.error.message, round: event.round },
          message,
        );
      case 'update-failed': {
        if (event.permanent) return; // the composition root says it, and that the program ends
        const { code, message: reason, remedy } = event.error;
        return session.error({ code, reason, remedy }, message);
      }
      case 'step':
        return session.debug(message);
      case 'forced-renewal':
        return session.warn({ secretId: event.secretId }, message);
      case 'key-kept':
        return session.info(message);
      case 'offer-failed':
        return session.warn({ code: event.error.code, reason: event.error.message }, message);
      case 'key-dropped':
        return session.warn(message);
    }
  };
}
