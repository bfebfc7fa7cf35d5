/** The body of `GET /status` on the admin listener: the one object of which all views for people are made. */
import type { Standing } from '../session/standing.ts';
import type { Notice } from './notices.ts';
import type { VerificationDocument } from './verification-document.ts';

/** Traffic of one second. */
export interface TrafficSecond {
  /** Beginning of the second, ms since 1970. */
  readonly at: number;
  /**
   * Highest number of running requests that a sample in this second found. There is a sample each second, and
   * one for each report.
   */
  readonly inFlight: number;
  /** Events of streams that went to applications; an event holds one token or a few. */
  readonly chunks: number;
  /** As in `Finished`, of the last stream that ended in this second. */
  readonly firstTokenMs: number | null;
  readonly gapMs: number | null;
}

/** One request that is over, for log, metrics and traffic. Nothing in it quotes content. */
export interface Finished {
  readonly id: string;
  /** When it ended, ms since 1970. */
  readonly at: number;
  /** Name of the client that sent it; only with --clients, and only if the proxy knew its token. */
  readonly client: string | undefined;
  /** Id in the table of endpoints; `none`: the proxy refused the request before it found one. */
  readonly endpoint: string;
  /** `gen_ai.operation.name`; null for endpoints that are not encrypted, where nothing is inferred. */
  readonly operation: string | null;
  readonly method: string;
  /** As in the log; it quotes nothing that a client sent. */
  readonly path: string;
  readonly model: string | null;
  /** null: no response. */
  readonly status: number | null;
  /** As in the log: lib/gateway/end-of-request.ts. */
  readonly outcome: string;
  readonly code: string | null;
  readonly durationMs: number;
  /** From the last byte of the body until all of it had left encrypted. */
  readonly addedMs: number | null;
  /** From the head of the request to the first event of its stream; null: nothing was streamed. */
  readonly firstTokenMs: number | null;
  /** Mean time between the events of its stream; null if there were fewer than two. */
  readonly gapMs: number | null;
  /** Of its stream. */
  readonly events: number;
  readonly tokensIn: number | null;
  readonly tokensOut: number | null;
  /** The part of `tokensIn` that came from the cache of the service. */
  readonly tokensCached: number | null;
}

export interface Traffic {
  readonly inFlight: number;
  /** The last two minutes, oldest first; seconds in which nothing happened are left out. */
  readonly seconds: readonly TrafficSecond[];
  /** The last 50, newest first. */
  readonly finished: readonly Finished[];
}

export interface StatusReport {
  /** ms since 1970. */
  readonly now: number;
  /** The name of the state, and its texts for people (docs/operating.md). */
  readonly standing: Pick<Standing, 'state' | 'verified' | 'tone' | 'title' | 'meaning'>;
  readonly lastError: { readonly code: string; readonly message: string; readonly remedy: string } | null;
  /** What needs a person's attention, the worst first. */
  readonly conditions: readonly Notice[];
  readonly traffic: Traffic;
  /** What GET /verification answers, of the same moment. */
  readonly verification: VerificationDocument;
  /** SHA-256 of the clients file in force, in lower-case hex. Undefined without --clients. */
  readonly clientsFile?: string | undefined;
}

/** Completes the report by the state of the session now. */
export const statusReport = (
  about: Omit<StatusReport, 'standing' | 'lastError'>,
  { error, state, verified, tone, title, meaning }: Standing,
): StatusReport => ({
  ...about,
  standing: { state, verified, tone, title, meaning },
  lastError: error === undefined ? null : { code: error.code, message: error.message, remedy: error.remedy },
});
