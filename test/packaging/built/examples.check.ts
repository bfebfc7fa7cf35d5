import assert from 'node:assert/strict';
import { cpSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, beforeEach, describe, it, type TestContext } from 'node:test';
import { build } from 'esbuild';
import { serviceModule, writeTrustAnchors } from '../../../simulator/directory.ts';
import type { Simulator } from '../../../simulator/simulator.ts';
import { CANARY_KEY } from '../../support/doors/canaries.ts';
import { NEXT, type PackedClient, packClient, RUNTIMES, runIn } from '../../support/doors/client-package.ts';
import {
  freePort,
  type RunningProgram,
  runBeside,
  waitFor,
} from '../../support/processes/foreign-programs.ts';
import { ROOT } from '../../support/processes/tools.ts';
import { sharedHardware, startTestSimulator } from '../../support/remote/simulator.ts';

const EXAMPLES = join(ROOT, 'examples');
const read = (path: string): string => readFileSync(join(ROOT, path), 'utf8');

/** Rows of the table in examples/README.md: file and command. */
const TABLE = [...read('examples/README.md').matchAll(/^\| `([^`]+)` \| .* \| `([^`]+)` \| `.*` \|$/gm)].map(
  ([, file, command]) => [file, command] as [string, string],
);

/** What the simulated model says to each example. */
const SAID =
  'You said: Say hello. I am a simulated model: I understand nothing, and only repeat what you say.';

/** What each example writes. */
const OUTPUT: Readonly<Record<string, RegExp>> = {
  'node.mjs': /^You said: Say hello\. I am a .*\nencrypted for [0-9a-f]{64}\n$/,
  'anthropic.mjs': /^You said: Say hello\. I am a .*\n\d+ tokens\n$/,
  'vercel-ai-sdk.mjs': /^You said: Say hello\. I am a .*\n$/,
  'langchain.mjs': /^You said: Say hello\. I am a .*\n$/,
  'deno.ts': /^(?:pass [\w.]+\n|not-applicable [\w.]+\n){10,}You said: Say hello\. I am a .*\n$/,
  'bun.ts': /^(?:pass [\w.]+\n|not-applicable [\w.]+\n){10,}You said: Say hello\. I am a .*\n$/,
};

/**
 * What the model says to a page that asks a route or a worker: the chunks of its stream, one in each line.
 */
async function chat(url: string): Promise<string> {
  const messages = [{ role: 'user', content: 'Say hello.' }];
  const response = await fetch(url, { method: 'POST', body: JSON.stringify({ messages }) });
  assert.deepEqual([response.status, response.headers.get('content-type')], [200, 'application/x-ndjson']);
  const chunks = (await response.text()).trim().split('\n');
  return chunks
    .map((line) => JSON.parse(line).choices[0]?.delta.content ?? '')
    .join('')
    .trim();
}

/** The first date that docs/library.md allows: workers of an earlier one refuse an option of fetch. */
const [, COMPATIBILITY_DATE = assert.fail('the page names no date')] =
  /compatibility date must be (\d{4}-\d\d-\d\d) or later/.exec(read('docs/library.md')) ?? [];

/** The configuration of workerd for the worker that was bundled beside it. */
const workerdConfig = ({ port, caPem }: { readonly port: number; readonly caPem: string }): string => `
using Workerd = import "/workerd/workerd.capnp";
const config :Workerd.Config = (
  services = [
    (name = "main", worker = .main),
    (name = "internet", network = (
      allow = ["private", "local"],
      tlsOptions = (trustedCertificates = [${JSON.stringify(caPem)}]))),
  ],
  sockets = [(name = "http", address = "127.0.0.1:${port}", http = (), service = "main")]
);
const main :Workerd.Worker = (
  modules = [(name = "worker", esModule = embed "worker.bundle.mjs")],
  bindings = [(name = "PRIVATEMODE_API_KEY", text = ${JSON.stringify(CANARY_KEY)})],
  compatibilityDate = "${COMPATIBILITY_DATE}"
);
`;

