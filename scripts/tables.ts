/** Writes the tables of endpoints, flags, errors, notices, metrics and checks into pages, from the code. */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { ENDPOINTS, served } from '../lib/api/endpoints.ts';
import { CHECK_SECTIONS } from '../lib/attestation/verify-evidence.ts';
import { systemClock } from '../lib/clock.ts';
import { LISTED } from '../lib/config/flags.ts';
import { type Blame, ERRORS, type ErrorCode } from '../lib/errors.ts';
import { createCounters } from '../lib/observe/counters.ts';
import { createMetrics } from '../lib/observe/metrics.ts';
import { NOTICES } from '../lib/observe/notices.ts';
import { replaceSection } from './marked-section.ts';

const ROOT = join(import.meta.dirname, '..');

const WHOSE: Readonly<Record<Blame, string>> = {
  client: 'request',
  operator: 'set-up',
  upstream: 'service',
  network: 'network',
  attestation: 'verification',
  internal: 'program',
};

/** What has happened, for whoever finds the code in a log. */
const MEANING: Readonly<Record<ErrorCode, string>> = {
  invalid_json: 'The body is not one JSON object.',
  duplicate_member: 'The body names a member twice.',
  unsupported_member_name: 'The value of this member cannot be encrypted.',
  invalid_plain_member: 'A member that is sent unencrypted has an unknown value.',
  missing_model: 'The body names no model.',
  invalid_model: 'The name of the model is not valid.',
  salt_too_short: 'The `cache_salt` of the request is too short.',
  context_too_large: 'The prompt is too long for a shared prompt cache.',
  invalid_multipart: 'The form cannot be read.',
  repeated_form_field: 'The form has a field twice.',
  unsupported_response_format: 'Transcripts come as JSON only.',
  media_url_refused: 'The service does not fetch such media.',
  hosted_tool_refused: 'Anthropic itself runs this tool; this service does not.',
  invalid_path: 'The path can be read in two ways.',
  ambiguous_header: 'A header that may occur only once came twice.',
  invalid_host: 'The `Host` header is missing, or names no host.',
  malformed_request:
    'The bytes are not valid HTTP/1.1, or came too slowly. Another 4xx, or 505, names the code only in its header.',
  too_many_headers: 'The request has too many headers.',
  unsupported_encoding: 'The body is compressed.',
  origin_forbidden: 'This web page may not use the proxy.',
  client_forbidden: 'This client may not use the endpoint or the model.',
  client_unknown: 'The token is missing, unknown or expired.',
  requests_per_minute_reached: 'The client has used up its `requestsPerMinute`.',
  tokens_per_day_reached: 'The client has used up its `tokensPerDay`.',
  max_concurrent_reached: 'The client has used up its `maxConcurrent`.',
  max_in_flight_reached: 'All places are taken, and none became free in time.',
  unknown_path: 'There is no such endpoint.',
  method_not_allowed: 'The endpoint exists, with another method.',
  websocket_unsupported: 'A client tried a WebSocket first; it then continues over HTTP.',
  upload_too_slow: 'The body came more slowly than 1 KiB/s over 10 s, or in very many tiny chunks.',
  body_too_large: 'The body is larger than `--max-body-bytes` (128 MiB) or all of `--max-buffered-bytes`.',
  response_not_read: 'The client read nothing of a waiting response for ten minutes.',
  not_supported: 'The service has no Responses API.',
  upstream_unreachable: 'No connection to the service: name, route, port, firewall or TLS handshake.',
  upstream_tls_untrusted: 'The certificate of the service is not trusted here.',
  upstream_reset: 'The service closed the connection before it answered.',
  upstream_closed_during_upload: 'The service closed the connection during the upload.',
  upstream_http2_only: 'The service speaks HTTP/2 only.',
  upstream_redirect: 'The service answered with a redirect.',
  response_not_encrypted: 'A successful response came in plain text.',
  response_malformed:
    'The response does not have the expected format. A status other than 502 is that of the service or a gateway.',
  response_not_authentic: 'The response, or a part of it, does not come from the attested service.',
  response_too_large: 'The response, or one event of it, exceeds the memory for it.',
  stream_unfinished: 'The stream ended before the response was complete.',
  upstream_connect_timeout: 'The service did not accept a connection within 10 s.',
  first_byte_timeout: 'No response began in time.',
  stream_idle_timeout: 'The response paused for too long.',
  resources_exhausted: 'A resource of this machine is used up.',
  too_many_uploads: 'Other request bodies fill the memory for them.',
  too_many_responses: 'Other responses fill the memory for them.',
  limits_unavailable: 'The store of the limits cannot be reached.',
  shutting_down: 'The proxy stops, and the response did not end within `--shutdown-grace`.',
  not_ready:
    'The service is not verified yet, does not answer, or differs from its manifest for now; the message says which.',
  api_key_missing: 'Neither the proxy nor the request has a key.',
  api_key_rejected: 'The service does not know the key.',
  attestation_failed: 'The service failed a check of its evidence; nothing was sent to it.',
  evidence_malformed: 'The evidence of the service cannot be read.',
  manifest_mismatch: 'The service is not what the manifest describes.',
  service_key_rejected: 'The service does not accept the key of the gateway.',
  client_too_old: 'The service says, in clear text, that it wants a newer client.',
  manifest_unsupported: 'The manifest is newer than this program.',
  manifest_invalid: 'The manifest contradicts itself or its format.',
  manifest_unavailable: 'The manifest could not be fetched.',
  manifest_log_failed: 'The manifest could not be written to the workspace.',
  collateral_unavailable: "The vendor's certificates or revocation lists are missing, or cannot be used.",
  secret_exchange_failed: 'The exchange of the secret failed.',
  control_api_failed: 'The service refused to send its evidence or a secret.',
  secret_denied: 'The service denies the secret, also after a second attempt or a new one.',
  config_invalid: 'A flag, a variable or a file is wrong; the message says which.',
  unsafe_roots_refused: "A flag asks to trust a simulator's hardware roots for the real service.",
  verify_input_invalid: 'A file for `verify` cannot be used.',
  listen_failed: 'The port cannot be opened; mostly another program has it.',
  receipts_unavailable: 'Receipts cannot be written, or their directory cannot be read.',
  receipts_unreadable: 'The receipts, or their key, cannot be read.',
  internal: 'A defect of this program.',
};

