/**
 * What workers report of the operator's keys (lib/observe/own-key.ts). A digest stands for each key, because
 * the primary has to tell keys apart, and needs none of them.
 */
import { hash } from 'node:crypto';
import type { OwnKeyEvent } from '../observe/own-key.ts';

const digestOf = (key: string): string => hash('sha256', key);

/**
 * The worker's half. Each response that authenticates is an event, but only the first one under a key changes
 * anything: the first since the worker started, or since a worker reported a refusal.
 */
export function createOwnKeyReports(send: (event: OwnKeyEvent) => void) {
  /** The keys under which an answer was reported, by client; undefined: the key of --api-key. */
  const answered = new Map<string | undefined, string>();
  return {
    observe(event: OwnKeyEvent): void {
      if (event.type === 'clients') answered.clear();
      if (event.type === 'answered') {
        if (answered.get(event.client) === event.key) return;
        answered.set(event.client, event.key);
      }
      send(withDigests(event));
    },
    /** Some worker reported that the service refused the key of this client. */
    refused: (client: string | undefined): unknown => answered.delete(client),
  };
}

const withDigests = (event: OwnKeyEvent): OwnKeyEvent =>
  event.type === 'clients'
    ? { ...event, keys: new Map([...event.keys].map(([client, key]) => [client, digestOf(key)])) }
    : { ...event, key: digestOf(event.key) };

/**
 * The primary's half: an event that a worker reported. The key of --api-key takes the place of its digest,
 * because the primary itself tells of that key when its file has another one.
 */
export const reportedOwnKey = (event: OwnKeyEvent, configured: string | undefined): OwnKeyEvent =>
  'client' in event &&
  event.client === undefined &&
  configured !== undefined &&
  event.key === digestOf(configured)
    ? { ...event, key: configured }
    : event;
