/** Keeps collateral of AMD and Intel (certificates, revocation lists) on disk, to save fetching it again. */
import { hash } from 'node:crypto';
import { readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { inTime, makeDirectory, replace } from '../files/durable-file.ts';

export interface Collateral {
  readonly body: Uint8Array;
  readonly issuerChain: string; // the signer's certificates (PEM) if a header has them, else empty
  readonly fetchedAt: number; // ms since 1970, by the wall clock
}

/** Stores collateral under its URL, by methods like those of a Map. The store never throws. */
export interface CollateralStore {
  get(url: string): Collateral | undefined | Promise<Collateral | undefined>;
  set(url: string, collateral: Collateral): unknown;
  delete(url: string): unknown;
}

/**
 * One file per URL: the second line is JSON with the body in base64, the first line the SHA-256 of the second
 * in hex. A damaged file would look like forged evidence, so it is ignored. A disk that takes over 10 s is
 * ignored, too.
 */
export function createCollateralStore(directory: string): CollateralStore {
  const pathOf = (url: string): string => join(directory, `${hash('sha256', url).slice(0, 32)}.json`);
  return {
    async get(url) {
      try {
        const [digest, text = ''] = (await inTime(readFile(pathOf(url), 'utf8'))).split('\n');
        if (digest !== hash('sha256', text)) return undefined;
        const { body, ...about } = JSON.parse(text);
        if (about.url !== url) return undefined;
        return { ...about, body: new Uint8Array(Buffer.from(body, 'base64')) };
      } catch {
        return undefined;
      }
    },
    async set(url, { body, ...about }) {
      const text = JSON.stringify({ ...about, url, body: Buffer.from(body).toString('base64') });
      const whole = `${hash('sha256', text)}\n${text}`;
      const stored = makeDirectory(directory).then(() => replace(pathOf(url), whole, 0o666));
      await inTime(stored).catch(() => {});
    },
    async delete(url) {
      await inTime(rm(pathOf(url), { force: true })).catch(() => {});
    },
  };
}
