/**
 * All errors that this program shows, in one table: whose fault an error is, which HTTP status it has, what
 * the reader can do next, and whether a retry can help. The code of an error is stable, because clients, log
 * searches and dashboards match on the code. No code is reused with another meaning.
 */

/** Whose fault an error is. */
export type Blame = 'client' | 'operator' | 'upstream' | 'network' | 'attestation' | 'internal';

/** What the reader of an error should do next, as one sentence. */
export interface Remedies {
  /** The remedy for the person who runs the proxy: its flags, files and network. */
  readonly operator: string;
  /** The remedy for users of the client library: its options and runtime. The default is `operator`. */
  readonly application?: string;
  /** The remedy for developers who use a gateway (--clients). The default is `operator`. */
  readonly developer?: string;
}

interface ErrorRow {
  /** HTTP status of the response to the application, or 0 if the error never becomes a response. */
  readonly status: number;
  /** Whose fault the error is, which tells who can resolve the error. */
  readonly blame: Blame;
  /** Seconds after which to retry (`retry-after`), unless the thrown error itself has a number of seconds. */
  readonly retryAfter?: number;
  /**
   * Whether repeating the request cannot help. The response then has `x-should-retry: false`, because SDKs of
   * OpenAI and Anthropic otherwise repeat a request after every 5xx and 429. Agents use only the HTTP status.
   */
  readonly isFinal?: true;
  /** A clause that says what has failed. The log of a failed verification begins with this clause. */
  readonly title?: string;
  readonly remedies: Remedies;
}
type Texts = Remedies & Pick<ErrorRow, 'title'>;
/** When a client may send the request again, as response headers tell agents and SDKs. */
type Repetition = Pick<ErrorRow, 'retryAfter' | 'isFinal'>;

const ANYTIME: Repetition = {};
const FINAL: Repetition = { isFinal: true };
const after = (retryAfter: number): Repetition => ({ retryAfter });

/** What a developer can do about an error that only the operator of the gateway can resolve. */
const [TELL, LATER] = [
  'Tell the operator of this gateway; nothing on your side changes this.',
  'Try again; if it persists, tell the operator of this gateway.',
];

/**
 * Makes the rows of codes with the same status, blame and repetition. A plain text is the remedy for all
 * readers. If the client is not to blame, all other rows tell developers to wait or to tell the operator.
 */
function rows<Code extends string>(
  status: number,
  blame: Blame,
  repetition: Repetition,
  texts: Record<Code, string | Texts>,
): Record<Code, ErrorRow> {
  const forDeveloper = blame === 'client' ? {} : { developer: repetition.isFinal ? TELL : LATER };
  const made = Object.entries<string | Texts>(texts).map(([code, text]) => {
    const own: Texts = typeof text === 'string' ? { operator: text } : { ...forDeveloper, ...text };
    const { title, ...remedies } = own;
    return [code, { status, blame, ...repetition, title, remedies }];
  });
  return Object.fromEntries(made) as Record<Code, ErrorRow>;
}

