/**
 * Every error this program shows to anybody, in one table: whose fault it is, which HTTP status
 * carries it, and what the reader can do next. The code is stable: it is what clients, log searches
 * and dashboards match on, and it is never reused with another meaning.
 */

export type Blame = 'client' | 'operator' | 'upstream' | 'network' | 'attestation' | 'internal';

interface ErrorRow {
  /** HTTP status of the response to the application; 0: the error never becomes a response. */
  readonly status: number;
  readonly blame: Blame;
  /** What the reader should do next, as one sentence. */
  readonly remedy: string;
}

const row = (status: number, blame: Blame, remedy: string): ErrorRow => ({ status, blame, remedy });

export const ERRORS = {
  // The application's request (docs/protocol/inference.md 5.4 and 11).
  invalid_json: row(400, 'client', 'Send one JSON object as the request body.'),
  duplicate_member: row(400, 'client', 'Send each member of the request body once.'),
  unsupported_member_name: row(400, 'client', 'Rename or remove this member; the service cannot address it.'),
  invalid_plain_member: row(
    400,
    'client',
    'Send a value that the API documents; this member leaves unencrypted, so nothing else may.',
  ),
  missing_model: row(400, 'client', 'Name the model in the "model" member.'),
  invalid_model: row(400, 'client', 'Use a model name of at most 256 bytes without control characters.'),
  salt_too_short: row(400, 'client', 'Use a cache_salt of at least 32 bytes, or leave it out.'),
  context_too_large: row(
    400,
    'client',
    'Shorten the prompt, or leave the shared prompt cache for this request.',
  ),
  invalid_multipart: row(400, 'client', 'Send a well-formed multipart/form-data body with a boundary.'),
  repeated_form_field: row(
    400,
    'client',
    'Send each form field once; the service keeps only the first value.',
  ),
  unsupported_response_format: row(
    400,
    'client',
    'Use response_format json or verbose_json; only JSON can be encrypted.',
  ),
  media_url_refused: row(400, 'client', 'Send media as data: or https: URLs the service accepts.'),
  invalid_path: row(
    400,
    'client',
    'Send the path in plain origin form, without dot segments or backslashes.',
  ),
  ambiguous_header: row(400, 'client', 'Send Host, Authorization and Content-Length at most once.'),
  invalid_host: row(400, 'client', 'Send the host name of the proxy, with its port, in the Host header.'),
  malformed_request: row(400, 'client', 'Send requests of HTTP/1.1.'),
  too_many_headers: row(431, 'client', 'Send fewer headers.'),
  unsupported_encoding: row(415, 'client', 'Send the body without Content-Encoding.'),
  origin_forbidden: row(
    403,
    'client',
    'Allow the origin with --cors-allowed-origins, or the host name with --allowed-hosts, if you trust the page.',
  ),
  unknown_path: row(404, 'client', 'Use one of the documented endpoints under /v1.'),
  method_not_allowed: row(405, 'client', 'Use a method named in the Allow header.'),
  upload_too_slow: row(408, 'client', 'Send the body faster, or lower --min-upload-rate.'),
  body_too_large: row(413, 'client', 'Send a smaller body, or raise the limit that is named.'),
  not_supported: row(
    400,
    'client',
    'Use /v1/chat/completions instead; docs/agents.md has the setting of each client.',
  ),

  // Failures of the service or the network.
  upstream_unreachable: row(502, 'network', 'Check the network, --api-endpoint and the proxy settings.'),
  upstream_tls_untrusted: row(
    502,
    'network',
    'Behind a TLS inspection appliance, name its CA bundle (PEM) in SSL_CERT_FILE and restart.',
  ),
  upstream_reset: row(502, 'upstream', 'Try again.'),
  upstream_closed_during_upload: row(502, 'upstream', 'Try again; if it persists, send a smaller body.'),
  upstream_redirect: row(502, 'upstream', 'Check --api-endpoint; redirects are never followed.'),
  response_not_encrypted: row(502, 'upstream', 'Treat this answer as forged and report it.'),
  response_malformed: row(502, 'upstream', 'Try again, and report it if it persists.'),
  response_not_authentic: row(502, 'upstream', 'Treat this answer as tampered with and report it.'),
  response_too_large: row(502, 'upstream', 'Ask for a smaller answer.'),
  stream_unfinished: row(502, 'upstream', 'Do not use the partial answer as if it were complete; try again.'),
  upstream_connect_timeout: row(504, 'network', 'Check the network and --api-endpoint.'),
  first_byte_timeout: row(504, 'upstream', 'Try again, or raise --first-byte-timeout.'),
  stream_idle_timeout: row(504, 'upstream', 'Try again, or raise --stream-idle-timeout.'),
  resources_exhausted: row(
    503,
    'operator',
    'Raise the limits of the machine (open files, local ports), or run more replicas.',
  ),
  too_many_uploads: row(503, 'operator', 'Try again; if it persists, raise --max-buffered-bytes.'),
  shutting_down: row(503, 'operator', 'Try again; the proxy is being restarted.'),

  // The attested session (docs/protocol/attestation.md).
  not_ready: row(503, 'attestation', 'Try again in a moment; the remote is still being verified.'),
  api_key_missing: row(401, 'client', 'Send an API key as a bearer token, or configure one with --api-key.'),
  api_key_rejected: row(401, 'client', 'Check the API key; the service does not accept it.'),
  attestation_failed: row(
    503,
    'attestation',
    'Do not trust the remote; run "privatemode-proxy verify" for the verdict.',
  ),
  evidence_malformed: row(503, 'attestation', 'Do not trust the remote; report this answer.'),
  manifest_mismatch: row(
    503,
    'attestation',
    'Replace the file given with --manifest-path by the current manifest.',
  ),
  manifest_unsupported: row(503, 'attestation', 'Update privatemode-proxy to the latest version.'),
  manifest_invalid: row(503, 'attestation', 'Check the manifest; it contradicts a rule of every generation.'),
  manifest_unavailable: row(503, 'network', 'Check that the manifest host can be reached.'),
  manifest_log_failed: row(
    503,
    'operator',
    'Make the workspace writable; what cannot be logged is not enforced.',
  ),
  collateral_unavailable: row(
    503,
    'network',
    'Check that the collateral hosts of AMD or Intel can be reached.',
  ),
  secret_exchange_failed: row(503, 'attestation', 'Try again; report it if it persists.'),
  control_api_failed: row(503, 'upstream', 'Try again; check the status of the service.'),

  // Start-up and configuration: exit 1, never an HTTP answer.
  config_invalid: row(0, 'operator', 'See privatemode-proxy --help.'),
  unsafe_roots_refused: row(
    0,
    'operator',
    'Drop --unsafe-trust-roots, or point --api-endpoint at a simulator.',
  ),
  verify_input_invalid: row(
    0,
    'operator',
    'Check the files that were named; see verify --help for their formats.',
  ),
  listen_failed: row(0, 'operator', 'Choose another --port or --listen-address.'),
  internal: row(500, 'internal', 'Report this with the request id and the log around it.'),
} as const satisfies Record<string, ErrorRow>;

