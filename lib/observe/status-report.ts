/** The body of `GET /status` on the admin listener, which the status page and `privatemode-proxy status` show. */
import type { Session } from '../session/session.ts';
import type { Standing } from '../session/standing.ts';
import { type EpochFacts, epochFacts } from '../transparency/epoch-facts.ts';
import type { Condition } from './conditions.ts';
import type { Counters } from './counters.ts';

/** Traffic of one second. */
export interface TrafficSecond {
  /** Its beginning, ms since 1970. */
  readonly at: number;
  /** Requests that ended in it. */
  readonly requests: number;
  /** The most requests that were running in it, looked at once. */
  readonly inFlight: number;
  /** Pieces of streams that went to applications; a piece is a token or a few. */
  readonly chunks: number;
  /** ms from the head of a request to the first piece of its stream; at most 20 samples. */
  readonly firstTokenMs: readonly number[];
  /** ms between the pieces of a stream, its mean; at most 20 samples. */
  readonly gapMs: readonly number[];
}

/** One request that is over. Nothing in it quotes content. */
export interface FinishedRequest {
  readonly id: string;
  /** When it ended, ms since 1970. */
  readonly at: number;
  /** Who asked; only with --clients, and where the token was known. */
  readonly client?: string | undefined;
  readonly endpoint: string;
  readonly model: string | null;
  readonly status: number | null;
  /** As in the log: lib/gateway/request-log.ts. */
  readonly outcome: string;
  readonly code: string | null;
  readonly durationMs: number;
  readonly firstTokenMs: number | null;
  readonly tokensIn: number | null;
  readonly tokensOut: number | null;
  /** Those of `tokensIn` that came from the cache of the service. */
  readonly tokensCached: number | null;
}

/** Requests that were refused for the same mistake of their clients, since the start. */
export interface RefusedRequests {
  readonly method: string;
  /** As in the log: nothing in it quotes what a client sent. */
  readonly path: string;
  readonly code: string;
  readonly count: number;
  /** When the last one ended, ms since 1970. */
  readonly at: number;
}

export interface Traffic {
  readonly inFlight: number;
  /** The last two minutes, oldest first; seconds in which nothing happened are left out. */
  readonly seconds: readonly TrafficSecond[];
  /** The last 50, newest first. */
  readonly finished: readonly FinishedRequest[];
  /** The last 20 kinds, newest first. */
  readonly refused: readonly RefusedRequests[];
}

export interface StatusReport {
  readonly version: string;
  readonly protocol: string;
  /** ms since 1970. */
  readonly now: number;
  readonly startedAt: number;
  readonly workers: number;
  /** The state by name, and in words (docs/states.md). */
  readonly standing: Pick<Standing, 'state' | 'verified' | 'tone' | 'title' | 'meaning'>;
  readonly lastError: { readonly code: string; readonly message: string; readonly remedy: string } | null;
  readonly epoch: EpochFacts | null;
  /** What else needs a person's attention, the worst first. */
  readonly conditions: readonly Condition[];
  /** Of all workers. */
  readonly traffic: Traffic;
  /** SHA-256 of the clients file that each process uses which serves, in lower-case hex; undefined without --clients. */
  readonly clientsFile?: readonly string[] | undefined;
  /** Undefined without --receipts. */
  readonly receipts?:
    | { readonly instance: string; readonly written: number; readonly lost: number }
    | undefined;
}

/** The report as of `now`; the session is the one that attests, and the traffic that of all processes. */
export function statusReport({
  session,
  standing: { error, state, verified, tone, title, meaning },
  instance,
  counters,
  ...rest
}: Pick<
  StatusReport,
  'version' | 'protocol' | 'now' | 'startedAt' | 'workers' | 'conditions' | 'traffic' | 'clientsFile'
> & {
  readonly session: Pick<Session, 'current'>;
  readonly standing: Standing;
  /** Under which receipts are written; undefined: none are. */
  readonly instance: string | undefined;
  readonly counters: Pick<Counters, 'receipts'>;
}): StatusReport {
  const epoch = session.current();
  return {
    ...rest,
    standing: { state, verified, tone, title, meaning },
    lastError:
      error === undefined ? null : { code: error.code, message: error.message, remedy: error.remedy },
    epoch: epoch === undefined ? null : epochFacts(epoch),
    ...(instance === undefined ? {} : { receipts: { instance, ...counters.receipts } }),
  };
}
