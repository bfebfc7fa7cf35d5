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

/** The rows of codes that share status and blame, from what the reader should do next about each. */
const rows = <Code extends string>(
  status: number,
  blame: Blame,
  remedies: Record<Code, string>,
): Record<Code, ErrorRow> =>
  Object.fromEntries(
    Object.entries<string>(remedies).map(([code, remedy]) => [code, { status, blame, remedy }]),
  ) as Record<Code, ErrorRow>;

export const ERRORS = {
  // The application's request (docs/protocol/inference.md 5.4 and 11).
  ...rows(400, 'client', {
    invalid_json: 'Send one JSON object as the request body.',
    duplicate_member: 'Send each member of the request body once.',
    unsupported_member_name: 'Rename or remove this member; the service cannot address it.',
    invalid_plain_member:
      'Send a value that the API documents; this member is sent unencrypted, so no other is allowed.',
    missing_model: 'Name the model in the member or form field "model"; GET /v1/models lists them.',
    invalid_model: 'Use a model name of at most 256 bytes without control characters.',
    salt_too_short: 'Use a cache_salt of at least 32 bytes, or leave it out.',
    context_too_large: 'Shorten the prompt, or do not use a shared prompt cache for this request.',
    invalid_multipart:
      'Let the HTTP library write form and boundary, as curl -F model=MODEL -F file=@speech.wav does, and set no Content-Type yourself.',
    repeated_form_field: 'Send each form field once; the service keeps only the first value.',
    unsupported_response_format: 'Use response_format json or verbose_json.',
    media_url_refused: 'Send media as data: or https: URLs the service accepts.',
    invalid_path: 'Send the path in plain origin form, without dot segments or backslashes.',
    ambiguous_header: 'Send Host, Authorization and Content-Length at most once.',
    invalid_host: 'Send the host name of the proxy, with its port, in the Host header.',
    malformed_request: 'Send valid HTTP/1.1 requests.',
  }),
  ...rows(431, 'client', { too_many_headers: 'Send fewer headers.' }),
  ...rows(415, 'client', { unsupported_encoding: 'Send the body without Content-Encoding.' }),
  ...rows(403, 'client', {
    origin_forbidden:
      'Allow the origin with --cors-allowed-origins, or the host name with --allowed-hosts, if you trust the page.',
    client_forbidden: 'Use what this client may use, or ask the operator of this gateway (--clients).',
  }),
  ...rows(401, 'client', {
    client_unknown:
      'Send the token that you were given for this gateway, which is no key of the service, as "Authorization: Bearer TOKEN" or in x-api-key.',
  }),
  ...rows(429, 'client', {
    client_throttled: 'Wait a minute, then send a token that this gateway knows.',
    requests_per_minute_reached: 'Wait as long as Retry-After says, then send fewer requests per minute.',
    tokens_per_day_reached: 'Wait until the day ends (UTC), or ask the operator of this gateway (--clients).',
    max_concurrent_reached: 'Wait until one of your own requests is over, then try again.',
    max_in_flight_reached: 'Wait as long as Retry-After says; if it persists, raise --max-in-flight.',
  }),
  ...rows(404, 'client', {
    unknown_path: 'Use one of the endpoints in the README, which GET /v1 of the proxy lists too.',
  }),
  ...rows(405, 'client', { method_not_allowed: 'Use a method named in the Allow header.' }),
  ...rows(426, 'client', {
    websocket_unsupported: 'Send POST /v1/responses over HTTP; with "stream": true it streams.',
  }),
  ...rows(408, 'client', { upload_too_slow: 'Send the body faster, or lower --min-upload-rate.' }),
  ...rows(413, 'client', { body_too_large: 'Send a smaller body, or raise the limit named here.' }),
  // Never an HTTP answer: the response has begun, and nobody reads it.
  ...rows(0, 'client', { response_not_read: 'Read responses as they come, or close the connection.' }),
  ...rows(400, 'client', {
    // Names the setting of the clients that use this API unless told otherwise: their users read this line, and no page of ours.
    not_supported:
      'Start the proxy with --responses-api, which translates it, or set the client to /v1/chat/completions (docs/agents.md): ' +
      "AI SDK openai.chat('MODEL'), openai-agents set_default_openai_api('chat_completions'), Pydantic AI " +
      'OpenAIChatModel, LiteLLM custom_openai/MODEL; Codex CLI needs --responses-api.',
  }),

  // Failures of the service or the network.
  ...rows(502, 'network', {
    upstream_unreachable: 'Check the network, --api-endpoint and the proxy settings.',
    upstream_tls_untrusted:
      'Behind a TLS inspection appliance, name its CA bundle (PEM) in SSL_CERT_FILE and restart.',
  }),
  ...rows(502, 'upstream', {
    upstream_reset: 'Try again.',
    upstream_closed_during_upload: 'Try again; if it persists, send a smaller body.',
    upstream_http2_only:
      'Use an address that offers HTTP/1.1 (--api-endpoint, --cdn-base-url), or put a reverse proxy that does in front of the service.',
    upstream_redirect: 'Check --api-endpoint; redirects are never followed.',
    response_not_encrypted: 'Treat this answer as forged and report it.',
    response_malformed: 'Try again, and report it if it persists.',
    response_not_authentic: 'Treat this answer as tampered with and report it.',
    response_too_large: 'Ask for a smaller answer.',
    stream_unfinished: 'Do not use the partial answer as if it were complete; try again.',
  }),
  ...rows(504, 'network', { upstream_connect_timeout: 'Check the network and --api-endpoint.' }),
  ...rows(504, 'upstream', {
    first_byte_timeout: 'Try again, or raise --first-byte-timeout.',
    stream_idle_timeout: 'Try again, or raise --stream-idle-timeout.',
  }),
  ...rows(503, 'operator', {
    resources_exhausted: 'Raise the limits of the machine (open files, local ports), or run more replicas.',
    too_many_uploads: 'Try again; if it persists, raise --max-buffered-bytes.',
    too_many_responses: 'Try again; if it persists, ask for smaller answers or raise --max-buffered-bytes.',
    shutting_down: 'Try again; the proxy is being restarted.',
    limits_unavailable: 'Try again; if it persists, check the store of the limits (--limits-store).',
  }),

  // The attested session (docs/protocol/attestation.md).
  ...rows(503, 'attestation', { not_ready: 'Try again in a moment; the remote is still being verified.' }),
  ...rows(401, 'client', {
    api_key_missing:
      'Send an API key as "Authorization: Bearer KEY" or in x-api-key, or start the proxy with --api-key.',
    api_key_rejected: 'Check the API key; the service does not accept it.',
  }),
  // What the operator has to mend. Clients repeat a request for minutes after a 5xx, and after a 401 people look at their own tokens.
  ...rows(400, 'operator', {
    service_key_rejected: 'Your token is fine; tell its operator.',
    client_too_old:
      'Update privatemode-proxy to the latest version; --protocol-version finds out which versions the service takes (an experiment).',
  }),
  // What a service is refused for. Clients repeat a request for minutes after a 5xx, and no repetition cures these.
  ...rows(400, 'attestation', {
    attestation_failed:
      'Do not trust the remote; report it with the proof that "privatemode-proxy verify --save DIR" keeps.',
    evidence_malformed: 'Do not trust the remote; report this error.',
    manifest_mismatch: 'Find out what changed, and who says so: docs/verification.md.',
    manifest_unsupported: 'Update privatemode-proxy to the latest version.',
    manifest_invalid: 'Check the manifest; it breaks a rule that holds in every version.',
  }),
  ...rows(503, 'network', { manifest_unavailable: 'Check that the manifest host can be reached.' }),
  ...rows(503, 'operator', {
    manifest_log_failed: 'Make the workspace writable; the proxy enforces no manifest that it cannot log.',
  }),
  ...rows(503, 'network', {
    collateral_unavailable: 'Check that the collateral hosts of AMD or Intel can be reached.',
  }),
  ...rows(503, 'attestation', { secret_exchange_failed: 'Try again; report it if it persists.' }),
  ...rows(503, 'upstream', {
    control_api_failed: 'Try again; check the status of the service.',
    secret_denied: 'Try again in a moment; if it persists, report it to the operator of the service.',
  }),

  // Start-up and configuration: exit 1, never an HTTP answer.
  ...rows(0, 'operator', {
    config_invalid: 'See privatemode-proxy --help.',
    unsafe_roots_refused: 'Drop --unsafe-trust-roots, or point --api-endpoint at a simulator.',
    verify_input_invalid: 'Check the named files; see verify --help for their formats.',
    listen_failed:
      'Choose another --port or --listen-address; for the admin listener another --admin-address.',
    receipts_unavailable: 'Make the workspace writable, or start without --receipts.',
    receipts_unreadable: 'Name the directory of the receipts with --dir, and its key with --public-key.',
  }),
  ...rows(500, 'internal', { internal: 'Report this with the request id and the log around it.' }),
};