export const ERRORS = {
  // Errors of the application's request (docs/protocol/inference.md 5.4 and 11).
  ...rows(400, 'client', ANYTIME, {
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
    // The remedy names the setting of each client program that uses this API by default, because the users of
    // these client programs read this line and no page of our documentation.
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
  ...rows(431, 'client', ANYTIME, { too_many_headers: 'Send fewer headers.' }),
  ...rows(415, 'client', ANYTIME, { unsupported_encoding: 'Send the body without Content-Encoding.' }),
  ...rows(403, 'client', ANYTIME, {
    origin_forbidden:
      'If you trust the page, have its origin allowed (--cors-allowed-origins), or the host name that it uses (--allowed-hosts).',
    client_forbidden: 'Use what this client may use, or ask the operator of this gateway (--clients).',
  }),
  ...rows(429, 'client', FINAL, {
    tokens_per_day_reached: 'Wait until the day ends (UTC), or ask the operator of this gateway (--clients).',
  }),
  ...rows(429, 'client', ANYTIME, {
    requests_per_minute_reached: 'Wait as long as Retry-After says, then send fewer requests per minute.',
    max_concurrent_reached: 'Wait until one of your own requests is over, then try again.',
    max_in_flight_reached: 'Wait as long as Retry-After says; if it persists, have --max-in-flight raised.',
  }),
  ...rows(404, 'client', ANYTIME, {
    unknown_path: 'Use an endpoint such as /v1/chat/completions; GET /v1 of a gateway lists them all.',
  }),
  ...rows(405, 'client', ANYTIME, { method_not_allowed: 'Use a method named in the Allow header.' }),
  ...rows(426, 'client', ANYTIME, {
    websocket_unsupported: 'Send POST /v1/responses over HTTP; with "stream": true it streams.',
  }),
  ...rows(408, 'client', ANYTIME, { upload_too_slow: 'Send the body faster.' }),
  ...rows(413, 'client', ANYTIME, {
    body_too_large: 'Send a smaller body, or have the limit raised, if one is named here.',
  }),
  // This error has no response of its own: a response has begun, and the client does not read it.
  ...rows(0, 'client', ANYTIME, {
    response_not_read: 'Read responses as they come, or close the connection.',
  }),

  // Failures of the service or the network.
  ...rows(502, 'network', ANYTIME, {
    upstream_unreachable: {
      title: 'The service cannot be reached',
      operator: 'Check the network, --api-endpoint and the proxy settings.',
      application: 'Check the network and the options apiEndpoint, cdnBaseUrl and collateralUrls.',
    },
  }),
  ...rows(502, 'network', FINAL, {
    upstream_tls_untrusted: {
      title: 'A TLS certificate is not trusted',
      operator: 'Behind a TLS inspection appliance, name its CA bundle (PEM) in SSL_CERT_FILE and restart.',
      application:
        'Have the runtime trust the CA, that of a TLS inspection appliance or the ca.pem of a simulator: NODE_EXTRA_CA_CERTS in Node and Bun, DENO_CERT in Deno.',
    },
  }),
  ...rows(502, 'upstream', ANYTIME, {
    upstream_reset: { title: 'The service closed the connection', operator: 'Try again.' },
    upstream_closed_during_upload: 'Try again; if it persists, send a smaller body.',
    response_not_encrypted: 'Treat this answer as forged and report it.',
    response_malformed: 'Try again, and report it if it persists.',
    response_not_authentic: 'Treat this answer as tampered with and report it.',
    response_too_large: 'Ask for a smaller answer.',
    stream_unfinished: 'Do not use the partial answer as if it were complete; try again.',
  }),
  ...rows(502, 'upstream', FINAL, {
    upstream_http2_only: {
      title: 'The service offers HTTP/2 only',
      operator:
        'Use an address that offers HTTP/1.1 (--api-endpoint, --cdn-base-url), or put a reverse proxy that does in front of the service.',
      application: 'Set the option apiEndpoint to an address that speaks HTTP/1.1, or set the option fetch.',
    },
    upstream_redirect: {
      title: 'The service answered with a redirect',
      operator: 'Check --api-endpoint; redirects are never followed.',
      application: 'Check the option apiEndpoint; redirects are never followed.',
    },
  }),
  ...rows(504, 'network', ANYTIME, {
    upstream_connect_timeout: {
      title: 'The service does not answer in time',
      operator: 'Check the network and --api-endpoint.',
      application: 'Check the network and the options apiEndpoint, cdnBaseUrl and collateralUrls.',
    },
  }),
  ...rows(504, 'upstream', ANYTIME, {
    first_byte_timeout: {
      operator: 'Try again, or raise --first-byte-timeout.',
      application: 'Try again, or raise the option firstByteTimeout.',
    },
    stream_idle_timeout: {
      operator: 'Try again, or raise --stream-idle-timeout.',
      application: 'Try again, or raise the option streamIdleTimeout.',
    },
  }),
  ...rows(503, 'operator', ANYTIME, {
    resources_exhausted: {
      title: 'This machine has no resources left for a connection',
      operator: 'Raise the limits of the machine (open files, local ports, processes), or run more replicas.',
    },
  }),
  ...rows(503, 'operator', after(2), {
    too_many_uploads: 'Try again; if it persists, have --max-buffered-bytes raised.',
    too_many_responses:
      'Try again; if it persists, ask for smaller answers or have --max-buffered-bytes raised.',
    shutting_down: {
      operator: 'Try again; the proxy is being restarted.',
      application: 'Make a new client.',
    },
    limits_unavailable: 'Try again; if it persists, have the store of the limits checked (--limits-store).',
  }),

  // Errors of the attested session (docs/protocol/attestation.md).
  ...rows(503, 'attestation', after(2), {
    not_ready: {
      operator: 'Try again in a moment; the remote is still being verified.',
      application:
        'Try again in a moment, or raise the option verificationTimeout; the service is still being verified.',
    },
  }),
  ...rows(401, 'client', FINAL, {
    client_unknown:
      'Send the token that you were given for this gateway, which is no key of the service, as "Authorization: Bearer TOKEN" or in x-api-key.',
    api_key_missing: {
      operator:
        'Send an API key as "Authorization: Bearer KEY" or in x-api-key, or start the proxy with --api-key.',
      application: 'Give the option apiKey, or set PRIVATEMODE_API_KEY.',
    },
    api_key_rejected: {
      title: 'The service does not accept the API key',
      operator: 'Check the API key.',
      application:
        'Check the option apiKey of createPrivatemodeFetch or PrivatemodeAI, or PRIVATEMODE_API_KEY; the key that is given to an SDK is never sent.',
    },
  }),
  // Errors that the operator has to resolve. The status is 400, because clients repeat a request for minutes
  // after a 5xx, and people check their own tokens after a 401.
  ...rows(400, 'operator', FINAL, {
    service_key_rejected: {
      operator:
        "Check the keys of this gateway for the service: that of --api-key, and a client's apiKey in the file of --clients; the client's token is fine.",
      developer: 'Your token is fine; tell the operator of this gateway.',
    },
    client_too_old: {
      title: 'The service wants a newer version of this program',
      operator:
        'Update privatemode-proxy to the latest version; --protocol-version finds out which versions the service takes (an experiment).',
      application: 'Update privatemode-ai to the latest version.',
    },
  }),
  // Reasons for which the proxy refuses a service. The status is 400, because clients repeat a request for
  // minutes after a 5xx, and repeating the request does not resolve these errors.
  ...rows(400, 'attestation', FINAL, {
    attestation_failed: {
      title: 'Attestation of the remote failed',
      operator:
        'Do not trust the remote; report it with the proof that "privatemode-proxy verify --save FILE" keeps.',
      application: 'Do not trust the service; verify() rejects with an error whose verdict has every check.',
    },
    evidence_malformed: {
      title: 'The evidence of the remote cannot be read',
      operator: 'Do not trust the remote; report this error.',
      application: 'Do not trust the service; report this error.',
    },
    manifest_mismatch: {
      title: 'The service does not run under the expected manifest',
      operator:
        'Find out what changed, and who says so; then replace the file, if --manifest-path gives the manifest.',
      application:
        'Try again in a moment: a deployment is being replaced. If it persists, report it to the publisher of the service.',
    },
    manifest_unsupported: {
      title: 'The manifest needs a newer version of this program',
      operator: 'Update privatemode-proxy to the latest version.',
      application: 'Update privatemode-ai to the latest version.',
    },
    manifest_invalid: {
      title: 'The manifest cannot be used',
      operator: 'Check the manifest; it breaks a rule that holds in every version.',
      application: 'Check the option manifest, or leave it out to follow the published one.',
    },
  }),
  ...rows(503, 'operator', FINAL, {
    manifest_log_failed: {
      title: 'The workspace cannot be written',
      operator:
        'Make room on the disk of --workspace, or make it writable; the proxy enforces no manifest that it cannot log.',
    },
  }),
  ...rows(503, 'network', after(5), {
    manifest_unavailable: {
      title: 'The manifest cannot be fetched',
      operator: 'Check that the manifest host can be reached.',
      application: 'Check that the host of the option cdnBaseUrl can be reached.',
    },
    collateral_unavailable: {
      title: 'The certificates or revocation lists of AMD or Intel cannot be fetched',
      operator: 'Check that the collateral hosts of AMD or Intel can be reached.',
      application: 'Check that the hosts of the option collateralUrls can be reached.',
    },
  }),
  ...rows(503, 'attestation', after(5), {
    secret_exchange_failed: {
      title: 'The secret exchange failed',
      operator: 'Try again; report it if it persists.',
    },
  }),
  ...rows(503, 'upstream', after(5), {
    control_api_failed: {
      title: 'The service answered with an error',
      operator: 'Try again; check the status of the service.',
    },
    secret_denied: 'Try again in a moment; if it persists, have it reported to the operator of the service.',
  }),

  // Errors of start-up and configuration. They lead to exit code 1, and never to an HTTP response.
  ...rows(0, 'operator', ANYTIME, {
    config_invalid: {
      operator: 'See privatemode-proxy --help.',
      application: 'See the options in the README of privatemode-ai.',
    },
    unsafe_roots_refused: {
      operator: 'Drop --unsafe-trust-roots, or name a simulator with --api-endpoint and --manifest-path.',
      application: 'Leave out unsafeTrustRoots, or set apiEndpoint and cdnBaseUrl to a simulator.',
    },
    verify_input_invalid: 'Check the named files; see verify --help for their formats.',
    listen_failed: 'Choose another --port, --listen-address, --admin-address or --metrics-address.',
    receipts_unavailable:
      'Make room on the disk of --workspace, or make it writable, or start without --receipts.',
    receipts_unreadable: 'Name the directory of the receipts with --dir, and its key with --public-key.',
  }),
  ...rows(500, 'internal', ANYTIME, {
    internal: 'Report this with the request id, and with the log around it if you have that.',
  }),
};

/** The code of an error, for decisions by programs. A code is stable and never gets another meaning. */
export type ErrorCode = keyof typeof ERRORS;

/**
 * Facts by which programs decide, in addition to the code of an error or of a failed check. Messages are for
 * people, and no program parses a message.
 */
export interface FailureDetail {
  /** By our clock, something is not valid yet (`early`) or has expired (`late`). Our clock may be wrong. */
  readonly clock?: 'early' | 'late' | undefined;
  /** The evidence has a form that a newer version of this program may understand. */
  readonly newer?: true | undefined;
  /** Seconds during which the failed host wants no request of the same kind. */
  readonly pause?: number | undefined;
}

type Known = Pick<PrivatemodeError, 'retryAfter' | 'api' | 'detail'>;

/**
 * An error with a stable code, a message for a person, and what to do next. Node prints the own properties of
 * an uncaught error, so a property without a value is not set.
 */
export class PrivatemodeError extends Error {
  override readonly name = 'PrivatemodeError';
  /** The code of the error, a key of `ERRORS`, for decisions by programs. */
  readonly code: ErrorCode;
  /** What to do next, as one sentence. */
  readonly remedy: string;
  /** Seconds after which a retry makes sense, if known. */
  declare readonly retryAfter: number | undefined;
  /**
   * The words of the API for this error, if there are any: the place in the request, and a code that clients
   * of the API know.
   */
  declare readonly api: { readonly param: string; readonly code: string } | undefined;
  /** Additional facts for decisions by programs, if there are any. */
  declare readonly detail: FailureDetail | undefined;

  /** `remedy` replaces the remedy of the table if more is known about the cause than the code says. */
  constructor(
    code: ErrorCode,
    message: string,
    options: { cause?: unknown; remedy?: string | undefined } & Partial<Known> = {},
  ) {
    super(message, options);
    const { remedy = ERRORS[code].remedies.operator, retryAfter, api, detail } = options;
    this.code = code;
    this.remedy = remedy;
    if (retryAfter !== undefined) this.retryAfter = retryAfter;
    if (api !== undefined) this.api = api;
    if (detail !== undefined) this.detail = detail;
  }

  /** HTTP status of the response with this error, or 0 if no response has this error. */
  get status(): number {
    return ERRORS[this.code].status;
  }

  /** Whose fault the error is, which tells who can resolve the error. */
  get blame(): Blame {
    return ERRORS[this.code].blame;
  }
}

/** The remedy if something seems not yet valid, or expired. Most often, our own clock is wrong then. */
export const CLOCK_REMEDY =
  'Check the clock of this machine first; if it is right, do not trust the remote and report this.';

/** Turns any thrown value into a PrivatemodeError. The error `internal` quotes nothing of its cause. */
export function asPrivatemodeError(thrown: unknown): PrivatemodeError {
  if (thrown instanceof PrivatemodeError) return thrown;
  return new PrivatemodeError('internal', 'an internal error occurred', { cause: thrown });
}
