/** TLS sessions of the data path: a connection that resumes one saves both sides the work of a whole handshake. */
import type { TLSSocket } from 'node:tls';

interface KnownSession {
  readonly session: Buffer;
  /** When the certificate behind it was checked, ms since 1970: a resumed connection shows none. */
  readonly checkedAt: number;
}

export type TlsSessions = ReturnType<typeof createTlsSessions>;

/** ms after which a certificate is checked anew. */
const LONGEST = 3_600_000;

/**
 * The newest session of each server, for all agents together: each of Node's would keep its own. Node emits a session only
 * when the certificate is accepted, which matters: it checks no host name where one is resumed.
 */
export function createTlsSessions() {
  const known = new Map<string, KnownSession>();
  return {
    /** What a connection to `server` may resume. */
    find(server: string): KnownSession | undefined {
      const found = known.get(server);
      return found !== undefined && Date.now() - found.checkedAt < LONGEST ? found : undefined;
    },
    /** Keeps the sessions of `socket`, to which `offered` was offered; that is forgotten where the handshake fails. */
    learn(server: string, socket: TLSSocket, offered: KnownSession | undefined): void {
      let accepted = false;
      socket.on('session', (session) => {
        const checkedAt = offered !== undefined && socket.isSessionReused() ? offered.checkedAt : Date.now();
        known.set(server, { session, checkedAt });
      });
      socket.once('secureConnect', () => {
        accepted = true;
      });
      socket.once('close', () => {
        if (!accepted && known.get(server) === offered) known.delete(server);
      });
    },
  };
}