const inCode = (text: string): string => `\`${text}\``;

/** A table of Markdown. */
const table = (head: readonly string[], rows: readonly (readonly string[])[]): string =>
  [head, head.map(() => '---'), ...rows].map((cells) => `| ${cells.join(' | ')} |`).join('\n');

function flagsTable(): string {
  const rows = LISTED.map(({ short, name, aliases = [], type, default: usual, help }) => {
    const names = [short && `-${short}`, `--${name}`].filter(Boolean).map((each) => `\`${each}\``);
    const also = aliases.filter(({ deprecated }) => !deprecated).map((alias) => `\`--${alias.name}\``);
    const meaning = help + (also.length > 0 ? ` Also written ${also.join(', ')}.` : '');
    const fallback = usual === undefined ? (type === 'boolean' ? '' : 'unset') : `\`${usual}\``;
    return [names.join(', '), type, fallback, meaning].map((cell) => cell.replaceAll('|', '\\|'));
  });
  return table(['Flag', 'Type', 'Default', 'Meaning'], rows);
}

/** What `/metrics` has with --clients, but for what prom-client adds of the process. */
function metricsTable(): string {
  const { all } = createMetrics({
    clock: systemClock,
    counters: createCounters(),
    protection: () => undefined,
    standing: () => ({ verified: true }),
    serverAddress: '',
    maxBufferedBytes: 1,
    notices: () => [],
    certificateEnds: () => undefined,
    clients: true,
    processMetrics: false,
  });
  const rows = all().map((metric) => {
    const { name, type, help, labelNames } = metric as unknown as Record<'name' | 'help' | 'type', string> & {
      readonly labelNames: readonly string[];
    };
    return [inCode(name), type, labelNames.map(inCode).join(', '), help];
  });
  return table(['Metric', 'Type', 'Labels', 'Meaning'], rows);
}

function noticesTable(): string {
  const rows = Object.entries(NOTICES).map(([id, of]) => [inCode(id), of.severity, of.title, of.remedy]);
  return table(['Notice', 'Severity', 'What is wrong', 'What to do'], rows);
}

function errorsTable(): string {
  const rows = Object.entries(ERRORS).map(([code, { status, blame, remedies }]) => [
    ...[`\`${code}\``, `${status || '–'}`, MEANING[code as ErrorCode], WHOSE[blame], remedies.operator],
  ]);
  return table(['Code', 'Status', 'What has happened', 'Cause', 'What to do'], rows);
}

/** A table for each kind of check, with one row for those that differ in their ids alone. */
function checksTables(): string {
  return CHECK_SECTIONS.map(({ title, rows }) => {
    const rules = Map.groupBy(rows, ({ expected, source, conditional, code }) =>
      [
        `${expected}${conditional ? ' (may not apply)' : ''}${code ? ` → \`${code}\`` : ''}`,
        source.replace('attestation.md ', ''),
      ].join(' | '),
    );
    const cells = [...rules].map(([rule, checks]) => [checks.map(({ id }) => inCode(id)).join(', '), rule]);
    return `### ${title}\n\n${table(['id', 'what must hold', 'source'], cells)}`;
  }).join('\n\n');
}

const endpointsList = (): string => `${served(true).map(inCode).join(', ')}.`;

/** Each table: its page, and the name of the marked section there. */
const TABLES = [
  { page: 'docs/applications.md', section: 'endpoints', render: endpointsList },
  { page: 'docs/configuration.md', section: 'flags', render: flagsTable },
  { page: 'docs/errors.md', section: 'errors', render: errorsTable },
  { page: 'docs/operating.md', section: 'notices', render: noticesTable },
  { page: 'docs/monitoring.md', section: 'metrics', render: metricsTable },
  { page: 'docs/verify.md', section: 'checks', render: checksTables },
] as const;

/** The schema of clients files, which lists the endpoints that a client may use. */
const SCHEMA = 'docs/clients-file.schema.json';
const LISTED_ENDPOINTS = /(?<="endpoints": \{[^[]*"enum": \[)[^\]]*(?=\n *\])/;

/** The pages as they should be, by their path in the repository. */
export function renderTables(): ReadonlyMap<string, string> {
  const read = (page: string): string => readFileSync(join(ROOT, page), 'utf8');
  const ids = ENDPOINTS.map(({ id }) => `\n              "${id}"`).join();
  const pages = new Map([[SCHEMA, read(SCHEMA).replace(LISTED_ENDPOINTS, ids)]]);
  for (const { page, section, render } of TABLES)
    pages.set(page, replaceSection(read(page), section, render()));
  return pages;
}

if (import.meta.main) {
  for (const [page, text] of renderTables()) writeFileSync(join(ROOT, page), text);
}
