/**
 * A Redis server, or a Valkey where TEST_STORE names it, of a test's own on loopback, which keeps nothing on
 * disk.
 */
import type { TestContext } from 'node:test';
import { createClient } from '@redis/client';
import { freePort, program, runBeside, waitFor } from './foreign-programs.ts';
import { temporaryDirectory } from './temporary-directory.ts';

export const REDIS = program(process.env['TEST_STORE'] ?? 'redis-server');

/** Runs one until the test ends; `more` are further arguments. Resolves when it accepts connections. */
export async function startRedis(
  t: Pick<TestContext, 'after'>,
  { port, more = [] }: { readonly port?: number; readonly more?: readonly string[] } = {},
) {
  const own = port ?? (await freePort());
  const directory = temporaryDirectory('redis-server-');
  const settings = { bind: '127.0.0.1', port: String(own), dir: directory, save: '', appendonly: 'no' };
  const args = Object.entries(settings).flatMap(([name, value]) => [`--${name}`, value]);
  const running = runBeside(t, REDIS, [...args, ...more]);
  await waitFor('the Redis server', () => running.output().includes('Ready to accept connections'), running);
  return { ...running, port: own, url: `redis://127.0.0.1:${own}` };
}

export type RedisServer = Awaited<ReturnType<typeof startRedis>>;

/** Sends it commands, each with a connection of its own. */
export async function ask(url: string, ...command: readonly (string | number)[]): Promise<unknown> {
  const client = createClient({ url, RESP: 2, socket: { reconnectStrategy: false, connectTimeout: 5_000 } });
  client.on('error', () => {}); // the command rejects
  await client.connect();
  try {
    return await client.sendCommand(command.map(String));
  } finally {
    client.destroy();
  }
}
