/**
 * The flags that bound sizes and times, each through the whole application side: what they say is what
 * happens.
 */

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { type AddressInfo, createServer } from 'node:net';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import { clockWith, systemClock } from '../../lib/clock.ts';
import { parseConfig } from '../../lib/config/config.ts';
import { startGatewayServer } from '../../lib/gateway-server.ts';
import { createOutbound } from '../../lib/network/outbound.ts';
import { createConditions } from '../../lib/observe/conditions.ts';
import { createCounters } from '../../lib/observe/counters.ts';
import { createLogger } from '../../lib/observe/log.ts';
import { TIMES } from '../../lib/times.ts';
import { fakeSession } from '../support/doors/gateway.ts';
import { answerTo, chatBody, codeOf, post } from '../support/doors/gateway-fixture.ts';
import { type RawClient, rawClient } from '../support/doors/raw-client.ts';
import { eventually } from '../support/processes/eventually.ts';
import { temporaryDirectory } from '../support/processes/temporary-directory.ts';
import { type ScriptedUpstream, startScriptedUpstream } from '../support/remote/scripted-upstream.ts';
import { chunked, completion, STREAM_HEAD, sealedAnswers } from '../support/remote/sealed-answers.ts';

interface Scene {
  readonly upstream: ScriptedUpstream;
  readonly client: RawClient;
  /** One more of them. */
  connect(): RawClient;
  /** Stops as SIGTERM does. */
  stop(): Promise<void>;
}

/** The application side with these flags, in front of a scripted remote (or of what listens on `port`). */
async function withFlags(t: TestContext, flags: readonly string[], port?: number): Promise<Scene> {
  const upstream = await startScriptedUpstream();
  const directory = temporaryDirectory('privatemode-flags-');
  writeFileSync(join(directory, 'ca.pem'), upstream.ca);
  const endpoint = `--api-endpoint=localhost:${port ?? upstream.port}`;
  const { config } = parseConfig([endpoint, '--listen-address=127.0.0.1', '--port=0', ...flags], {});
  const outbound = createOutbound(
    { SSL_CERT_FILE: join(directory, 'ca.pem') },
    { connectTimeout: config.connectTimeout, clock: systemClock },
  );
  const log = createLogger({ format: 'json', level: 50, output: { write: () => {} } });
  const service = await startGatewayServer(config, {
    session: fakeSession(),
    outbound,
    metrics: { counters: createCounters(), observe: () => {} },
    ...{ log, conditions: createConditions({ log, clock: systemClock }) },
    key: { value: () => 'key' },
    ...{ salt: { shared: undefined }, fd: undefined, onPermanent: assert.fail },
    clock: clockWith({ ...TIMES, uploadGrace: 1_000 }),
  });
  const clients: RawClient[] = [];
  const connect = (): RawClient => {
    const opened = rawClient(service.port);
    clients.push(opened);
    return opened;
  };
  t.after(async () => {
    for (const { socket } of clients) socket.destroy();
    await service.close();
    await outbound.close();
    await upstream.close();
  });
  return { upstream, client: connect(), connect, stop: () => service.close() };
}