export type ErrorCode = keyof typeof ERRORS;

/** What code decides on beyond the code of an error or of a failed check. Messages are for people: no code parses one. */
export interface FailureDetail {
  /** Something is not valid yet (`early`) or no longer (`late`) by our clock, so that a wrong clock may be the cause. */
  readonly clock?: 'early' | 'late' | undefined;
  /** The hardware that no trust root was given for: a product line of AMD, or `tdx`. */
  readonly missingRoot?: string | undefined;
}

/** An error: a stable code, a message for a person, and what to do next. Own properties are what Node prints of one that nobody catches. */
export class PrivatemodeError extends Error {
  override readonly name = 'PrivatemodeError';
  readonly code: ErrorCode;
  /** What to do next, as one sentence. */
  readonly remedy: string;
  /** Seconds after which it is worth trying again, where that is known. */
  declare readonly retryAfter: number | undefined;
  /** What the API itself says of it, where it does: the place in the request, and a code that its clients know. */
  declare readonly api: { readonly param: string; readonly code: string } | undefined;
  declare readonly detail: FailureDetail | undefined;

  /** `remedy` replaces that of the table, where the cause is known better than the code tells. */
  constructor(
    code: ErrorCode,
    message: string,
    options?: {
      cause?: unknown;
      remedy?: string | undefined;
      retryAfter?: number | undefined;
      api?: PrivatemodeError['api'];
      detail?: FailureDetail | undefined;
    },
  ) {
    super(message, options);
    const { remedy = ERRORS[code].remedy, retryAfter, api, detail } = options ?? {};
    this.code = code;
    this.remedy = remedy;
    if (retryAfter !== undefined) this.retryAfter = retryAfter;
    if (api !== undefined) this.api = api;
    if (detail !== undefined) this.detail = detail;
  }

