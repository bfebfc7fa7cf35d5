/** Faults that respond in place of the server, delay its response, or mishandle the upload. */
import type { ServerResponse } from 'node:http';
import { pause } from '../pacing.ts';
import { errorBody, Rejection, UNENCRYPTED_ERROR_HEADERS } from '../rejection.ts';
import { plainWire, rejectionWire } from '../sealed-response.ts';
import { PROTOCOL_HEADERS } from '../wire-rules.ts';
import type { FaultRow } from './intervention.ts';

const retryAfter = (seconds: number): Record<string, string> =>
  Number.isNaN(seconds) ? {} : { 'Retry-After': String(seconds) };

const TOO_LARGE = errorBody('maximum request size exceeded (max 50MB)');

function writeTooLarge(response: ServerResponse): void {
  response.writeHead(413, {
    ...UNENCRYPTED_ERROR_HEADERS,
    'Content-Length': Buffer.byteLength(TOO_LARGE),
    Connection: 'close',
  });
  response.write(TOO_LARGE);
}

export const RESPONSE_FAULTS = {
  status: {
    does: 'answers this status (500) in clear, marked and in the OpenAI shape; second argument: Retry-After in seconds',
    applies: 'any',
    arm: (args) => ({
      instead: () => {
        const status = args.number(0, 500);
        const headers = { ...UNENCRYPTED_ERROR_HEADERS, ...retryAfter(args.number(1, Number.NaN)) };
        return plainWire(status, headers, errorBody(`simulated status ${status}`));
      },
    }),
  },
  gateway_status: {
    does: 'answers this status (502) as a gateway would, a text without the mark; second argument: Retry-After in seconds',
    applies: 'any',
    arm: (args) => ({
      instead: () => {
        const headers = { 'Content-Type': 'text/plain', ...retryAfter(args.number(1, Number.NaN)) };
        return plainWire(args.number(0, 502), headers, 'upstream connect error or disconnect before headers');
      },
    }),
  },
  redirect: {
    does: 'redirects (307) to the same host, query "redirected"',
    applies: 'any',
    arm: (args) => ({
      instead: ({ headers, url }) =>
        plainWire(args.number(0, 307), { Location: `https://${headers.host}${url}?redirected` }, ''),
    }),
  },
  no_secret: {
    does: 'the worker does not know the secret: 500 "no secret for ID"',
    applies: 'any',
    arm: () => ({
      instead: ({ headers }) => {
        const id = headers[PROTOCOL_HEADERS.secretId];
        return rejectionWire(
          new Rejection(500, `getting secret for OCSP verification: no secret for ID "${id}"`),
        );
      },
    }),
  },
  gpu_status: {
    does: "the worker's GPU certificate is good, unknown (default) or revoked; second argument: revoked at, unix seconds (0)",
    applies: 'any',
    arm: (args) => {
      const status = args.text(0, 'unknown');
      if (status === 'revoked') return { gpu: { status, revokedAt: args.number(1, 0) } };
      if (status === 'good' || status === 'unknown') return { gpu: { status } };
      throw new Rejection(400, `there is no GPU status ${status}`);
    },
  },
  early_413: {
    does: 'answers 413 before the body arrived, drains the upload, then closes',
    applies: 'any',
    arm: () => ({
      async beforeBody(request, response) {
        writeTooLarge(response);
        request.resume();
        if (!request.readableEnded) await new Promise((resolve) => request.once('close', resolve));
        response.end();
        return 'answered';
      },
    }),
  },
  early_413_abrupt: {
    does: 'answers 413 before the body arrived and closes at once',
    applies: 'any',
    arm: () => ({
      async beforeBody(request, response) {
        request.pause();
        writeTooLarge(response);
        response.end(() => request.socket.destroy());
        return 'answered';
      },
    }),
  },
  slow_drain: {
    does: 'reads the upload at this many bytes per second (65536)',
    applies: 'any',
    harmless: true,
    arm: (args) => ({ bodyBytesPerSecond: Math.max(args.number(0, 65_536), 1) }),
  },
  stall_before: {
    does: 'sends nothing for this many ms (until the client leaves)',
    applies: 'any',
    arm: (args) => ({
      async beforeHead(_request, _response, signal) {
        await pause(args.number(0, Number.POSITIVE_INFINITY), signal);
        return 'go on';
      },
    }),
  },
  reset_before_headers: {
    does: 'resets the connection after the request was read',
    applies: 'any',
    arm: () => ({
      async beforeHead() {
        return 'reset';
      },
    }),
  },
  informational: {
    does: 'sends this many 1xx answers first (20), second argument: ms apart (0)',
    applies: 'any',
    harmless: true,
    arm: (args) => ({
      async beforeHead(_request, response, signal) {
        for (let sent = 0; sent < args.number(0, 20); sent++) {
          response.writeProcessing();
          await pause(args.number(1, 0), signal);
        }
        return 'go on';
      },
    }),
  },
} satisfies Record<string, FaultRow>;
