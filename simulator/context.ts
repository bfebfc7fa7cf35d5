/** What the inference side of the simulator gets from the trust side, and the options of its models. */
import type { IncomingMessage } from 'node:http';
import type { Faults } from './faults.ts';
import type { Recorder } from './recorder.ts';
import type { SecretStore } from './secrets.ts';

/**
 * Where the responses of the simulated models come from: a backend, recorded responses, or built-in models if
 * neither is given.
 */
export interface ModelOptions {
  /** Base URL of a real OpenAI-compatible server that answers the decrypted requests. */
  readonly backend?: string;
  /** Path of a file of recorded responses. */
  readonly transcripts?: string;
  /**
   * Whether the built-in models accept any model name, as tests want; otherwise only their own names.
   * Default: true.
   */
  readonly anyName?: boolean;
  /**
   * Directory in which `sim-chat` may ask an agent to write a file that a prompt names. Without it,
   * `sim-chat` asks for no file.
   */
  readonly edits?: string;
}

/**
 * What the inference side gets from the trust side. The server records every request before the inference
 * handler sees it (the bytes as the handler reads them), so the handler need not record anything.
 */
export interface InferenceContext {
  readonly secrets: SecretStore;
  readonly recorder: Recorder;
  readonly model: ModelOptions;
  readonly faults: Faults;
  /** Whether a bearer token (undefined: none was sent) is accepted. */
  readonly apiKeys: (key: string | undefined) => boolean;
  /** The simulator's clock, ms since 1970; a test may skew it. */
  readonly now: () => number;
  /**
   * Resets the TCP connection of a request at once (RST, not FIN); the client sees `read ECONNRESET`. Node
   * cannot reset a TLS socket, so the server resets the TCP socket below it.
   */
  readonly reset: (request: IncomingMessage) => void;
}
