/**
 * Every error this program shows to anybody, in one table: whose fault it is, which HTTP status carries it,
 * what the reader can do next, and whether another try can help. The code is stable: it is what clients, log
 * searches and dashboards match on, and it is never reused with another meaning.
 */

/** Whose fault an error is. */
export type Blame = 'client' | 'operator' | 'upstream' | 'network' | 'attestation' | 'internal';

/**
 * What the reader should do next, as one sentence. A reader without a remedy of its own gets the operator's.
 */
export interface Remedies {
  /** For whoever runs the proxy: its flags, files and network. */
  readonly operator: string;
  /** For an application of the client library: its options and its runtime. */
  readonly application?: string;
  /** For a developer who uses somebody else's gateway (--clients) and cannot change it. */
  readonly developer?: string;
}

/** When a client may send the request again. The response says it in headers that agents and SDKs obey. */
interface Repetition {
  /**
   * Seconds after which another try makes sense, because the error passes by itself: `retry-after`. Whoever
   * throws the error may know better.
   */
  readonly retryAfter?: number;
  /**
   * Whether the error stays the same however often a client repeats the request: `x-should-retry: false`.
   * Without it both SDKs repeat every 5xx, and 429. Agents look at the status alone.
   */
  readonly isFinal?: true;
}

/** What the table says of a code, beside its status and whose fault it is. */
interface Texts extends Remedies, Repetition {
  /** What has failed, as a clause. The log of a failed verification begins with it. */
  readonly title?: string;
}

interface ErrorRow extends Repetition {
  /** HTTP status of the response to the application; 0: the error never becomes a response. */
  readonly status: number;
  /** Whose fault it is, which says who can mend it. */
  readonly blame: Blame;
  readonly title: string | undefined;
  readonly remedies: Remedies;
}

/** Makes the rows of codes that share status and blame. A text is the remedy for all readers. */
const rows = <Code extends string>(
  status: number,
  blame: Blame,
  texts: Record<Code, string | Texts>,
): Record<Code, ErrorRow> =>
  Object.fromEntries(
    Object.entries<string | Texts>(texts).map(([code, text]) => {
      const { title, retryAfter, isFinal, ...remedies } =
        typeof text === 'string' ? ({ operator: text } as Texts) : text;
      return [code, { status, blame, title, retryAfter, isFinal, remedies }];
    }),
  ) as Record<Code, ErrorRow>;

const TELL = 'Tell the operator of this gateway; nothing on your side changes this.';
const LATER = 'Try again; if it persists, tell the operator of this gateway.';

