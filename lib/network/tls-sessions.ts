/**
 * The TLS sessions of the data path. A connection that resumes a session saves both sides the work of a whole
 * handshake.
 */
import type { TLSSocket } from 'node:tls';

interface KnownSession {
  readonly session: Buffer;
  /**
   * When the certificate of the session was checked, ms since 1970: a resumed connection shows no
   * certificate.
   */
  readonly checkedAt: number;
}

export type TlsSessions = ReturnType<typeof createTlsSessions>;

/** ms after which a certificate is checked anew. */
const LONGEST = 3_600_000;

/**
 * Keeps the newest session of each server, for all agents together: each agent of Node would keep its own.
 * Node emits a session only when it has accepted the certificate. That matters, because Node checks no host
 * name when a session is resumed.
 */
export function createTlsSessions() {
  const known = new Map<string, KnownSession>();
  return {
    /** The session that a connection to `server` may resume; undefined: none. */
    find(server: string): KnownSession | undefined {
      const found = known.get(server);
      return found !== undefined && Date.now() - found.checkedAt < LONGEST ? found : undefined;
    },
    /**
     * Keeps the sessions that `socket` gets. `offered`: the session that it offered to resume, which is
     * forgotten if the handshake fails.
     */
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
