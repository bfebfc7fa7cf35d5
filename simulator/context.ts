import type { IncomingMessage } from 'node:http';
import type { Faults } from './faults.ts';
import type { Recorder } from './recorder.ts';
import type { SecretStore } from './secrets.ts';

/** Where the simulated model's answers come from; with neither, from a built-in one. */
export interface ModelOptions {
  /** Base URL of a real OpenAI-compatible server that answers the decrypted requests. */
  readonly backend?: string;
  /** Path of a file of recorded responses. */
  readonly transcripts?: string;
  /** Whether the built-in models answer by any name, as tests like; otherwise by their own only. Default: true. */
  readonly anyName?: boolean;
}

/**
 * What the inference side of the simulator gets from the trust side. The server records every request before
 * the inference handler sees it (bytes as the handler reads them); the handler has nothing to do for it.
 */
export interface InferenceContext {
  readonly secrets: SecretStore;
  readonly recorder: Recorder;
  readonly model: ModelOptions;
  readonly faults: Faults;
  /** Whether a bearer token (undefined: none was sent) is accepted. */
  readonly apiKeys: (key: string | undefined) => boolean;
  /** The simulator's clock, ms since 1970; skewed where a test wants it so. */
  readonly now: () => number;
  /**
   * Resets the TCP connection under a request at once (RST, not FIN): what the client sees as
   * `read ECONNRESET`. Node refuses this on a TLS socket; the server knows the socket below it.
   */
  readonly reset: (request: IncomingMessage) => void;
}