/** The blocks of docs/library.md. */
const BLOCKS = [...read('docs/library.md').matchAll(/^```(\w+)\n(.*?\n)```$/gms)].map(
  ([, language, text]) => [language, text] as [string, string],
);

describe('the examples of the client library', { timeout: 900_000 }, () => {
  let packed: PackedClient;
  let simulator: Simulator;
  before(async () => {
    packed = packClient();
    simulator = await startTestSimulator({ apiKey: CANARY_KEY, anyName: false }); // as npm run simulator;
    cpSync(EXAMPLES, packed.project, { recursive: true });
    writeFileSync(join(packed.project, 'ca.pem'), simulator.caPem);
    writeFileSync(join(packed.project, 'service.mjs'), serviceModule(simulator));
  });
  beforeEach(() => simulator.exchanges.clear());
  after(async () => {
    await simulator.close();
    packed.remove();
  });

  /** Runs a command as somebody would in examples/; returns what it writes, once it has ended by itself. */
  async function write(command: string): Promise<string> {
    const [name, ...args] = command.split(' ') as [keyof typeof RUNTIMES, ...string[]];
    const { status, stdout, stderr } = await runIn(packed.project, [RUNTIMES[name], ...args], {
      PRIVATEMODE_API_KEY: CANARY_KEY,
      [name === 'deno' ? 'DENO_CERT' : 'NODE_EXTRA_CA_CERTS']: join(packed.project, 'ca.pem'),
      DENO_NO_UPDATE_CHECK: '1',
      DO_NOT_TRACK: '1',
    });
    assert.equal(status, 0, stderr + stdout);
    assert.ok(!(stdout + stderr).includes(CANARY_KEY));
    return stdout;
  }

  /**
   * Examples that answer requests; each is started as its framework does, and resolves with its URL once it
   * listens.
   */
  const SERVERS: Readonly<Record<string, (t: TestContext) => Promise<string>>> = {
    async 'next-route.mjs'(t) {
      const root = join(packed.project, 'next');
      const place = join(root, 'app/api/chat');
      mkdirSync(place, { recursive: true });
      cpSync(join(packed.project, 'next-route.mjs'), join(place, 'route.js'));
      cpSync(join(packed.project, 'service.mjs'), join(place, 'service.mjs'));
      const built = await runIn(root, [RUNTIMES.node, NEXT, 'build'], { NEXT_TELEMETRY_DISABLED: '1' });
      assert.equal(built.status, 0, built.stderr + built.stdout); // without a key
      const port = await freePort();
      const args = [NEXT, 'start', root, '--hostname', '127.0.0.1', '--port', String(port)];
      const environment = {
        PRIVATEMODE_API_KEY: CANARY_KEY,
        NEXT_TELEMETRY_DISABLED: '1',
        NODE_EXTRA_CA_CERTS: join(packed.project, 'ca.pem'),
      };
      const server = runBeside(t, { path: RUNTIMES.node, skip: false }, args, environment);
      await waitFor('Next.js', () => server.output().includes('Ready in'), server);
      return `http://127.0.0.1:${port}/api/chat`;
    },
    'worker.mjs': (t) => serveWorker(t, 'worker.mjs'),
  };

  /** Starts a worker of the project in workerd; resolves with its URL. */
  async function serveWorker(t: TestContext, file: string): Promise<string> {
    const out = join(packed.project, 'worker.bundle.mjs');
    await build({
      ...{ entryPoints: [join(packed.project, file)], outfile: out, bundle: true },
      ...{ format: 'esm', platform: 'neutral', mainFields: ['module', 'main'], logLevel: 'error' },
      conditions: ['workerd', 'worker', 'browser'], // as Wrangler has them
    });
    const port = await freePort();
    const config = join(packed.project, 'worker.capnp');
    writeFileSync(config, workerdConfig({ port, caPem: simulator.caPem }));
    const workerd = { path: RUNTIMES.workerd, skip: false } as const;
    const server: RunningProgram = runBeside(t, workerd, ['serve', '--verbose', config]);
    const url = `http://127.0.0.1:${port}/`;
    const answers = (): Promise<boolean> =>
      fetch(url).then(
        () => true,
        () => false,
      );
    await waitFor('workerd', answers, server);
    return url;
  }

  /** That the last request came in encrypted, with this text in it. */
  function assertAsked(words: string): void {
    const { opened } = simulator.exchanges.last() ?? assert.fail('nothing was asked');
    assert.ok(opened?.includes(words), opened);
    assert.deepEqual(simulator.recorder.containing(words), []);
  }

  it('are listed in examples/README.md, each with the command in its first line, and have no options in service.mjs', () => {
    // test/client-library/browser.test.ts opens the page.
    const others = ['README.md', 'service.mjs', 'browser'];
    const files = readdirSync(EXAMPLES).filter((name) => !others.includes(name));
    assert.deepEqual(TABLE.map(([file]) => file).sort(), files.sort());
    for (const [file, command] of TABLE) {
      const [first] = read(`examples/${file}`).split('\n');
      assert.match(first as string, /^\/\/ [^:]+: PRIVATEMODE_API_KEY=\.\.\. /);
      assert.ok(first?.endsWith(` ${command}`), file);
    }
    assert.match(read('examples/service.mjs'), /^\/\/ .*\nexport const options = \{\};\n$/);
  });

  for (const [file, command] of TABLE) {
    it(`run by the command in their first line: ${file}`, async (t) => {
      const serve = SERVERS[file];
      if (serve === undefined) assert.match(await write(command), OUTPUT[file] as RegExp);
      else {
        const url = await serve(t);
        const before = simulator.counts['attest'] ?? 0;
        // At once while nothing is verified yet, and one afterwards, which finds it verified.
        const texts = await Promise.all([1, 2, 3].map(() => chat(url)));
        assert.deepEqual([...texts, await chat(url)], Array(4).fill(SAID));
        // A worker's attempt ends with its request, so each of those that come at once makes its own.
        assert.equal(simulator.counts['attest'], before + (file === 'worker.mjs' ? 3 : 1));
      }
      assertAsked('Say hello.');
    });
  }

  it('keep working in a worker after a first request was aborted, and after the end of the secret', async (t) => {
    const clock = `
      const [now, elapsed] = [Date.now, performance.now.bind(performance)];
      globalThis.passed = 0;
      Date.now = () => now() + passed;
      Object.defineProperty(performance, 'now', { value: () => elapsed() + passed });`;
    const worker = `
      import './passed.mjs'; // the library takes Date.now when it is loaded
      import { createPrivatemodeFetch } from 'privatemode-ai/fetch';
      import { options } from './service.mjs';
      let ask;
      export default {
        async fetch(request, { PRIVATEMODE_API_KEY: apiKey }) {
          const { passed, leave } = request.method === 'POST' ? await request.json() : {};
          if (passed === undefined) return new Response('ready');
          globalThis.passed = passed;
          ask ??= createPrivatemodeFetch({ ...options, apiKey });
          const signal = leave ? AbortSignal.timeout(200) : undefined;
          return ask('https://any.invalid/v1/models', { signal }).catch(({ name }) => new Response(name));
        },
      };`;
    writeFileSync(join(packed.project, 'passed.mjs'), clock);
    writeFileSync(join(packed.project, 'renewing.mjs'), worker);
    const url = await serveWorker(t, 'renewing.mjs');
    const ask = async (minute: number, leave = false): Promise<string> => {
      const body = JSON.stringify({ passed: minute * 60_000, leave });
      return (await fetch(url, { method: 'POST', body })).text();
    };
    simulator.faults.set('attest-hang', true);
    assert.equal(await ask(0, true), 'TimeoutError'); // its renewal ends with it
    simulator.faults.delete('attest-hang');
    const before = simulator.counts['attest'] ?? 0;
    for (const minute of [0, 1, 56, 57]) assert.match(await ask(minute), /^\{"object":"list"/, `${minute}`);
    assert.equal(simulator.counts['attest'], before + 2);
  });

  it('need no --allow-env in Deno if the key is an option, and report a missing key if it is not', async () => {
    const program = `
      import { PrivatemodeAI } from 'privatemode-ai';
      import { options } from './service.mjs';
      const verdict = await new PrivatemodeAI({ ...options, apiKey: '${CANARY_KEY}' }).verify();
      console.log(verdict.outcome);
      try { new PrivatemodeAI(options) } catch ({ code, message }) { console.log(code + ': ' + message) }`;
    writeFileSync(join(packed.project, 'no-environment.mjs'), program);
    const args = ['run', '--no-prompt', '--allow-net', 'no-environment.mjs'];
    const { stdout, stderr } = await runIn(packed.project, [RUNTIMES.deno, ...args], {
      DENO_CERT: join(packed.project, 'ca.pem'),
      DENO_NO_UPDATE_CHECK: '1',
    });
    const missing = 'config_invalid: apiKey is missing, and PRIVATEMODE_API_KEY is not set: give one of them';
    assert.equal(stdout, `accepted\n${missing}\n`, stderr);
  });

  it('tell people to install the tarball that was built, never the package privatemode-ai from npm', () => {
    const text = [read('docs/library.md'), read('examples/README.md')]
      .join('\n')
      .replace(/^The name .*$/gm, '');
    for (const [line] of text.matchAll(/npm (?:install|i|add) [^\n`]*/g))
      assert.doesNotMatch(line, /privatemode-ai(?!-\S*\.tgz)/, line);
  });

  it('include the code blocks of docs/library.md, which run against a simulator', async () => {
    assert.deepEqual(
      BLOCKS.map(([language]) => language),
      ['js', 'sh', 'js', 'js', 'sh', 'js', 'js'],
    );
    const [chat = '', , sdk = '', verdict = '', , against = '', patient = ''] = BLOCKS.map(
      ([, text]) => text,
    );
    const settings = "import { options } from './service.mjs';\n";
    const block = (text: string, more = ''): Promise<string> => {
      const simulated = text
        .replace('new PrivatemodeAI({', 'new PrivatemodeAI({ ...options,')
        .replace('createPrivatemodeFetch()', 'createPrivatemodeFetch(options)');
      assert.notEqual(simulated, text);
      writeFileSync(join(packed.project, 'block.mjs'), settings + simulated + more);
      return write('node block.mjs');
    };
    assert.match(await block(chat), /^You said: Say hello\. .*\s*$/);
    const ask =
      "import { generateText } from 'ai';\nconsole.log((await generateText({ model, prompt: 'Say it.' })).text);";
    assert.match(await block(sdk, ask), /^You said: Say it\. .*\s*$/);
    assertAsked('Say it.');
    const translating = 'createPrivatemodeFetch({ ...options, responsesApi: true })';
    const byResponses = sdk.replace('.chat(', '(').replace('createPrivatemodeFetch()', translating);
    writeFileSync(join(packed.project, 'responses.mjs'), settings + byResponses + ask);
    assert.match(await write('node responses.mjs'), /^You said: Say it\. .*\s*$/);
    const print = 'console.log(verdict.outcome, Object.keys(client.protection).join());';
    assert.match(await block(chat, verdict + print), /accepted secretId,manifestSha256,attestedAt\n$/);

    const list = 'console.log((await client.models.list()).object);';
    assert.equal(await block(patient, list), 'list\n');

    await writeTrustAnchors(join(packed.project, 'sim'), await sharedHardware());
    const here = against
      .replace('https://localhost:8443', simulator.url)
      .replace('/tmp/sim', 'sim')
      .replace("'any'", `'${CANARY_KEY}'`);
    writeFileSync(join(packed.project, 'against.mjs'), here);
    assert.equal(await write('node against.mjs'), 'accepted custom\n');
  });
});
