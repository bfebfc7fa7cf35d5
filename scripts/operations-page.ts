/** Writes the table of error codes in docs/operations.md from lib/errors.ts. */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { type Blame, ERRORS, type ErrorCode } from '../lib/errors.ts';
import { replaceSection } from './marked-section.ts';

const PAGE = join(import.meta.dirname, '../docs/operations.md');

const WHOSE: Readonly<Record<Blame, string>> = {
  client: 'the request',
  operator: 'the set-up',
  upstream: 'the service',
  network: 'the network',
  attestation: 'the verification',
  internal: 'this program',
};

/** What has happened, for whoever finds the code in a log. */
const MEANING: Readonly<Record<ErrorCode, string>> = {
  invalid_json: 'The body is not one JSON object.',
  duplicate_member: 'The body names a member twice.',
  unsupported_member_name: 'The body has a member whose name the encryption cannot address.',
  invalid_plain_member: 'A member that leaves unencrypted has a value that its API does not know.',
  missing_model: 'The body names no model.',
  invalid_model: 'The name of the model cannot be one.',
  salt_too_short: 'The `cache_salt` of the request has fewer than 32 bytes.',
  context_too_large: 'The prompt is too long for a shared prompt cache.',
  invalid_multipart: 'The form cannot be read.',
  repeated_form_field: 'The form has a field twice.',
  unsupported_response_format: 'A transcript was asked for in a format other than JSON.',
  media_url_refused: 'The request points to media that the service does not fetch.',
  invalid_path: 'The path of the request could be read in two ways.',
  ambiguous_header: 'A header that decides something was sent twice.',
  invalid_host: 'The `Host` header is missing, empty, or not one host name with an optional port.',
  malformed_request:
    'The bytes are no request of HTTP/1.1, or came too slowly; only the header names this code, with a status of 4xx or 505.',
  too_many_headers: 'The request has more headers than are read.',
  unsupported_encoding: 'The body is compressed, so that its members cannot be encrypted.',
  unauthorized: 'Kept for its meaning; no answer has it today.',
  origin_forbidden: 'A web page that is not allowed to use the proxy has asked.',
  unknown_path: 'There is no such endpoint; nothing was sent to the service.',
  method_not_allowed: 'The endpoint exists, with another method.',
  upload_too_slow: 'The body came more slowly than `--min-upload-rate`.',
  body_too_large: 'The body is larger than `--max-body-bytes`, or than all of `--max-buffered-bytes`.',
  not_supported: 'The service has no Responses API.',
  upstream_unreachable: 'No connection to the service: name, route or port.',
  upstream_tls_untrusted:
    'The certificate of the service is not signed by an authority that is trusted here.',
  upstream_reset: 'The service closed the connection before it answered.',
  upstream_closed_during_upload: 'The service closed the connection while the request was sent.',
  upstream_redirect: 'The service answered with a redirect.',
  response_not_encrypted: 'A success came in plain text, which only somebody else would send.',
  response_malformed: 'The answer is not what was asked for.',
  response_not_authentic: 'The answer, or a part of it, was not made by the attested service.',
  response_too_large: 'The answer, or one event of it, is larger than is kept in memory.',
  stream_unfinished: 'The stream ended before the answer did.',
  upstream_connect_timeout: 'The service did not accept a connection within `--connect-timeout`.',
  first_byte_timeout: 'No answer began within `--first-byte-timeout`.',
  stream_idle_timeout: 'The answer paused for longer than `--stream-idle-timeout`.',
  resources_exhausted: 'This machine has no file descriptor or local port left.',
  too_many_uploads: 'Other request bodies fill `--max-buffered-bytes`.',
  shutting_down: 'The proxy was told to stop, and the answer did not end within `--shutdown-grace`.',
  not_ready: 'The remote has not been verified yet; the words say what is in the way.',
  api_key_missing: 'Neither the proxy nor the request has a key.',
  api_key_rejected: 'The service does not know the key.',
  attestation_failed: 'The remote did not prove what it has to prove; nothing was sent to it.',
  evidence_malformed: 'The proof of the remote cannot be read.',
  manifest_mismatch: 'The remote is not what the manifest describes.',
  manifest_unsupported: 'The manifest is newer than this program.',
  manifest_invalid: 'The manifest contradicts itself or its format.',
  manifest_unavailable: 'The manifest could not be fetched.',
  manifest_log_failed: 'The manifest could not be written to the workspace.',
  collateral_unavailable:
    "The vendor's certificates or revocation lists could not be fetched, or are not usable.",
  secret_exchange_failed: 'No secret could be agreed with the attested remote.',
  control_api_failed: 'The service refused to prove itself or to hand out a secret.',
  config_invalid: 'A flag, a variable or a file that it names is wrong; the words say which.',
  unsafe_roots_refused: 'Hardware roots of a simulator were to be trusted for the real service.',
  verify_input_invalid: 'A file for `verify` cannot be used.',
  listen_failed: 'The port cannot be opened, mostly because another program has it.',
  internal: 'A defect of this program.',
};

/** The page as it should be. */
export function renderOperations(): string {
  const rows = Object.entries(ERRORS).map(
    ([code, { status, blame, remedy }]) =>
      `| \`${code}\` | ${status || '–'} | ${MEANING[code as ErrorCode]} | ${WHOSE[blame]} | ${remedy} |`,
  );
  const table = [
    '| Code | Status | What has happened | Lies with | What to do |',
    '| --- | --- | --- | --- | --- |',
    ...rows,
  ].join('\n');
  return replaceSection(readFileSync(PAGE, 'utf8'), 'errors', table);
}

if (import.meta.main) writeFileSync(PAGE, renderOperations());