export const ERRORS = {
  // The application's request (docs/protocol/inference.md 5.4 and 11).
  ...rows(400, 'client', {
    invalid_json: 'Send one JSON object as the request body.',
    duplicate_member: 'Send each member of the request body once.',
    unsupported_member_name: 'Rename or remove this member; the service cannot address it.',
    invalid_plain_member:
      'Send a value that the API documents; this member is sent unencrypted, so no other is allowed.',
    missing_model: 'Name the model in the member or form field "model"; GET /v1/models lists them.',
    invalid_model:
      'Use a model name of at most 256 bytes without control characters, and without blanks around it.',
    salt_too_short: 'Use a cache_salt of at least 32 bytes, or leave it out.',
    context_too_large: {
      operator:
        'Shorten the conversation or send fewer images; without a shared prompt cache (--disable-prompt-cache=true, and no cache_salt in the request) this limit does not apply.',
      application:
        'Shorten the conversation or send fewer images; without promptCacheSalt and cache_salt this limit does not apply.',
      developer: 'Shorten the conversation or send fewer images.',
    },
    invalid_multipart:
      'Let the HTTP library write form and boundary, as curl -F model=MODEL -F file=@speech.wav does, and set no Content-Type yourself.',
    repeated_form_field: 'Send each form field once; the service keeps only the first value.',
    unsupported_response_format: 'Use response_format json or verbose_json.',
    media_url_refused: 'Send images as data: or https: URLs, and no URLs of audio or video.',
    hosted_tool_refused:
      'Leave the tool out; in Claude Code, deny WebSearch in the permissions of its settings.',
    invalid_path: 'Send the path in plain origin form, without dot segments or backslashes.',
    ambiguous_header: 'Send this header once.',
    invalid_host: 'Send the host name of the proxy, with its port, in the Host header.',
    malformed_request: 'Send valid HTTP/1.1 requests.',
  }),
  ...rows(431, 'client', { too_many_headers: 'Send fewer headers.' }),
  ...rows(415, 'client', { unsupported_encoding: 'Send the body without Content-Encoding.' }),
  ...rows(403, 'client', {
    origin_forbidden: {
      operator:
        'Allow the origin with --cors-allowed-origins, or the host name with --allowed-hosts, if you trust the page.',
      developer: 'Ask the operator of this gateway to allow the page, or the host name that it uses.',
    },
    client_forbidden: 'Use what this client may use, or ask the operator of this gateway (--clients).',
  }),
  ...rows(401, 'client', {
    client_unknown: {
      isFinal: true,
      operator:
        'Send the token that you were given for this gateway, which is no key of the service, as "Authorization: Bearer TOKEN" or in x-api-key.',
    },
  }),
  ...rows(429, 'client', {
    requests_per_minute_reached: 'Wait as long as Retry-After says, then send fewer requests per minute.',
    tokens_per_day_reached: {
      isFinal: true,
      operator: 'Wait until the day ends (UTC), or ask the operator of this gateway (--clients).',
    },
    max_concurrent_reached: 'Wait until one of your own requests is over, then try again.',
    max_in_flight_reached: {
      operator: 'Wait as long as Retry-After says; if it persists, raise --max-in-flight.',
      developer: 'Wait as long as Retry-After says; if it persists, tell the operator of this gateway.',
    },
  }),
  ...rows(404, 'client', {
    unknown_path: {
      operator: 'GET /v1 of the proxy lists its endpoints.',
      application: 'Use one of the endpoints that the service has, such as /v1/chat/completions.',
    },
  }),
  ...rows(405, 'client', { method_not_allowed: 'Use a method named in the Allow header.' }),
  ...rows(426, 'client', {
    websocket_unsupported: 'Send POST /v1/responses over HTTP; with "stream": true it streams.',
  }),
  ...rows(408, 'client', {
    upload_too_slow: {
      operator: 'Send the body faster.',
      developer: 'Send the body faster, or ask the operator of this gateway for a lower limit.',
    },
  }),
  ...rows(413, 'client', {
    body_too_large: {
      operator: 'Send a smaller body, or raise the limit named here.',
      application: 'Send a smaller body.',
      developer: 'Send a smaller body, or ask the operator of this gateway for a larger limit.',
    },
  }),
  // Never a response of its own: the response has begun, and nobody reads it.
  ...rows(0, 'client', { response_not_read: 'Read responses as they come, or close the connection.' }),
  ...rows(400, 'client', {
    // The remedy names the setting of each client that uses this API unless told otherwise: the users of
    // these clients read this line, and no page of our documentation.
    not_supported: {
      operator:
        'Start the proxy with --responses-api, which translates it, or set the client to /v1/chat/completions: ' +
        "AI SDK openai.chat('MODEL'), openai-agents set_default_openai_api('chat_completions'), Pydantic AI " +
        'OpenAIChatModel, LiteLLM custom_openai/MODEL; Codex CLI needs --responses-api.',
      application:
        'Set the option responsesApi to true, which translates it, or use client.chat.completions.create().',
      developer:
        'Set the client to /v1/chat/completions, or ask the operator of this gateway to serve this API.',
    },
  }),

  // Failures of the service or the network.
  ...rows(502, 'network', {
    upstream_unreachable: {
      title: 'The service cannot be reached',
      operator: 'Check the network, --api-endpoint and the proxy settings.',
      application: 'Check the network and the options apiEndpoint, cdnBaseUrl and collateralUrls.',
      developer: LATER,
    },
    upstream_tls_untrusted: {
      isFinal: true,
      title: 'A TLS certificate is not trusted',
      operator: 'Behind a TLS inspection appliance, name its CA bundle (PEM) in SSL_CERT_FILE and restart.',
      application:
        'Have the runtime trust the CA, that of a TLS inspection appliance or the ca.pem of a simulator: NODE_EXTRA_CA_CERTS in Node and Bun, DENO_CERT in Deno.',
      developer: TELL,
    },
  }),
  ...rows(502, 'upstream', {
    upstream_reset: { title: 'The service closed the connection', operator: 'Try again.' },
    upstream_closed_during_upload: 'Try again; if it persists, send a smaller body.',
    upstream_http2_only: {
      isFinal: true,
      title: 'The service offers HTTP/2 only',
      operator:
        'Use an address that offers HTTP/1.1 (--api-endpoint, --cdn-base-url), or put a reverse proxy that does in front of the service.',
      application: 'Set the option apiEndpoint to an address that speaks HTTP/1.1, or set the option fetch.',
      developer: TELL,
    },
    upstream_redirect: {
      isFinal: true,
      title: 'The service answered with a redirect',
      operator: 'Check --api-endpoint; redirects are never followed.',
      application: 'Check the option apiEndpoint; redirects are never followed.',
      developer: TELL,
    },
    response_not_encrypted: 'Treat this answer as forged and report it.',
    response_malformed: 'Try again, and report it if it persists.',
    response_not_authentic: 'Treat this answer as tampered with and report it.',
    response_too_large: 'Ask for a smaller answer.',
    stream_unfinished: 'Do not use the partial answer as if it were complete; try again.',
  }),
  ...rows(504, 'network', {
    upstream_connect_timeout: {
      title: 'The service does not answer in time',
      operator: 'Check the network and --api-endpoint.',
      application: 'Check the network and the options apiEndpoint, cdnBaseUrl and collateralUrls.',
      developer: LATER,
    },
  }),
  ...rows(504, 'upstream', {
    first_byte_timeout: {
      operator: 'Try again, or raise --first-byte-timeout.',
      application: 'Try again, or raise the option firstByteTimeout.',
      developer: LATER,
    },
    stream_idle_timeout: {
      operator: 'Try again, or raise --stream-idle-timeout.',
      application: 'Try again, or raise the option streamIdleTimeout.',
      developer: LATER,
    },
  }),
  ...rows(503, 'operator', {
    resources_exhausted: {
      title: 'This machine has no resources left for a connection',
      operator: 'Raise the limits of the machine (open files, local ports, processes), or run more replicas.',
      developer: LATER,
    },
    too_many_uploads: {
      retryAfter: 2,
      operator: 'Try again; if it persists, raise --max-buffered-bytes.',
      developer: LATER,
    },
    too_many_responses: {
      retryAfter: 2,
      operator: 'Try again; if it persists, ask for smaller answers or raise --max-buffered-bytes.',
      developer: 'Try again, or ask for a smaller answer; if it persists, tell the operator of this gateway.',
    },
    shutting_down: {
      retryAfter: 2,
      operator: 'Try again; the proxy is being restarted.',
      application: 'Make a new client.',
    },
    limits_unavailable: {
      retryAfter: 2,
      operator: 'Try again; if it persists, check the store of the limits (--limits-store).',
      developer: LATER,
    },
  }),

  // The attested session (docs/protocol/attestation.md).
  ...rows(503, 'attestation', {
    not_ready: {
      retryAfter: 2,
      operator: 'Try again in a moment; the remote is still being verified.',
      application:
        'Try again in a moment, or raise the option verificationTimeout; the service is still being verified.',
    },
  }),
  ...rows(401, 'client', {
    api_key_missing: {
      isFinal: true,
      operator:
        'Send an API key as "Authorization: Bearer KEY" or in x-api-key, or start the proxy with --api-key.',
      application: 'Give the option apiKey, or set PRIVATEMODE_API_KEY.',
      developer: TELL,
    },
    api_key_rejected: {
      isFinal: true,
      title: 'The service does not accept the API key',
      operator: 'Check the API key.',
      application:
        'Check the option apiKey of createPrivatemodeFetch or PrivatemodeAI, or PRIVATEMODE_API_KEY; the key that is given to an SDK is never sent.',
    },
  }),
  // Errors that the operator has to repair. The status is 400: clients repeat a request for minutes after a
  // 5xx, and people look at their own tokens after a 401.
  ...rows(400, 'operator', {
    service_key_rejected: {
      isFinal: true,
      operator:
        "Check the keys of this gateway for the service: that of --api-key, and a client's apiKey in the file of --clients; the client's token is fine.",
      application: 'Your token is fine; tell the operator of the gateway.',
      developer: 'Your token is fine; tell the operator of this gateway.',
    },
    client_too_old: {
      isFinal: true,
      title: 'The service wants a newer version of this program',
      operator:
        'Update privatemode-proxy to the latest version; --protocol-version finds out which versions the service takes (an experiment).',
      application: 'Update privatemode-ai to the latest version.',
      developer: TELL,
    },
  }),
  // Reasons for which the proxy refuses a service. The status is 400: clients repeat a request for minutes
  // after a 5xx, and no repetition cures these.
  ...rows(400, 'attestation', {
    attestation_failed: {
      isFinal: true,
      title: 'Attestation of the remote failed',
      operator:
        'Do not trust the remote; report it with the proof that "privatemode-proxy verify --save FILE" keeps.',
      application: 'Do not trust the service; verify() rejects with an error whose verdict has every check.',
      developer: TELL,
    },
    evidence_malformed: {
      isFinal: true,
      title: 'The evidence of the remote cannot be read',
      operator: 'Do not trust the remote; report this error.',
      application: 'Do not trust the service; report this error.',
      developer: TELL,
    },
    manifest_mismatch: {
      isFinal: true,
      title: 'The service does not run under the expected manifest',
      operator: 'Find out what changed, and who says so.',
      application:
        'Try again in a moment: a deployment is being replaced. If it persists, report it to the publisher of the service.',
      developer: TELL,
    },
    manifest_unsupported: {
      isFinal: true,
      title: 'The manifest needs a newer version of this program',
      operator: 'Update privatemode-proxy to the latest version.',
      application: 'Update privatemode-ai to the latest version.',
      developer: TELL,
    },
    manifest_invalid: {
      isFinal: true,
      title: 'The manifest cannot be used',
      operator: 'Check the manifest; it breaks a rule that holds in every version.',
      application: 'Check the option manifest, or leave it out to follow the published one.',
      developer: TELL,
    },
  }),
  ...rows(503, 'network', {
    manifest_unavailable: {
      retryAfter: 5,
      title: 'The manifest cannot be fetched',
      operator: 'Check that the manifest host can be reached.',
      application: 'Check that the host of the option cdnBaseUrl can be reached.',
      developer: LATER,
    },
  }),
  ...rows(503, 'operator', {
    manifest_log_failed: {
      isFinal: true,
      title: 'The workspace cannot be written',
      operator:
        'Make room on the disk of --workspace, or make it writable; the proxy enforces no manifest that it cannot log.',
      developer: TELL,
    },
  }),
  ...rows(503, 'network', {
    collateral_unavailable: {
      retryAfter: 5,
      title: 'The certificates or revocation lists of AMD or Intel cannot be fetched',
      operator: 'Check that the collateral hosts of AMD or Intel can be reached.',
      application: 'Check that the hosts of the option collateralUrls can be reached.',
      developer: LATER,
    },
  }),
  ...rows(503, 'attestation', {
    secret_exchange_failed: {
      retryAfter: 5,
      title: 'The secret exchange failed',
      operator: 'Try again; report it if it persists.',
      developer: LATER,
    },
  }),
  ...rows(503, 'upstream', {
    control_api_failed: {
      retryAfter: 5,
      title: 'The service answered with an error',
      operator: 'Try again; check the status of the service.',
      developer: LATER,
    },
    secret_denied: {
      retryAfter: 5,
      operator: 'Try again in a moment; if it persists, report it to the operator of the service.',
      developer: LATER,
    },
  }),

  // Start-up and configuration: exit code 1, never an HTTP response.
  ...rows(0, 'operator', {
    config_invalid: {
      operator: 'See privatemode-proxy --help.',
      application: 'See the options in the README of privatemode-ai.',
    },
    unsafe_roots_refused: {
      operator: 'Drop --unsafe-trust-roots, or point --api-endpoint at a simulator.',
      application: 'Leave out unsafeTrustRoots, or set apiEndpoint and cdnBaseUrl to a simulator.',
    },
    verify_input_invalid: 'Check the named files; see verify --help for their formats.',
    listen_failed:
      'Choose another --port or --listen-address; for the admin listener another --admin-address.',
    receipts_unavailable:
      'Make room on the disk of --workspace, or make it writable, or start without --receipts.',
    receipts_unreadable: 'Name the directory of the receipts with --dir, and its key with --public-key.',
  }),
  ...rows(500, 'internal', {
    internal: {
      operator: 'Report this with the request id and the log around it.',
      application: 'Report this with the request id.',
      developer: 'Tell the operator of this gateway, with the request id.',
    },
  }),
};

