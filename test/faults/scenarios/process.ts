/** Signals, and the limits of the system. */
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { eventually } from '../../support/processes/eventually.ts';
import { temporaryDirectory } from '../../support/processes/temporary-directory.ts';
import type { ChatResponse } from '../ask.ts';
import { type ProcessScene, processScene } from '../process-scene.ts';
import type { Scenario } from '../scenario.ts';

const STREAMS = 100;

/** So many streams, all of which have begun. */
async function streams(s: ProcessScene, model: string): Promise<Promise<ChatResponse>[]> {
  const asked = Array.from({ length: STREAMS }, () => s.ask({ model }));
  const begun = (): number => s.simulator.exchanges.all().filter(({ written }) => written > 0).length;
  const streams = (): string => `${STREAMS} streams under way, not ${begun()}`;
  await eventually(streams, () => begun() >= STREAMS);
  return asked;
}

const kinds = (response: readonly ChatResponse[]): Set<string> =>
  new Set(
    response.map(({ status, ended, terminal, error }) => `${status} ${ended} ${terminal} ${error?.code}`),
  );

/** It takes no new connection, while its streams still run. */
async function refusesConnections({ url, simulator }: ProcessScene): Promise<void> {
  await eventually('the end of new connections', () =>
    fetch(`${url}/readyz`, { headers: { connection: 'close' } }).then(
      (answer) => answer.arrayBuffer().then(() => false),
      () => true,
    ),
  );
  assert.ok(simulator.exchanges.inFlight() > 0);
}

/** For many handshakes at once. */
const SLOW = { connectTimeout: 120_000 };

export const PROCESS_SCENARIOS: readonly Scenario[] = [
  {
    name: 'SIGTERM with 100 streams',
    outcome: 'no new connections; all streams end normally within the grace, then exit code 0',
    async run(t) {
      // 16 s and few events, because a slow machine has 100 streams to open, and to end.
      const s = await processScene(t, { flags: ['--shutdown-grace=10m'], times: SLOW });
      await s.ready();
      const asked = await streams(s, 'sim-40x400');
      s.proxy.process.kill('SIGTERM');
      await refusesConnections(s);
      assert.deepEqual(kinds(await Promise.all(asked)), new Set(['200 clean true undefined']));
      await s.finish({ upstream: STREAMS });
    },
  },
  {
    name: 'SIGTERM with 100 streams that outlast the grace',
    outcome: 'each stream gets an error event `shutting_down` and a broken connection, then exit code 0',
    async run(t) {
      const s = await processScene(t, { flags: ['--shutdown-grace=500ms'], times: SLOW });
      await s.ready();
      const asked = await streams(s, 'sim-6000x400');
      s.proxy.process.kill('SIGTERM');
      const response = await Promise.all(asked);
      assert.deepEqual(kinds(response), new Set(['200 broken false shutting_down']));
      await s.finish({ upstream: STREAMS, shown: response.map(({ error }) => JSON.stringify(error)) });
    },
  },
  {
    name: 'SIGHUP during a stream',
    outcome: 'no effect on the stream; the proxy reads the API key file again, and the next request uses it',
    async run(t) {
      const elsewhere = temporaryDirectory('privatemode-key-');
      const keyFile = join(elsewhere, 'key');
      const s = await processScene(t, {
        keyFile({ key }) {
          writeFileSync(keyFile, key);
          return keyFile;
        },
      });
      await s.ready();
      const running = s.ask({ model: 'sim-40x30' });
      await eventually('the stream', () => s.simulator.exchanges.inFlight() === 1);
      const next = `${s.canaries.key}-next`;
      writeFileSync(keyFile, next);
      s.proxy.process.kill('SIGHUP');
      await eventually(
        () => `the reload in ${s.log()}`,
        () => s.log().includes('was read again'),
      );
      s.simulator.setApiKeys([next]);
      assert.ok((await s.ask()).terminal, 'the new key is not used');
      assert.deepEqual(kinds([await running]), new Set(['200 clean true undefined']));
      await s.finish({ upstream: 2 });
    },
  },
  {
    name: 'connections that are reset before the answer begins, two hundred of them, to a busy proxy',
    outcome: 'the proxy recognises each reset, sends the request once more, and it is answered',
    async run(t) {
      const s = await processScene(t);
      await s.ready();
      const models = ['sim-12x5', 'sim-12x5+fault-once=reset_before_headers'];
      for (let round = 0; round < 8; round++) {
        const asked = Array.from({ length: 50 }, (_, i) => s.ask({ model: models[i % 2] as string }));
        assert.deepEqual(kinds(await Promise.all(asked)), new Set(['200 clean true undefined']));
      }
      await s.finish({ upstream: 600 });
    },
  },
  {
    name: 'EMFILE: a file descriptor for the client is left, and none for the service',
    outcome: '503 `resources_exhausted`, which does not blame the service',
    async run(t) {
      const s = await processScene(t, { limits: 'ulimit -n 64' });
      await s.ready();
      const idle = (): Socket => connect(Number(new URL(s.url).port), '127.0.0.1').on('error', () => {});
      const sockets = Array.from({ length: 25 }, idle);
      let asked = 0;
      let upstream = 0;
      let response: ChatResponse | undefined;
      // One more each time, or one less where none was left for the client either; the answers in between
      // leave no connection in the pool.
      do {
        if (response?.status === 0) sockets.pop()?.destroy();
        else sockets.push(idle());
        response = await s.ask({ model: 'sim-echo+fault=reset_after_headers' });
        if (response.status === 200) upstream++;
        asked++;
      } while (response.status !== 503 && asked < 60);
      assert.equal(response.status, 503);
      assert.equal(response.error?.code, 'resources_exhausted');
      for (const socket of sockets) socket.destroy();
      await s.finish({ upstream, shown: [response.body] });
    },
  },
  {
    name: 'EMFILE: no file descriptor is left',
    outcome:
      'connections beyond the limit are closed, the process keeps running, and recovers when they have ended',
    async run(t) {
      const s = await processScene(t, { limits: 'ulimit -n 64' });
      await s.ready();
      const sockets: Socket[] = [];
      let closed = 0;
      for (let i = 0; i < 200; i++) {
        const socket = connect(Number(new URL(s.url).port), '127.0.0.1');
        socket.on('error', () => {});
        socket.once('close', () => closed++);
        sockets.push(socket);
      }
      await eventually(
        () => `a hundred closed connections, not ${closed}`,
        () => closed > 100,
      );
      const refused = await s.ask();
      assert.notEqual(refused.status, 200);
      for (const socket of sockets) socket.destroy();
      let response = await s.ask();
      for (let i = 0; i < 50 && !response.terminal; i++) {
        await delay(100);
        response = await s.ask();
      }
      assert.ok(response.terminal, `${response.status} ${response.body}`);
      await s.finish({ upstream: 1, shown: [refused.body] });
    },
  },
];
