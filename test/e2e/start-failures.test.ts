/** A proxy that cannot start whole does not start at all: nothing serves, and the exit code says so. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { type AddressInfo, createServer, type Server } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { startProxyProcess } from '../support/proxy-process.ts';

describe('a start that fails', { timeout: 60_000 }, () => {
  let occupied: Server;
  let workspace: string;
  let taken: number;
  before(async () => {
    workspace = mkdtempSync(join(tmpdir(), 'privatemode-start-'));
    occupied = createServer().listen(0, '127.0.0.1');
    await once(occupied, 'listening');
    taken = (occupied.address() as AddressInfo).port;
  });
  after(() => {
    occupied.close();
    rmSync(workspace, { recursive: true });
  });

  const cases: [name: string, flags: (port: number) => string[]][] = [
    ['the port is taken', (port) => [`--port=${port}`]],
    ['the port is taken, with workers', (port) => [`--port=${port}`, '--workers=2']],
    ['the metrics port is taken', (port) => ['--port=0', `--metrics-address=127.0.0.1:${port}`]],
    [
      'the metrics port is taken, with workers',
      (port) => ['--port=0', '--workers=2', `--metrics-address=127.0.0.1:${port}`],
    ],
  ];
  for (const [name, flags] of cases) {
    it(`ends with 1 and says why: ${name}`, async () => {
      await assert.rejects(
        startProxyProcess(
          [
            '--listen-address=127.0.0.1',
            '--api-endpoint=localhost:1',
            `--workspace=${workspace}`,
            ...flags(taken),
          ],
          {},
        ),
        (error: Error) => {
          assert.match(error.message, /did not start \(1\)/);
          assert.match(error.message, /Error: listening on .*EADDRINUSE/);
          return true;
        },
      );
    });
  }
});
