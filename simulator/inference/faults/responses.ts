/** Faults that respond in place of the server, delay its response, or mishandle the upload. */
import type { ServerResponse } from 'node:http';
import { pause } from '../pacing.ts';
import { errorBody, Rejection, UNENCRYPTED_ERROR_HEADERS } from '../rejection.ts';
import { plainWire, rejectionWire } from '../wire.ts';
import { PROTOCOL_HEADERS } from '../wire-rules.ts';
import { type Arguments, type FaultRow, harmless, row } from './intervention.ts';

/** The second argument as a header; none without it. */
const retryAfter = ({ text, number }: Arguments): Record<string, string> =>
  text(1, '') === '' ? {} : { 'Retry-After': String(number(1, 0)) };

const TOO_LARGE = errorBody('maximum request size exceeded (max 50MB)');

function writeTooLarge(response: ServerResponse): void {
  const length = { 'Content-Length': Buffer.byteLength(TOO_LARGE), Connection: 'close' };
  response.writeHead(413, { ...UNENCRYPTED_ERROR_HEADERS, ...length });
  response.write(TOO_LARGE);
}

export const RESPONSE_FAULTS = {
  status: row(
    'answers this status (500) in clear, marked and in the OpenAI shape; second argument: Retry-After in seconds',
    (args) => {
      const status = args.number(0, 500);
      const headers = { ...UNENCRYPTED_ERROR_HEADERS, ...retryAfter(args) };
      return { instead: () => plainWire(status, headers, errorBody(`simulated status ${status}`)) };
    },
  ),
  gateway_status: row(
    'answers this status (502) as a gateway would, a text without the mark; second argument: Retry-After in seconds',
    (args) => {
      const headers = { 'Content-Type': 'text/plain', ...retryAfter(args) };
      const text = 'upstream connect error or disconnect before headers';
      const status = args.number(0, 502);
      return { instead: () => plainWire(status, headers, text) };
    },
  ),
  redirect: row('redirects (307) to the same host, query "redirected"', ({ number }) => {
    const status = number(0, 307);
    return {
      instead: ({ headers, url }) =>
        plainWire(status, { Location: `https://${headers.host}${url}?redirected` }, ''),
    };
  }),
  no_secret: row('the worker does not know the secret: 500 "no secret for ID"', () => ({
    instead({ headers }) {
      const id = headers[PROTOCOL_HEADERS.secretId];
      const message = `getting secret for OCSP verification: no secret for ID "${id}"`;
      return rejectionWire(new Rejection(500, message));
    },
  })),
  gpu_status: row(
    "the worker's GPU certificate is good, unknown (default) or revoked; second argument: revoked at, unix seconds (0)",
    ({ text, number }) => {
      const status = text(0, 'unknown');
      if (status === 'revoked') return { gpu: { status, revokedAt: number(1, 0) } };
      if (status === 'good' || status === 'unknown') return { gpu: { status } };
      throw new Rejection(400, `there is no GPU status ${status}`);
    },
  ),
  early_413: row('answers 413 before the body arrived, drains the upload, then closes', () => ({
    async beforeBody(request, response) {
      writeTooLarge(response);
      request.resume();
      if (!request.readableEnded) await new Promise((resolve) => request.once('close', resolve));
      response.end();
    },
  })),
  early_413_abrupt: row('answers 413 before the body arrived and closes at once', () => ({
    async beforeBody(request, response) {
      request.pause();
      writeTooLarge(response);
      response.end(() => request.socket.destroy());
    },
  })),
  slow_drain: harmless(
    row('reads the upload at this many bytes per second (65536)', ({ number }) => ({
      bodyBytesPerSecond: Math.max(number(0, 65_536), 1),
    })),
  ),
  stall_before: row('sends nothing for this many ms (until the client leaves)', ({ number }) => {
    const ms = number(0, Number.POSITIVE_INFINITY);
    return {
      async beforeHead(_response, signal) {
        await pause(ms, signal);
        return 'go on';
      },
    };
  }),
  reset_before_headers: row('resets the connection after the request was read', () => ({
    beforeHead: async () => 'reset',
  })),
  informational: harmless(
    row('sends this many 1xx answers first (20), second argument: ms apart (0)', ({ number }) => {
      const [count, ms] = [number(0, 20), number(1, 0)];
      return {
        async beforeHead(response, signal) {
          for (let sent = 0; sent < count; sent++) {
            response.writeProcessing();
            await pause(ms, signal);
          }
          return 'go on';
        },
      };
    }),
  ),
} satisfies Record<string, FaultRow>;
