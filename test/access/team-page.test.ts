/** docs/team.md, carried out: from nothing to three people with limits. */
import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import https from 'node:https';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { parseConfig } from '../../lib/config/config.ts';
import { createLogger } from '../../lib/observe/log.ts';
import { type RunningProxy, startProxy } from '../../lib/proxy.ts';
import { program } from '../support/processes/foreign-programs.ts';
import { ROOT, run } from '../support/processes/tools.ts';
import { type Remote, startRemote } from '../support/remote/remote.ts';

const PAGE = readFileSync(join(ROOT, 'docs/team.md'), 'utf8');

/** The block behind `<!-- MARK -->`, without the indent of its list. */
function block(mark: string): string {
  const [, text] = PAGE.match(new RegExp(`^ *<!-- ${mark} -->\n *\`\`\`\\w+\n([^\`]+)\`\`\`$`, 'm')) ?? [];
  assert.ok(text !== undefined, `the page has no block ${mark}`);
  return text;
}

const OPENSSL = program('openssl');

describe('docs/team.md', { skip: OPENSSL.skip, timeout: 600_000 }, () => {
  let directory: string;
  let remote: Remote;
  let proxy: RunningProxy;
  const tokens = new Map<string, string>();
  const inDirectory = (...names: string[]): string => join(directory, ...names);

  /** What is copied from the page, with the program of this checkout. */
  function carryOut(mark: string): string {
    const program = `privatemode-proxy() { "${process.execPath}" "${join(ROOT, 'bin/privatemode-proxy.ts')}" "$@"; }`;
    const script = `${program}\n${block(mark)}`;
    const { status, stdout, stderr } = run('bash', ['--norc', '-euc', script], { cwd: directory });
    assert.equal(status, 0, stderr);
    return stdout;
  }

  before(async () => {
    remote = await startRemote();
    directory = remote.directory;
    carryOut('block: team-certificate');
    const made = carryOut('block: team-tokens');
    let file = block('file: clients.json');
    const { clients } = JSON.parse(readFileSync(inDirectory('clients.json'), 'utf8'));
    assert.match(made, /^search-service +1 token$/m);
    const printed = made.match(/^pmp_\S+$/gm) ?? [];
    for (const [i, client] of clients.entries()) {
      tokens.set(client.name, printed[i] as string);
      const entry = new RegExp(`("name": "${client.name}", "tokens": \\[")[0-9a-f]{64}`);
      file = file.replace(entry, (_, head: string) => head + client.tokens[0]);
    }
    assert.deepEqual([...tokens.keys()], ['ann', 'bob', 'search-service']);
    writeFileSync(inDirectory('clients.json'), file);
    writeFileSync(inDirectory('key.txt'), 'a-key');
    proxy = await start();
  });
  after(async () => {
    await proxy?.close();
    await remote?.close();
  });

  /** With the flags of the page, on a port of loopback, in front of the simulated service. */
  function start(): Promise<RunningProxy> {
    const words = block('flags: team').replaceAll('\\\n', ' ').trim().split(/\s+/).slice(1);
    const flags = words.map((word) =>
      word.replace(/^(@?)([\w.-]+\.(?:json|txt|crt|key)|workspace)$/, `$1${directory}/$2`),
    );
    const here = [
      '--listen-address=127.0.0.1',
      '--port=0',
      `--api-endpoint=localhost:${remote.simulator.port}`,
      `--manifest-path=${inDirectory('manifest.json')}`,
      `--unsafe-trust-roots=${inDirectory('roots')}`,
    ];
    const kept = flags.join('\n').replace('--listen-address\n0.0.0.0\n--port\n8080', here.join('\n'));
    const log = createLogger({ format: 'text', level: 50, output: { write: () => {} } });
    return startProxy(parseConfig(kept.split('\n'), {}).config, { env: remote.env, log });
  }

  /** Status, code and Retry-After of the response. */
  function ask(name: string | undefined, path = '/v1/chat/completions') {
    const { promise, resolve, reject } = Promise.withResolvers<[number, string | undefined, boolean]>();
    const request = https.request(new URL(path, proxy.url), {
      ...{ method: 'POST', agent: false, ca: readFileSync(inDirectory('tls.crt')), timeout: 30_000 },
      servername: 'gateway.example',
      headers: {
        'content-type': 'application/json',
        ...(name !== undefined && { authorization: `Bearer ${tokens.get(name)}` }),
      },
    });
    request.on('timeout', () => request.destroy(new Error('no response')));
    request.on('error', reject);
    request.on('response', async (response) => {
      const body = Buffer.concat(await response.toArray()).toString();
      const { error } = JSON.parse(body) as { error?: { code: string } };
      resolve([response.statusCode as number, error?.code, response.headers['retry-after'] !== undefined]);
    });
    request.end(JSON.stringify({ model: 'sim-echo', messages: [{ role: 'user', content: 'hello' }] }));
    return promise;
  }

  it('describes a gateway that admits clients within their limits, also after a restart, and refuses as the page says', async () => {
    assert.deepEqual(await ask('bob'), [200, undefined, false]);
    assert.deepEqual(await ask('bob'), [200, undefined, false]);
    assert.deepEqual(await ask('bob'), [429, 'requests_per_minute_reached', true]);
    assert.deepEqual(await ask('ann'), [200, undefined, false]);
    assert.deepEqual((await ask('search-service')).slice(0, 2), [403, 'client_forbidden']);
    assert.deepEqual((await ask(undefined)).slice(0, 2), [401, 'client_unknown']);
    await proxy.close();
    proxy = await start();
    assert.deepEqual(await ask('bob'), [429, 'requests_per_minute_reached', true]);
    assert.deepEqual(await ask('ann'), [200, undefined, false]);
  });
});