describe('the flag', { concurrency: true }, () => {
  it('--max-body-bytes refuses a larger body with 413', async (t) => {
    const { upstream, client } = await withFlags(t, ['--max-body-bytes=100']);
    client.send(post(chatBody({ user: 'x'.repeat(100) })));
    const answer = await answerTo(client);
    assert.deepEqual([answer.status, codeOf(answer)], [413, 'body_too_large']);
    assert.match(answer.body, /larger than 100 bytes.*--max-body-bytes/);
    assert.equal(upstream.requests.length, 0);
  });

  it('--max-buffered-bytes refuses a larger body with 413, a chunked one with 503 if full, and lets others wait', async (t) => {
    const { upstream, client, connect } = await withFlags(t, ['--max-buffered-bytes=1000']);
    upstream.answers(completion);
    client.send(post(chatBody({ user: 'x'.repeat(1_000) })));
    const larger = await answerTo(client);
    assert.deepEqual([larger.status, codeOf(larger)], [413, 'body_too_large']);
    assert.match(larger.body, /larger than 1000 bytes.*--max-buffered-bytes/);

    const [holding, further] = [connect(), connect()];
    holding.send(post(chatBody().slice(0, 10), { headers: ['Content-Length: 950', 'Expect: 100-continue'] }));
    await holding.until(/100 Continue/);
    const chunk = chatBody();
    further.send(
      post(`${chunk.length.toString(16)}\r\n${chunk}\r\n0\r\n\r\n`, {
        headers: ['Transfer-Encoding: chunked'],
      }),
    );
    const refused = await answerTo(further);
    assert.deepEqual([refused.status, codeOf(refused)], [503, 'too_many_uploads']);
    assert.match(refused.headers['retry-after'] ?? '', /^[1-9]$/);
    assert.match(refused.body, /--max-buffered-bytes/);
    assert.equal(upstream.requests.length, 0);

    const waiting = connect();
    waiting.send(post());
    holding.socket.destroy();
    assert.equal((await answerTo(waiting)).status, 200);
  });

  it('--connect-timeout ends a request with 504 if the TLS handshake with the service does not complete', async (t) => {
    const mute = createServer((socket) => socket.on('error', () => {}));
    mute.listen(0, '127.0.0.1');
    await once(mute, 'listening');
    t.after(() => mute.close());
    const { client } = await withFlags(t, ['--connect-timeout=300ms'], (mute.address() as AddressInfo).port);
    client.send(post());
    const answer = await answerTo(client, 9_000);
    assert.deepEqual([answer.status, codeOf(answer)], [504, 'upstream_connect_timeout']);
  });

  it('--first-byte-timeout ends a request with 504 if the service does not answer', async (t) => {
    const { client } = await withFlags(t, ['--first-byte-timeout=300ms']);
    client.send(post());
    const answer = await answerTo(client, 9_000);
    assert.deepEqual([answer.status, codeOf(answer)], [504, 'first_byte_timeout']);
    assert.match(answer.body, /--first-byte-timeout/);
  });

  it('--stream-idle-timeout ends a silent stream with an error', async (t) => {
    const { upstream, client } = await withFlags(t, ['--stream-idle-timeout=300ms']);
    upstream.on(async (scripted) => {
      const sealed = sealedAnswers(await scripted.body());
      await scripted.write(STREAM_HEAD + chunked(sealed.chunk('hel')));
    });
    client.send(post(chatBody({ stream: true })));
    const answer = await answerTo(client, 9_000);
    assert.match(answer.body, /"hel"[\s\S]*"code":"stream_idle_timeout"/);
    assert.match(answer.body, /--stream-idle-timeout/);
  });

  it('--min-upload-rate ends a slower upload with 408, but not in the first second', async (t) => {
    const { client } = await withFlags(t, ['--min-upload-rate=1000']);
    client.send(post(chatBody().slice(0, 60), { headers: ['Content-Length: 5000'] }));
    const begun = performance.now();
    const answer = await answerTo(client, 9_000);
    assert.deepEqual([answer.status, codeOf(answer)], [408, 'upload_too_slow']);
    assert.match(answer.body, /slower than 1000 bytes\/s.*--min-upload-rate/);
    assert.ok(performance.now() - begun > 1_000, 'it was not given its time');
  });

  it('--shutdown-grace lets a request run for that time, and then answers it with 503', async (t) => {
    const { upstream, client, stop } = await withFlags(t, ['--shutdown-grace=400ms']);
    client.send(post());
    await eventually('the request', () => upstream.requests.length > 0);
    const begun = performance.now();
    await stop();
    const took = performance.now() - begun;
    assert.ok(took > 350 && took < 9_000, `${took} ms`);
    const answer = await answerTo(client);
    assert.deepEqual([answer.status, codeOf(answer)], [503, 'shutting_down']);
  });

  it('for each size and time has a default under which an ordinary request succeeds', async (t) => {
    const { upstream, client } = await withFlags(t, []);
    upstream.answers(completion);
    client.send(post());
    assert.equal((await answerTo(client)).status, 200);
  });
});