  get status(): number {
    return ERRORS[this.code].status;
  }

  get blame(): Blame {
    return ERRORS[this.code].blame;
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

/** Why the file system refuses to read a file, in words that say what to do. */
const READ_REFUSALS: Readonly<Record<string, (path: string) => string>> = {
  ENOENT: (path) => {
    if (/^https?:/.test(path))
      return 'no such file or directory; save what the URL serves, and name that file';
    if (path.startsWith('@')) return 'no such file or directory; write the path without the @';
    const isAbsolute = /^(?:[/\\]|[a-z]:)/i.test(path);
    const where = isAbsolute ? ', and in a container what is mounted' : `, which begins at ${process.cwd()}`;
    return `no such file or directory; check the path${where}`;
  },
  EACCES: () => 'this user may not read it; change its owner or its permissions',
  EISDIR: () => 'it is a directory; name the file in it',
  ENOTDIR: () => 'a file stands where a directory is needed; check the path',
};

/** config_invalid about `what`, which lies at `path`, from what the file system threw. */
export function fileUnreadable(what: string, path: string, thrown: unknown): PrivatemodeError {
  const { code = '', message } = thrown as NodeJS.ErrnoException;
  const words = Object.hasOwn(READ_REFUSALS, code) ? `${code}: ${READ_REFUSALS[code]?.(path)}` : message;
  return new PrivatemodeError('config_invalid', `failed to read ${what}: ${words}`, { cause: thrown });
}

/** A command that names the program which listens on `port`. */
export const WHO_LISTENS = (port: number): string =>
  process.platform === 'win32' ? `netstat -ano | findstr :${port}` : `lsof -nP -iTCP:${port} -sTCP:LISTEN`;

/** Why a port cannot be opened, in words; EADDRINUSE comes with a command, see below. */
const LISTEN_REFUSALS: Readonly<Record<string, string>> = {
  EACCES: 'this user may not open this port; ports from 1024 on need no privilege',
  EADDRNOTAVAIL: 'this machine does not have that address',
  ENOTFOUND: 'that host name does not resolve',
  EAI_AGAIN: 'that host name does not resolve now',
};

/** Why a socket cannot be opened in the file system, in words. */
const SOCKET_REFUSALS: Readonly<Record<string, string>> = {
  EACCES: 'that directory does not exist, or this user may not use it', // libuv says so of both
  EEXIST: 'another file has that name; remove it, or choose another path',
};

/**
 * listen_failed for `where`, as `127.0.0.1 port 8080`. `at`: the port, or the path of a socket; where it is taken, the message says how to
 * find out by whom.
 */
export function listenFailed(
  where: string,
  at: number | string,
  cause: { readonly code?: string | undefined; readonly message?: string },
): PrivatemodeError {
  const reason = cause.code ?? cause.message ?? 'unknown';
  const socket = typeof at === 'string';
  const who = socket
    ? `another program answers there, and this shows which: lsof ${at}`
    : `another program has the port, and this shows which: ${WHO_LISTENS(at)}`;
  const words = reason === 'EADDRINUSE' ? who : (socket ? SOCKET_REFUSALS : LISTEN_REFUSALS)[reason];
  const message = `listening on ${where}: ${reason}${words === undefined ? '' : `; ${words}`}`;
  return new PrivatemodeError('listen_failed', message, { cause });
}
