import assert from 'node:assert/strict';
import { EventEmitter } from 'node:events';
import { readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import type { IncomingMessage } from 'node:http';
import { join } from 'node:path';
import { beforeEach, describe, it } from 'node:test';
import type { AppResponse, ResponseObserver } from '../../lib/gateway/observed-response.ts';
import { createDump } from '../../lib/gateway/request-dump.ts';
import { recordingLogger } from '../support/doors/logger.ts';
import { temporaryDirectory } from '../support/processes/temporary-directory.ts';

const REQUEST = {
  method: 'POST',
  url: '/v1/chat/completions?x=1',
  rawHeaders: ['User-Agent', 'curl', 'authorization', 'Bearer CANARY-KEY', 'Host', 'localhost:8080'],
};

describe('request dumps', () => {
  let workspace: string;
  let lines: Record<string, unknown>[];
  let log: ReturnType<typeof recordingLogger>['log'];
  beforeEach(() => {
    workspace = temporaryDirectory('dump-');
    ({ log, lines } = recordingLogger());
  });

  const written = async (): Promise<string[]> =>
    (await readdir(join(workspace, 'requests'), { recursive: true, withFileTypes: true }))
      .filter((entry) => entry.isFile())
      .map((entry) => join(entry.parentPath, entry.name))
      .sort();

  /** Begins to dump an exchange. Its `end` resolves when the dump is complete. */
  function begin(asked: Partial<typeof REQUEST> = {}, now?: () => number) {
    const req = Object.assign(new EventEmitter(), REQUEST, asked);
    const observers: ResponseObserver[] = [];
    const res = Object.assign(new EventEmitter(), { observers });
    createDump(workspace, log, now)(req as unknown as IncomingMessage, res as unknown as AppResponse);
    return {
      req,
      observer: observers[0] as Required<ResponseObserver>,
      async end(): Promise<void> {
        await res.listeners('close')[0]?.();
      },
    };
  }

  it('hold request and response as HTTP/1.1 text with credentials redacted, named by UTC time, for their owner alone', async () => {
    const time = Date.UTC(2026, 10, 21, 4, 5, 6, 789) + 0.25;
    const { req, observer, end } = begin({}, () => time);
    for (const part of ['{"a":', '1}']) req.emit('data', Buffer.from(part));
    observer.head(200, [
      ['Set-Cookie', 'CANARY-KEY'],
      ['content-type', 'text/event-stream'],
    ]);
    for (const event of ['data: 1\n\n', 'data: [DONE]\n\n']) observer.update(Buffer.from(event));
    await end();
    const paths = await written();
    const head = 'POST /v1/chat/completions?x=1 HTTP/1.1\r\nUser-Agent: curl\r\n';
    const about = 'Set-Cookie: [redacted]\r\ncontent-type: text/event-stream\r\n';
    assert.deepEqual(await Promise.all(paths.map((path) => readFile(path, 'utf8'))), [
      `${head}authorization: Bearer [redacted]\r\nHost: localhost:8080\r\n\r\n{"a":1}`,
      `HTTP/1.1 200 OK\r\n${about}\r\ndata: 1\n\ndata: [DONE]\n\n`,
    ]);
    for (const [i, path] of paths.entries()) {
      const end = ['req', 'resp'][i];
      assert.match(path, new RegExp(`/requests/2026-11-21/2026-11-21_040506\\.789250_\\d\\d_${end}\\.txt$`));
      assert.equal((await stat(path)).mode & 0o777, 0o600);
    }
    for (const folder of ['requests', 'requests/2026-11-21'])
      assert.equal((await stat(join(workspace, folder))).mode & 0o777, 0o700);
  });

  /** The head of a request as its dump shows it. */
  async function head(asked: Partial<typeof REQUEST>): Promise<string> {
    await begin(asked).end();
    const [path = ''] = await written();
    const text = await readFile(path, 'utf8');
    await rm(path);
    return text;
  }
  const shown = async (name: string, value: string): Promise<string> =>
    (await head({ rawHeaders: [name, value] })).split('\r\n')[1]?.slice(name.length + 2) ?? '';

  it('show no header that may be a credential, whatever its name', async () => {
    const names = `Authorization Proxy-Authorization X-Auth X-Api-Key apikey X-Goog-Api-Key
      Ocp-Apim-Subscription-Key X-Amz-Security-Token X-CSRF-Token X-Client-Secret Cookie Set-Cookie2 X-Password
      X-Pwd X-Credentials X-Session X-Signature sig X-JWT-Assertion X-Amzn-Oidc-Accesstoken`.split(/\s+/);
    for (const name of names) assert.equal(await shown(name, 'CANARY'), '[redacted]', name);
    assert.equal(await shown('X-Forwarded-Access', 'bearer CANARY'), 'bearer [redacted]');
    assert.equal(await shown('Referer', 'https://a/?x=1&token=CANARY'), 'https://a/?x=1&token=[redacted]');
    for (const name of ['X-RateLimit-Limit-Tokens', 'Privatemode-Proxy-Secret-Id', 'X-Design'])
      assert.equal(await shown(name, 'sig'), 'sig', name);
  });

  const targets: [target: string, dumped: string][] = [
    ['/v1/models?limit=2&after=m', '/v1/models?limit=2&after=m'],
    ['/v1/models?key=CANARY', '/v1/models?key=[redacted]'],
    ['/x?API-Key=CANARY=&access_token=CANARY', '/x?API-Key=[redacted]&access_token=[redacted]'],
    ['/x?a=1;token=CANARY', '/x?a=1;token=[redacted]'],
    ['/x?%6Bey=CANARY', '/x?%6Bey=[redacted]'],
    ['/x?%zz=CANARY', '/x?%zz=[redacted]'],
    ['/x?sig=CANARY&X-Amz-Signature=CANARY', '/x?sig=[redacted]&X-Amz-Signature=[redacted]'],
  ];
  it('have targets in which values that may be credentials are redacted', async () => {
    for (const [url, dumpedTarget] of targets)
      assert.equal(
        await head({ method: 'GET', url, rawHeaders: [] }),
        `GET ${dumpedTarget} HTTP/1.1\r\n\r\n`,
      );
  });

  it('hold the original bytes even if the caller overwrites its buffer later', async () => {
    const { req, end } = begin();
    const chunk = Buffer.from('original');
    req.emit('data', chunk);
    chunk.fill('x');
    await end();
    assert.match(await readFile((await written())[0] as string, 'utf8'), /original$/);
  });

  it('only cause a warning in the log, without their contents, if they cannot be written', async () => {
    await writeFile(join(workspace, 'requests'), 'a file in the way');
    const { req, observer, end } = begin();
    req.emit('data', Buffer.from('CANARY-PROMPT'));
    observer.head(200, []);
    observer.update(Buffer.from('CANARY-PROMPT'));
    await end();
    assert.ok(lines.length >= 1);
    assert.ok(lines.every((line) => line['level'] === 'WARN'));
    assert.ok(!JSON.stringify(lines).includes('CANARY'));
  });

  it('are cut off, with a note in the file, if too much of them waits for the disk', async () => {
    const { req, end } = begin();
    for (const part of ['a'.repeat(32 * 1024 * 1024), 'b'.repeat(600), 'c'.repeat(600)])
      req.emit('data', Buffer.from(part));
    await end();
    const text = await readFile((await written())[0] as string, 'utf8');
    assert.match(text.slice(-1_000), /^a+\n\[dump cut off/);
    assert.equal(lines.length, 1);
  });
});
