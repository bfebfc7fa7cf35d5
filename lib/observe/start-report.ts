import type { SessionEvent } from '../session/events.ts';
import type { Logger, LogOutput } from './log.ts';

/** An output whose last line changes: log lines go above it. */
export interface StatusOutput extends LogOutput {
  /** Replaces the changing line; undefined removes it. */
  show(text: string | undefined): void;
}

/** `output` with a changing line at its end; undefined where it is no terminal. */
export function statusLine(output: LogOutput & { readonly columns?: number }): StatusOutput | undefined {
  if (output.isTTY !== true) return undefined;
  let shown = '';
  const erase = (): string => (shown === '' ? '' : '\r\u001b[K');
  return {
    isTTY: true,
    write: (line) => output.write(`${erase()}${line}${shown}`),
    show(text = '') {
      const next = text.slice(0, (output.columns || 80) - 1); // a terminal that does not know its size says 0
      output.write(`${erase()}${next}`);
      shown = next;
    },
  };
}

export interface StartReport {
  observe(event: SessionEvent): void;
  /** The port is open. `awaitsKey`: nothing happens before a client sends a key. */
  listening(url: string, options: { readonly awaitsKey: boolean }): void;
  close(): void;
}

/** ms until it says what it waits for. */
const PATIENCE = 3_000;

/**
 * Logs once when the proxy is ready, and what it waits for while that takes longer than a few seconds: as one log line, or
 * on a terminal as a line that counts. A failure has a log line of its own; after it the waiting starts anew.
 */
export function reportStart({
  log,
  status,
}: {
  readonly log: Logger;
  readonly status?: StatusOutput | undefined;
}): StartReport {
  let url: string | undefined;
  let step: string | undefined;
  let since = 0;
  let verdict: Extract<SessionEvent, { type: 'attested' }>['verdict'] | undefined;
  let done = false;
  let verified = false;
  let timer: NodeJS.Timeout | undefined;

  function stopWaiting(): void {
    clearTimeout(timer);
    timer = undefined;
    status?.show(undefined);
  }

  function waiting(): void {
    const seconds = Math.round((performance.now() - since) / 1000);
    if (status === undefined) {
      log.info({ seconds }, `Still starting: ${step}`);
      return;
    }
    status.show(`${step} … ${seconds} s`);
    timer = setTimeout(waiting, 1_000).unref();
  }

  function startWaiting(): void {
    if (timer !== undefined) return;
    since = performance.now();
    timer = setTimeout(waiting, PATIENCE).unref();
  }

  /** Both have to be known: attestation may be done before the port is open. */
  function announce(): void {
    if (done || !verified || url === undefined) return;
    done = true;
    const base = clientUrl(url);
    log.info(
      { openai: `${base}/v1`, anthropic: base, manifestSha256: verdict?.manifestSha256, tee: verdict?.tee },
      'Ready: the remote is verified. Base URLs for clients:',
    );
  }

  return {
    observe(event) {
      if (done) return;
      switch (event.type) {
        case 'step':
          step = event.message;
          return startWaiting();
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
    listening(at, { awaitsKey }) {
      url = at;
      const base = clientUrl(at);
      if (awaitsKey && !verified) {
        log.info(
          { openai: `${base}/v1`, anthropic: base },
          'Waiting for the first request with an API key, to verify the remote with it. Base URLs for clients:',
        );
      }
      announce();
    },
    close: stopWaiting,
  };
}

/** An address that listens everywhere is no address to connect to. */
const clientUrl = (url: string): string => url.replace(/\/\/(?:0\.0\.0\.0|\[::\])(?=:)/, '//localhost');
