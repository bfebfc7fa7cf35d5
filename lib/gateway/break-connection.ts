import type { Call } from './exchange.ts';

/** Ends the connection so that no client can take what it got for a complete answer (trap 12). */
export function breakConnection(call: Call): void {
  const { res } = call;
  call.broken = true;
  // Without chunked framing, as for HTTP/1.0 clients, an ordinary close would look like the end of the body.
  const { socket } = res;
  if (res.chunkedEncoding || socket === null || 'encrypted' in socket) res.destroy();
  else socket.resetAndDestroy();
}
