/** Reports on a session: logs its events and the progress of its start. */
import type { Clock } from '../clock.ts';
import type { Observer, SessionEvent } from '../session/epoch.ts';
import { type Counters, count } from './counters.ts';
import type { Logger, StatusOutput } from './log.ts';

/**
 * Logs the events of a session, and counts each attestation once, when its verdict is complete. What to do
 * about an error is in the log line of its notice (lib/observe/notices.ts).
 */
export function sessionLog(log: Logger, counters: Counters): Observer {
  const component = 'session';
  return (event) => {
    const { message } = event;
    const why = 'error' in event ? { component, code: event.error.code, reason: event.error.message } : {};
    switch (event.type) {
      case 'attested': {
        const { manifestSha256, tee } = event.verdict;
        return log.info({ component, manifestSha256, tee }, message);
      }
      case 'judged': {
        const { outcome, failure } = event.verdict;
        const isOpen = outcome === 'accepted' || outcome === 'unavailable';
        count(counters.attestations, isOpen ? outcome : 'failed');
        if (failure === null) return;
        const { id, expected, found } = failure;
        return log.debug({ component, outcome, check: id, expected, found }, message);
      }
      case 'manifest-refetched':
        return log.warn({ ...why, changed: event.changed }, message);
      case 'manifest-enforced':
        return log.info({ component, path: event.path, manifestSha256: event.manifestSha256 }, message);
      case 'epoch': {
        const { secretId, expiresAt } = event;
        return log.info({ component, secretId, expiresAt: new Date(expiresAt).toISOString() }, message);
      }
      case 'update-failed':
        if (event.permanent) return; // the composition root logs this error and the end of the program
        return log.error(why, message);
      case 'step':
        return log.debug({ component }, message);
      case 'secret-denied':
      case 'secret-known':
        return log.warn({ component, secretId: event.secretId }, message);
      case 'offer-failed':
        return log.warn(why, message);
    }
  };
}

/**
 * Logs once that the proxy is ready. If the start takes longer than 3 s, the function also shows what the
 * proxy waits for: on a terminal in one line that counts the seconds since the start, otherwise in a line of
 * the log. Failures have log lines of their own. On a terminal the line of a ready proxy is a short text for
 * people. `statusPage`: the address of the status page, if there is one.
 */
export function reportStart(clock: Clock, log: Logger, status?: StatusOutput, statusPage?: string) {
  const startedAt = clock.monotonic();
  let baseUrls: { readonly [name: string]: string } | undefined;
  let step = '';
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
    if (status === undefined) log.info({ seconds }, `Still starting: ${step}`);
    else {
      status.show(`${step} … ${seconds} s since the start`);
      cancel = clock.after(clock.times.startLook, waiting);
    }
  }

  /** Reports the ready proxy once the service is verified and the base URLs are known, in either order. */
  function announce(): void {
    if (done || !verified || baseUrls === undefined) return;
    done = true;
    if (status === undefined || !log.isLevelEnabled('info')) {
      log.info({ ...baseUrls, statusPage }, 'Ready: the remote is verified. Base URLs for clients:');
      return;
    }
    const { openai, anthropic, socket } = baseUrls;
    const where = [`OpenAI ${openai}`, `Anthropic ${anthropic}`, socket && `socket ${socket}`];
    const page = statusPage && `status page ${statusPage}`;
    status.write(`Ready. ${[...where, page].filter(Boolean).join(' · ')}\n`);
  }

  return {
    observe(event: SessionEvent) {
      if (done) return;
      if (event.type === 'step') {
        step = event.message;
        cancel ??= clock.after(clock.times.startPatience, waiting);
      } else if (event.type === 'update-failed' || event.type === 'offer-failed') stopWaiting();
      else if (event.type === 'epoch') {
        stopWaiting();
        verified = true;
        announce();
      }
    },
    /**
     * Called when the port, or the socket file that `url` names, is open. `awaitsKey`: the proxy verifies
     * nothing before a client has sent a key.
     */
    listening(url: string, { awaitsKey }: { readonly awaitsKey: boolean }): void {
      const [, socket] = /^unix:(.*)$/s.exec(url) ?? [];
      const base =
        socket === undefined
          ? url.replace('//0.0.0.0:', '//127.0.0.1:').replace('//[::]:', '//[::1]:')
          : 'http://localhost';
      baseUrls = { openai: `${base}/v1`, anthropic: base, ...(socket === undefined ? {} : { socket }) };
      const what =
        'Waiting for the first request with an API key, to verify the remote with it. Base URLs for clients:';
      if (awaitsKey && !verified) log.info(baseUrls, what);
      announce();
    },
    close: stopWaiting,
  };
}