/** What happened, for code to decide on. A code stays the same and never gets another meaning. */
export type ErrorCode = keyof typeof ERRORS;

/**
 * Facts for code to decide on, beyond the code of an error or of a failed check. Messages are for people: no
 * code parses one.
 */
export interface FailureDetail {
  /**
   * Something is not valid yet (`early`) or no longer (`late`) by our clock, so that a wrong clock may be the
   * cause.
   */
  readonly clock?: 'early' | 'late' | undefined;
  /** The hardware for which no trust root was given: a product line of AMD, or `tdx`. */
  readonly missingRoot?: string | undefined;
  /** A newer manifest could not be fetched, under which the service may pass. */
  readonly newestMissing?: true | undefined;
  /** The evidence has a form that a newer version of this program may understand. */
  readonly newer?: true | undefined;
  /** Seconds for which the host that failed wants no such request. */
  readonly pause?: number | undefined;
}

/**
 * An error: a stable code, a message for a person, and what to do next. Node prints the own properties of an
 * error that nobody catches, so a property without a value is not set.
 */
export class PrivatemodeError extends Error {
  override readonly name = 'PrivatemodeError';
  /** What happened, for code: a row of `ERRORS`. */
  readonly code: ErrorCode;
  /** What to do next, as one sentence. */
  readonly remedy: string;
  /** Seconds after which it is worth trying again, if known. */
  declare readonly retryAfter: number | undefined;
  /**
   * What the API itself says of this error, if it does: the place in the request, and a code that the clients
   * of the API know.
   */
  declare readonly api: { readonly param: string; readonly code: string } | undefined;
  /** Facts for code to decide on beyond the code, if there are any. */
  declare readonly detail: FailureDetail | undefined;

  /** `remedy` replaces the remedy of the table, if the cause is known better than the code tells. */
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
    const { remedy = ERRORS[code].remedies.operator, retryAfter, api, detail } = options ?? {};
    this.code = code;
    this.remedy = remedy;
    if (retryAfter !== undefined) this.retryAfter = retryAfter;
    if (api !== undefined) this.api = api;
    if (detail !== undefined) this.detail = detail;
  }

  /** HTTP status of the response that carries this error; 0: none does. */
  get status(): number {
    return ERRORS[this.code].status;
  }

  /** Whose fault it is, which says who can mend it. */
  get blame(): Blame {
    return ERRORS[this.code].blame;
  }
}

/** The remedy if something is not valid yet, or no longer: most often our own clock is wrong. */
export const CLOCK_REMEDY =
  'Check the clock of this machine first; if it is right, do not trust the remote and report this.';

/**
 * Turns anything thrown into a PrivatemodeError. An unknown cause becomes `internal` without quoting its
 * text.
 */
export function asPrivatemodeError(thrown: unknown): PrivatemodeError {
  if (thrown instanceof PrivatemodeError) return thrown;
  return new PrivatemodeError('internal', 'an internal error occurred', { cause: thrown });
}
