/** Reads and sends small JSON bodies over HTTP, for all endpoints of the simulator but inference. */
import type { IncomingMessage, ServerResponse } from 'node:http';

/**
 * A handler throws this to respond with an error. The body has the service's error shape
 * (docs/protocol/inference.md 11).
 */
export class HttpError extends Error {
  override readonly name = 'HttpError';
  readonly status: number;

  constructor(status: number, message: string) {
    super(message);
    this.status = status;
  }
}

const MAX_BODY_BYTES = 64 * 1024;

/** The body as one JSON object; an empty object if there is no body. Throws HttpError 400 or 413. */
export async function readJsonObject(request: IncomingMessage): Promise<Record<string, unknown>> {
  const chunks: Buffer[] = [];
  let length = 0;
  for await (const chunk of request as AsyncIterable<Buffer>) {
    length += chunk.length;
    // Read to the end even if the body is too large: a connection reset would lose a response sent during the
    // upload.
    if (length <= MAX_BODY_BYTES) chunks.push(chunk);
  }
  if (length > MAX_BODY_BYTES) throw new HttpError(413, 'request body too large');
  if (length === 0) return {};
  let value: unknown;
  try {
    value = JSON.parse(Buffer.concat(chunks).toString('utf8'));
  } catch {
    throw new HttpError(400, 'the request body is not JSON');
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw new HttpError(400, 'the request body is not a JSON object');
  }
  return value as Record<string, unknown>;
}

export function sendJson(response: ServerResponse, status: number, value: unknown): void {
  sendBytes(response, status, 'application/json', Buffer.from(JSON.stringify(value), 'utf8'));
}

export function sendBytes(response: ServerResponse, status: number, type: string, body: Uint8Array): void {
  response.writeHead(status, { 'Content-Type': type, 'Content-Length': body.length });
  response.end(body);
}

/** Sends an error in clear, marked as not encrypted. */
export function sendError(response: ServerResponse, status: number, message: string): void {
  response.setHeader('Privatemode-Encrypted', 'false');
  sendJson(response, status, { error: { message, type: status === 401 ? 'unauthorized' : '' } });
}
