import type { GpuPolicy } from '../envelope/protection.ts';
import type { Counters } from '../observe/counters.ts';
import type { Logger } from '../observe/log.ts';
import type { RequestObservation } from '../observe/metrics.ts';
import type { FallbackMode } from '../pipeline/rewrite-auth.ts';
import type { Upstream } from '../pipeline/upstream.ts';
import type { Session } from '../session/session.ts';
import type { CorsPolicy } from './cors.ts';
import type { createDumper } from './request-dump.ts';
import type { UploadLimits } from './upload.ts';
import type { UploadBudget } from './upload-budget.ts';

/** What an exchange needs to know of the world around it; made once, by the composition root. */
export interface World {
  readonly session: Session;
  readonly upstream: Upstream;
  readonly counters: Counters;
  readonly log: Logger;
  /** Once per request, when it is over. */
  readonly observe: (observation: RequestObservation) => void;
  /** The configured key as it is now (a key file may change). */
  readonly configuredKey: () => string | undefined;
  readonly apiKeyFallback: FallbackMode;
  /** The salt that all requests share; undefined: each request gets one of its own. */
  readonly sharedSalt: string | undefined;
  readonly gpuPolicy: GpuPolicy;
  readonly cors: () => CorsPolicy;
  readonly limits: UploadLimits;
  /** The memory that all uploads share. */
  readonly uploadBudget: UploadBudget;
  /** ms a request waits for the remote to be verified. */
  readonly epochTimeout: number;
  /** ms between two chunks of an answer. */
  readonly streamIdleTimeout: number;
  /** ms of silence of a stream after which the client gets a comment; 0: none. */
  readonly streamKeepalive: number;
  /** With --dump-requests. */
  readonly dumper: ReturnType<typeof createDumper> | undefined;
  /** Aborted when the grace period of a shutdown is over; its reason is the error to tell. */
  readonly terminate: AbortSignal;
}
