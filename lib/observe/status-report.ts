/** The body of `GET /status` on the admin listener. Every view for people is made from this object. */
import type { Standing } from '../session/standing.ts';
import type { Notice } from './notices.ts';
import type { VerificationDocument } from './verification-document.ts';

/** The traffic of one second in a status report. */
export interface TrafficSecond {
  /** Beginning of the second, ms since 1970. */
  readonly at: number;
  /**
   * Highest number of running requests among the samples of this second. A sample is taken each second, and
   * for each report.
   */
  readonly inFlight: number;
  /** How many events of streams were sent to applications. An event holds one token or a few. */
  readonly chunks: number;
  /** Two times of the last stream that ended in this second. `Finished` says what each of them means. */
  readonly firstTokenMs: number | null;
  readonly gapMs: number | null;
}

/** One request that is over, for the log, the metrics and the status page. No member quotes content. */
export interface Finished {
  readonly id: string;
  /** When the request ended, in ms since 1970. */
  readonly at: number;
  /** Name of the client that sent the request. Undefined without --clients, or for an unknown token. */
  readonly client: string | undefined;
  /** Id in the table of endpoints. `none` if the proxy refused the request before it found the endpoint. */
  readonly endpoint: string;
  /** `gen_ai.operation.name` of OpenTelemetry; null for unencrypted endpoints, which run no model. */
  readonly operation: string | null;
  readonly method: string;
  /** The path as the log shows it. Of an unknown path, the log shows at most one plain word. */
  readonly path: string;
  readonly model: string | null;
  /** HTTP status of the response; null if there was no response. */
  readonly status: number | null;
  /** How the request ended, by a word that lib/gateway/end-of-request.ts chooses. */
  readonly outcome: string;
  readonly code: string | null;
  readonly durationMs: number;
  /** Milliseconds from the last byte of the request body until the whole body was sent encrypted. */
  readonly addedMs: number | null;
  /** Milliseconds from the head of a request to the first event of its stream; null without a stream. */
  readonly firstTokenMs: number | null;
  /** Mean milliseconds between the events of the stream; null if there were fewer than two events. */
  readonly gapMs: number | null;
  /** Number of events in the stream. */
  readonly events: number;
  readonly tokensIn: number | null;
  readonly tokensOut: number | null;
  /** How many of `tokensIn` came from the prompt cache of the service. */
  readonly tokensCached: number | null;
}

export interface Traffic {
  readonly inFlight: number;
  /** The seconds of the last two minutes, oldest first. Seconds in which nothing happened are left out. */
  readonly seconds: readonly TrafficSecond[];
  /** The last 50 requests that ended, newest first. */
  readonly finished: readonly Finished[];
}

export interface StatusReport {
  /** When the report was made, in ms since 1970. */
  readonly now: number;
  /** The state of the session, and its texts for people (docs/operating.md). */
  readonly standing: Pick<Standing, 'state' | 'verified' | 'tone' | 'title' | 'meaning'>;
  readonly lastError: { readonly code: string; readonly message: string; readonly remedy: string } | null;
  /** Notices of what needs a person's attention, the critical ones first. */
  readonly conditions: readonly Notice[];
  readonly traffic: Traffic;
  /** The document of `GET /verification` at the same moment. */
  readonly verification: VerificationDocument;
  /** SHA-256 of the clients file in force, in lower-case hex. Undefined without --clients. */
  readonly clientsFile?: string | undefined;
}

/** Completes the report with the present state of the session. */
export const statusReport = (
  about: Omit<StatusReport, 'standing' | 'lastError'>,
  { error, state, verified, tone, title, meaning }: Standing,
): StatusReport => ({
  ...about,
  standing: { state, verified, tone, title, meaning },
  lastError: error === undefined ? null : { code: error.code, message: error.message, remedy: error.remedy },
});
