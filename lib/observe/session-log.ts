/** Logs a session: each event, its state where that is a condition, and the progress of its start. */
import type { PrivatemodeError } from '../errors.ts';
import type { Observer, SessionEvent } from '../session/events.ts';
import type { Standing, StateName } from '../session/standing.ts';
import type { ConditionId, ConditionSink, Severity } from './conditions.ts';
import { type Counters, count } from './counters.ts';
import type { Logger, StatusOutput } from './log.ts';

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
      case 'update-failed':
        if (event.permanent) return; // the composition root logs it, and that the program ends
        return session.error({ ...fields(event.error), remedy: event.error.remedy }, message);
      case 'secret-judged':
      case 'verdict':
        return; // where a check fails, the renewal does, with a line that names it
      case 'step':
        return session.debug(message);
      case 'forced-renewal':
        return session.warn({ secretId: event.secretId }, message);
      case 'secret-suspended':
        return session.error({ secretId: event.secretId }, message);
      case 'secret-resumed':
        return session.info({ secretId: event.secretId }, message);
      case 'offer-failed':
        return session.warn(fields(event.error), message);
      case 'key-kept':
        return session.info(message);
      case 'key-dropped':
        return session.warn(message);
    }
  };
}

/** The condition that a state is, where it is one: docs/states.md. */
const CONDITION_OF: Readonly<Partial<Record<StateName, readonly [ConditionId, Severity]>>> = {
  'not-renewable': ['renewal_fails', 'warning'],
  'manifest-not-understood': ['manifest_unusable', 'critical'],
  rejected: ['service_rejected', 'critical'],
  'rejected-once': ['service_rejected', 'warning'],
  'key-refused': ['key_refused', 'critical'],
  'client-too-old': ['client_too_old', 'critical'],
  unreachable: ['service_unreachable', 'critical'],
};

/** Reports the state of the session among the conditions, as often as it may have changed. */
export function noteStanding(
  conditions: ConditionSink,
  { state, title, error }: Pick<Standing, 'state' | 'title' | 'error'>,
): void {
  const [holds, severity] = CONDITION_OF[state] ?? [];
  for (const [id] of Object.values(CONDITION_OF)) if (id !== holds) conditions.clear(id);
  if (holds === undefined) return;
  const message = error === undefined ? title : `${error.code}: ${error.message}`;
  conditions.set(holds, message, { severity, remedy: error?.remedy });
}

const fields = ({ code, message }: PrivatemodeError) => ({ code, reason: message });

/** ms until it says what it waits for. */
const PATIENCE = 3_000;

/**
 * Logs once when the proxy is ready, and what it waits for while that takes longer than a few seconds: as one log line, or
 * on a terminal as a line that counts. A failure has a log line of its own; after it the waiting starts anew.
 */
export function reportStart({ log, status }: { log: Logger; status?: StatusOutput | undefined }) {
  let baseUrls: { readonly [name: string]: string } | undefined;
  let step: string | undefined;
  let verdict: Extract<SessionEvent, { verdict: unknown }>['verdict'] | undefined;
  let verified = false;
  let done = false;
  let timer: NodeJS.Timeout | undefined;

  function stopWaiting(): void {
    clearTimeout(timer);
    timer = undefined;
    status?.show(undefined);
  }

  function waiting(since: number): void {
    const seconds = Math.round((performance.now() - since) / 1000);
    if (status !== undefined) {
      status.show(`${step} … ${seconds} s`);
      timer = setTimeout(waiting, 1_000, since).unref();
    } else log.info({ seconds }, `Still starting: ${step}`);
  }

  /** Both have to be known: attestation may be done before the port is open. */
  function announce(): void {
    if (done || !verified || baseUrls === undefined) return;
    done = true;
    const { manifestSha256, tee } = verdict ?? {};
    const message = 'Ready: the remote is verified. Base URLs for clients:';
    log.info({ ...baseUrls, manifestSha256, tee }, message);
  }

  return {
    observe(event: SessionEvent) {
      if (done) return;
      switch (event.type) {
        case 'step':
          step = event.message;
          timer ??= setTimeout(waiting, PATIENCE, performance.now()).unref();
          return;
        case 'attested':
          verdict = event.verdict;
          return;
        case 'epoch':
          stopWaiting();
          verified = true;
          return announce();
        case 'update-failed':
        case 'offer-failed':
          return stopWaiting();
      }
    },
    /** The port is open, or the socket that `url` names. `awaitsKey`: nothing happens before a client sends a key. */
    listening(url: string, { awaitsKey }: { readonly awaitsKey: boolean }): void {
      const [, socket] = /^unix:(.*)$/s.exec(url) ?? [];
      const base = socket === undefined ? url.replace(EVERYWHERE, '//localhost') : 'http://localhost';
      baseUrls = { openai: `${base}/v1`, anthropic: base, ...(socket === undefined ? {} : { socket }) };
      const what =
        'Waiting for the first request with an API key, to verify the remote with it. Base URLs for clients:';
      if (awaitsKey && !verified) log.info(baseUrls, what);
      announce();
    },
    close: stopWaiting,
  };
}

/** An address that listens everywhere is no address to connect to. */
const EVERYWHERE = /\/\/(?:0\.0\.0\.0|\[::\])(?=:)/;
