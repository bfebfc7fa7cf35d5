import type { PrivatemodeError } from '../errors.ts';
import type { Observer } from '../session/events.ts';
import { type Counters, count } from './counters.ts';
import type { Logger } from './log.ts';

/** Session events as log lines, and in the counters. */
export function sessionLog(log: Logger, counters: Counters): Observer {
  const session = log.child({ component: 'session' });
  return (event) => {
    const { message } = event;
    switch (event.type) {
      case 'attested': {
        count(counters.attestations, 'accepted');
        const { manifestSha256, tee } = event.verdict;
        return session.info({ manifestSha256, tee }, message);
      }
      case 'rejected': {
        count(counters.attestations, 'failed');
        const { outcome, failure } = event.verdict;
        const { id, expected, found } = failure ?? {};
        return session.debug({ outcome, check: id, expected, found }, message);
      }
      case 'manifest-refetched':
        return session.warn({ ...fields(event.error), changed: event.changed }, message);
      case 'manifest-enforced':
        return session.info({ path: event.path, manifestSha256: event.manifestSha256 }, message);
      case 'epoch': {
        const { secretId, expiresAt } = event;
        return session.info({ secretId, expiresAt: new Date(expiresAt).toISOString() }, message);
      }
      case 'round-failed':
        return session.debug({ ...fields(event.error), round: event.round }, message);
      case 'update-failed': {
        if (event.permanent) return; // the composition root logs it, and that the program ends
        return session.error({ ...fields(event.error), remedy: event.error.remedy }, message);
      }
      case 'step':
        return session.debug(message);
      case 'forced-renewal':
        return session.warn({ secretId: event.secretId }, message);
      case 'offer-failed':
        return session.warn(fields(event.error), message);
      case 'key-kept':
        return session.info(message);
      case 'key-dropped':
        return session.warn(message);
    }
  };
}

const fields = ({ code, message }: PrivatemodeError) => ({ code, reason: message });
