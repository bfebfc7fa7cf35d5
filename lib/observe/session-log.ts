/** Reports on a session: logs its events and the progress of its start. */
import type { Clock } from '../clock.ts';
import type { PrivatemodeError } from '../errors.ts';
import type { Observer, SessionEvent } from '../session/epoch.ts';
import { type Counters, count } from './counters.ts';
import type { Logger, StatusOutput } from './log.ts';

/**
 * Writes session events to the log, and counts each attestation once, when it has been judged to its end.
 * Each line has all its fields, but `forPeople` does not repeat: if a renewal fails, or tries the newest
 * manifest, for the same reason as the previous one, its line lacks that reason and the remedy.
 */
export function sessionLog(
  log: Logger,
  counters: Counters,
  { forPeople = false }: { readonly forPeople?: boolean } = {},
): Observer {
  const session = log.child({ component: 'session' });
  /** By type of event: its last reason since the last secret. */
  const told = new Map<SessionEvent['type'], string>();
  function fieldsOnce(type: SessionEvent['type'], error: PrivatemodeError) {
    const reason = `${error.code} ${error.message}`;
    const again = forPeople && reason === told.get(type);
    told.set(type, reason);
    return again ? { code: error.code, reason: 'as before' } : fields(error);
  }
  return (event) => {
    const { message } = event;
    switch (event.type) {
      case 'attested': {
        const { manifestSha256, tee } = event.verdict;
        return session.info({ manifestSha256, tee }, message);
      }
      case 'judged': {
        const { outcome, failure } = event.verdict;
        const isOpen = outcome === 'accepted' || outcome === 'unavailable';
        count(counters.attestations, isOpen ? outcome : 'failed');
        if (failure === null) return;
        const { id, expected, found } = failure;
        return session.debug({ outcome, check: id, expected, found }, message);
      }
      case 'manifest-refetched':
        return session.warn({ ...fieldsOnce(event.type, event.error), changed: event.changed }, message);
      case 'manifest-enforced':
        return session.info({ path: event.path, manifestSha256: event.manifestSha256 }, message);
      case 'epoch': {
        told.clear();
        const { secretId, expiresAt } = event;
        return session.info({ secretId, expiresAt: new Date(expiresAt).toISOString() }, message);
      }
      case 'update-failed':
        if (event.permanent) return; // the composition root logs this error, and that the program ends
        return session.error(fieldsOnce(event.type, event.error), message);
      case 'step':
        return session.debug(message);
      case 'secret-denied':
      case 'secret-known':
        return session.warn({ secretId: event.secretId }, message);
      case 'offer-failed':
        return session.warn(fields(event.error), message);
    }
  };
}

const fields = ({ code, message, remedy }: PrivatemodeError) => ({ code, reason: message, remedy });

/**
 * Logs once when the proxy is ready. If that takes longer than 3 s, it also shows what the proxy waits for.
 * On a terminal, one line shows it and counts the seconds since the start. Otherwise each thing that the
 * proxy waits for gets one log line. Failures have log lines of their own. On a terminal the ready line is
 * short and for people. `statusPage`: the address of the status page, if there is one.
 */
export function reportStart({
  clock,
  log,
  status,
  statusPage,
}: {
  readonly clock: Clock;
  readonly log: Logger;
  readonly status?: StatusOutput | undefined;
  readonly statusPage?: string | undefined;
}) {
  const startedAt = clock.monotonic();
  let waitedFor: string | undefined;
  let baseUrls: { readonly [name: string]: string } | undefined;
  let step: string | undefined;
  let verdict: Extract<SessionEvent, { verdict: unknown }>['verdict'] | undefined;
  let verified = false;
  let done = false;
  let cancel: (() => void) | undefined;

  function stopWaiting(): void {
    cancel?.();
    cancel = undefined;
    status?.show(undefined);
  }

  function waiting(): void {
    const seconds = Math.round((clock.monotonic() - startedAt) / 1000);
    if (status !== undefined) {
      status.show(`${step} … ${seconds} s since the start`);
      cancel = clock.after(clock.times.startLook, waiting);
    } else if (step !== waitedFor) log.info({ seconds }, `Still starting: ${step}`);
    waitedFor = step;
  }

  /** Needs both the verification and the base URLs: attestation may be done before the port is open. */
  function announce(): void {
    if (done || !verified || baseUrls === undefined) return;
    done = true;
    const { manifestSha256, tee } = verdict ?? {};
    if (status !== undefined && log.isLevelEnabled('info')) status.write(`${readyLine()}\n`);
    else
      log.info(
        { ...baseUrls, statusPage, manifestSha256, tee },
        'Ready: the remote is verified. Base URLs for clients:',
      );
  }

  function readyLine(): string {
    const { openai, anthropic, socket } = baseUrls ?? {};
    const where = [`OpenAI ${openai}`, `Anthropic ${anthropic}`, socket && `socket ${socket}`];
    return `Ready. ${[...where, statusPage && `status page ${statusPage}`].filter(Boolean).join(' · ')}`;
  }

  return {
    observe(event: SessionEvent) {
      if (done) return;
      switch (event.type) {
        case 'step':
          step = event.message;
          cancel ??= clock.after(clock.times.startPatience, waiting);
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
    /**
     * Called when the port is open, or the socket file that `url` names. `awaitsKey`: the proxy verifies
     * nothing before a client sends a key.
     */
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

/** A client cannot connect to an address that means all interfaces. */
const EVERYWHERE = /\/\/(?:0\.0\.0\.0|\[::\])(?=:)/;