export type ErrorCode = keyof typeof ERRORS;

/** An error: a stable code, a message for a person, and (through the table) what to do next. */
export class PrivatemodeError extends Error {
  override readonly name = 'PrivatemodeError';
  readonly code: ErrorCode;
  readonly #remedy: string | undefined;

  /** `remedy` replaces that of the table, where the cause is known better than the code tells. */
  constructor(code: ErrorCode, message: string, options?: { cause?: unknown; remedy?: string | undefined }) {
    super(message, options);
    this.code = code;
    this.#remedy = options?.remedy;
  }

  get status(): number {
    return ERRORS[this.code].status;
  }

  get blame(): Blame {
    return ERRORS[this.code].blame;
  }

  get remedy(): string {
    return this.#remedy ?? ERRORS[this.code].remedy;
  }
}

/** Where something is not valid yet, or no longer: most often it is our own clock that is wrong. */
export const CLOCK_REMEDY =
  'Check the clock of this machine first; if it is right, do not trust the remote and report this.';

/** Anything thrown, as one of ours; an unknown cause becomes `internal` without quoting its text. */
export function asPrivatemodeError(thrown: unknown): PrivatemodeError {
  if (thrown instanceof PrivatemodeError) return thrown;
  return new PrivatemodeError('internal', 'an internal error occurred', { cause: thrown });
}

/** A command that names the program which listens on `port`. */
export const WHO_LISTENS = (port: number): string =>
  process.platform === 'win32' ? `netstat -ano | findstr :${port}` : `lsof -nP -iTCP:${port} -sTCP:LISTEN`;

/** listen_failed for `where`, as `127.0.0.1 port 8080`; a port that is taken comes with the way to find out by whom. */
export function listenFailed(where: string, port: number, cause: NodeJS.ErrnoException): PrivatemodeError {
  const reason = cause.code ?? cause.message;
  const who = `; another program has the port, and this shows which: ${WHO_LISTENS(port)}`;
  const message = `listening on ${where}: ${reason}${reason === 'EADDRINUSE' ? who : ''}`;
  return new PrivatemodeError('listen_failed', message, { cause });
}
