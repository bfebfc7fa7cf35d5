import assert from 'node:assert/strict';
import { cpSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, beforeEach, describe, it } from 'node:test';
import type { Simulator } from '../../../simulator/simulator.ts';
import { CANARY_KEY } from '../../support/canaries.ts';
import {
  type PackedClient,
  packClient,
  RUNTIMES,
  runIn,
  simulatedService,
} from '../../support/client-package.ts';
import { startTestSimulator } from '../../support/simulator.ts';
import { ROOT } from '../../support/tools.ts';

const EXAMPLES = join(ROOT, 'examples');
const read = (path: string): string => readFileSync(join(ROOT, path), 'utf8');

/** Rows of the table in examples/README.md: file and command. */
const TABLE = [...read('examples/README.md').matchAll(/^\| `([^`]+)` \| .* \| `([^`]+)` \| `.*` \|$/gm)].map(
  ([, file, command]) => [file, command] as [string, string],
);

/** What each example writes. The simulated model repeats what it is asked. */
const OUTPUT: Readonly<Record<string, RegExp>> = {
  'node.mjs': /^Say hello\.\s*\nencrypted for [0-9a-f]{64}\n$/,
  'anthropic.mjs': /^Say hello\.\s*\n\d+ tokens\n$/,
  'vercel-ai-sdk.mjs': /^Say hello\.\s*\n$/,
  'langchain.mjs': /^Say hello\.\s*\n$/,
  'deno.ts': /^(?:pass [\w.]+\n|not-applicable [\w.]+\n){10,}Say hello\.\s*\n$/,
  'bun.ts': /^(?:pass [\w.]+\n|not-applicable [\w.]+\n){10,}Say hello\.\s*\n$/,
};

/** The blocks of docs/client.md. */
const BLOCKS = [...read('docs/client.md').matchAll(/^```(\w+)\n(.*?\n)```$/gms)].map(
  ([, language, text]) => [language, text] as [string, string],
);
const VERSION = (JSON.parse(read('package.json')) as { version: string }).version;

describe('what people copy of the client library', { timeout: 900_000 }, () => {
  let packed: PackedClient;
  let simulator: Simulator;
  before(async () => {
    packed = packClient();
    simulator = await startTestSimulator({ apiKey: CANARY_KEY });
    cpSync(EXAMPLES, packed.project, { recursive: true });
    writeFileSync(join(packed.project, 'ca.pem'), simulator.caPem);
    writeFileSync(join(packed.project, 'service.mjs'), simulatedService(simulator));
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

  /** That the last request came in encrypted, with this text in it. */
  function assertAsked(words: string): void {
    const { opened } = simulator.exchanges.last() ?? assert.fail('nothing was asked');
    assert.ok(opened?.includes(words), opened);
    assert.deepEqual(simulator.recorder.containing(words), []);
  }

  it('lists each example with the command in its first line, and ships no options', () => {
    // test/client/browser.test.ts opens the page.
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
    it(`runs examples/${file}`, async () => {
      assert.match(await write(command), OUTPUT[file] as RegExp);
      assertAsked('Say hello.');
    });
  }

  it('sends nobody to the package of that name on npm: what is installed is the file that was built', () => {
    const install = /npm (?:install|i|add) [^\n`]*/g;
    const told = ['docs/client.md', 'examples/README.md'].flatMap((page) =>
      [
        ...read(page)
          .replace(/^The name .*$/gm, '')
          .matchAll(install),
      ].map(([line]) => line.trim()),
    );
    for (const line of told) assert.doesNotMatch(line, /privatemode-ai(?!-\S*\.tgz)/, line);
    assert.ok(told.some((line) => line.includes('./privatemode-ai-*.tgz')));
    assert.ok(told.some((line) => line.includes(`/privatemode-ai-${VERSION}.tgz`)));
    assert.equal(packed.tarball.split('/').at(-1), `privatemode-ai-${VERSION}.tgz`);
  });

  it('runs every block of docs/client.md', async () => {
    assert.deepEqual(
      BLOCKS.map(([language]) => language),
      ['js', 'sh', 'js', 'js'],
    );
    const [chat, , sdk, verdict] = BLOCKS.map(([, text]) => text) as [string, string, string, string];
    const settings = "import { options } from './service.mjs';\n";
    const block = (text: string, more = ''): Promise<string> => {
      const simulated = text
        .replace('new PrivatemodeAI({', 'new PrivatemodeAI({ ...options,')
        .replace('createPrivatemodeFetch()', 'createPrivatemodeFetch(options)');
      assert.notEqual(simulated, text);
      writeFileSync(join(packed.project, 'block.mjs'), settings + simulated + more);
      return write('node block.mjs');
    };
    assert.match(await block(chat), /^Say hello\.\s*$/);
    const ask =
      "import { generateText } from 'ai';\nconsole.log((await generateText({ model, prompt: 'Say it.' })).text);";
    assert.match(await block(sdk, ask), /^Say it\.\s*$/);
    assertAsked('Say it.');
    const print = 'console.log(verdict.outcome, Object.keys(client.protection).join());';
    assert.match(await block(chat, verdict + print), /accepted secretId,manifestSha256,attestedAt\n$/);
  });
});
