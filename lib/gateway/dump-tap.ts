import { EventEmitter } from 'node:events';
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Dump } from './request-dump.ts';

/**
 * Copies one exchange into its dump, exactly as the application sends and sees it, whoever writes the answer. Only with
 * --dump-requests: nothing of this is on the way of a request otherwise.
 */
export function tapExchange(req: IncomingMessage, res: ServerResponse, dump: Dump): void {
  // Readable's own on('data') would start the flow; the emitter's only listens to what is read.
  EventEmitter.prototype.on.call(req, 'data', (chunk: Uint8Array) => dump.requestBody(chunk));

  const { writeHead, write, end } = res;
  res.writeHead = ((...args: Parameters<typeof writeHead>) => {
    const returned = writeHead.apply(res, args);
    const given = args.at(-1);
    const headers = Object.entries(typeof given === 'object' ? given : res.getHeaders()).flatMap(
      ([name, value]) => [value ?? ''].flat().map((one) => [name, String(one)] as const),
    );
    dump.responseHead(res.statusCode, headers);
    return returned;
  }) as typeof writeHead;
  const copy = (chunk: unknown): void => {
    if (chunk instanceof Uint8Array) dump.responseBody(chunk);
    else if (typeof chunk === 'string') dump.responseBody(Buffer.from(chunk));
  };
  res.write = ((...args: Parameters<typeof write>) => {
    copy(args[0]);
    return write.apply(res, args);
  }) as typeof write;
  res.end = ((...args: Parameters<typeof end>) => {
    copy(args[0]);
    return end.apply(res, args);
  }) as typeof end;
  res.once('close', () => void dump.end());
}
