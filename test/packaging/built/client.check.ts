import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { VERSION } from '../../../lib/version.ts';
import { serviceModule } from '../../../simulator/directory.ts';
import { CANARY_KEY } from '../../support/doors/canaries.ts';
import {
  npm,
  PACKAGES,
  type PackedClient,
  packClient,
  RUNTIMES,
  runIn,
} from '../../support/doors/client-package.ts';
import { temporaryDirectory } from '../../support/processes/temporary-directory.ts';
import { ROOT, run } from '../../support/processes/tools.ts';
import { startTestSimulator } from '../../support/remote/simulator.ts';

const tool = (name: string): string => join(ROOT, 'node_modules/.bin', name);

/** What somebody writes who uses all of it, with the strictest compiler. */
const CONSUMER = `
import Anthropic from '@anthropic-ai/sdk';
import { createPrivatemodeFetch, type PrivatemodeFetch } from 'privatemode-ai/fetch';
import {
  type ClientVerdict, ERRORS, type ErrorCode, PrivatemodeAI, type PrivatemodeAIOptions, PrivatemodeError, type Protection,
  type Verification, VerificationError,
} from 'privatemode-ai';

const options: PrivatemodeAIOptions = { apiKey: 'k', maxRetries: 1, responsesApi: true, gpuPolicy: { allowUnknown: true } };
const client = new PrivatemodeAI(options);
const fetch: PrivatemodeFetch = createPrivatemodeFetch({ onVerdict: ({ outcome }) => console.log(outcome) });
export const standard: typeof globalThis.fetch = fetch;
export async function ask(): Promise<string | null | undefined> {
  const verification: Verification = await client.verify().catch((thrown: unknown) => {
    if (thrown instanceof VerificationError) console.log(thrown.verdict.failure?.code, thrown.remedy);
    throw thrown;
  });
  console.log(verification.manifest['Policies'], verification.manifestText.length);
  const verdict: ClientVerdict = verification;
  const protection: Protection | undefined = client.withOptions({ timeout: 1 }).protection;
  if (verdict.failure !== null && protection === undefined) throw new PrivatemodeError('not_ready', verdict.failure.found);
  const completion = await client.chat.completions.create({ model: 'm', messages: [{ role: 'user', content: 'hi' }] });
  const message = await new Anthropic({ apiKey: 'unused', fetch }).messages.create({ model: 'm', max_tokens: 1, messages: [] });
  const code: ErrorCode = 'not_ready';
  return ERRORS[code].remedy + message.id + completion.choices[0]?.message.content;
}
// @ts-expect-error: the base URL is the service's
new PrivatemodeAI({ baseURL: 'https://localhost/v1' });
// @ts-expect-error: a pin has a value
new PrivatemodeAI({ manifest: undefined });
// @ts-expect-error: a pin is called manifest
new PrivatemodeAI({ manifestBytes: new Uint8Array(1) });
// @ts-expect-error: no such option
createPrivatemodeFetch({ apiEndPoint: 'https://localhost' });
`;

/** Asks once, from a copy of a client, and once through the Responses API. */
const PROGRAM = `
import { PrivatemodeAI } from 'privatemode-ai';
import { options } from './service.mjs';
const client = new PrivatemodeAI(options).withOptions({ timeout: 20_000 });
const { choices } = await client.chat.completions.create({ model: 'm', messages: [{ role: 'user', content: 'hello there' }] });
console.log(choices[0].message.content.trim());
const response = await new PrivatemodeAI({ ...options, responsesApi: true }).responses.create({ model: 'm', input: 'hello once more' });
console.log(response.output_text.trim());
`;

/** A mistake that nobody catches. */
const UNCAUGHT = `
import { PrivatemodeAI } from 'privatemode-ai';
new PrivatemodeAI({ apiKey: 'k', manifests: '{}' });
`;

describe('npm package of the client library', { timeout: 900_000 }, () => {
  let packed: PackedClient;
  before(() => {
    packed = packClient();
  });
  after(() => packed.remove());

  it('holds two builds, declarations, pages and licences, and nothing else', () => {
    const names = packed.files.filter((name) => !/^types\/.*\.d\.ts$/.test(name));
    assert.deepEqual(names.toSorted(), [
      ...['CHANGELOG.md', 'LICENSE', 'README.md', 'docs/errors.md', 'docs/protocol/attestation.md'],
      ...['docs/protocol/responses.md', 'docs/security.md', 'docs/verify.md', 'licences.txt'],
      ...['node/chunk.js', 'node/fetch.js', 'node/index.js', 'package.json'],
      ...['portable/chunk.js', 'portable/fetch.js', 'portable/index.js'],
    ]);
    const licences = readFileSync(join(packed.unpacked, 'licences.txt'), 'utf8');
    assert.match(licences, /^={78}\nprivatemode-ai\n={78}$/m);
    for (const part of ['@noble/curves', 'buffer', 'hpke']) assert.ok(licences.includes(`\n${part} `), part);
  });

  it('has its name, version and engines in package.json, and only one peer dependency: the SDK', () => {
    const manifest = JSON.parse(readFileSync(join(packed.unpacked, 'package.json'), 'utf8'));
    assert.equal(manifest.name, 'privatemode-ai');
    assert.equal(manifest.version, VERSION);
    assert.deepEqual(manifest.engines, { node: '>=22' });
    assert.deepEqual(Object.keys(manifest.peerDependencies), ['openai']);
    for (const kind of ['dependencies', 'optionalDependencies', 'scripts', 'bin'])
      assert.equal(manifest[kind], undefined, kind);
    assert.deepEqual(manifest.publishConfig, { access: 'public' });
    for (const entry of ['.', './fetch'])
      assert.deepEqual(Object.keys(manifest.exports[entry]), ['types', 'bun', 'deno', 'node', 'default']);
  });

  it('imports only the SDK, and in the build for Node four modules of Node', () => {
    for (const [build, pattern] of [
      ['node', /^(openai|node:(buffer|crypto|events|module))$/],
      ['portable', /^openai$/],
    ] as const) {
      for (const file of ['chunk', 'fetch', 'index']) {
        const source = readFileSync(join(packed.unpacked, build, `${file}.js`), 'utf8');
        const imports = /(?:^|[;}\s])import\b[^;'"()]*["']([^"']+)["']|\bimport\(["']([^"']+)["']\)/g;
        const names = [...source.matchAll(imports)].map(([, from, dynamic]) => (from ?? dynamic) as string);
        for (const name of names.filter((each) => each !== './chunk.js')) assert.match(name, pattern);
        if (build === 'portable') assert.doesNotMatch(source, /["']node:/);
      }
    }
  });

  it('throws errors that show, if uncaught, a readable line of source and a stack with names', async () => {
    writeFileSync(join(packed.project, 'uncaught.mjs'), UNCAUGHT);
    const { status, stderr } = await runIn(packed.project, [RUNTIMES.node, 'uncaught.mjs']);
    assert.equal(status, 1, stderr);
    assert.match(
      stderr,
      /^PrivatemodeError: manifests is not an option of PrivatemodeAI\. Did you mean manifest\?$/m,
    );
    assert.match(stderr, /at new PrivatemodeAI /);
    assert.match(stderr, /^ {2}remedy: 'See the options in the README of privatemode-ai\.'$/m);
    const lines = stderr.split('\n');
    assert.ok(lines.length < 30 && lines.every((line) => line.length < 200), stderr);
  });

  for (const [name, settings] of Object.entries({
    bundler: {
      module: 'esnext',
      moduleResolution: 'bundler',
      lib: ['es2024', 'dom', 'dom.iterable'],
      types: [],
    },
    'Node without a DOM': { module: 'nodenext', lib: ['es2024'], types: ['node'] },
  })) {
    it(`has types that compile in the strictest project: ${name}`, () => {
      const place = mkdtempSync(join(packed.project, 'types-'));
      if (settings.types.length > 0) {
        mkdirSync(join(place, 'node_modules/@types'), { recursive: true });
        for (const dependency of ['@types/node', 'undici-types'])
          symlinkSync(join(ROOT, 'node_modules', dependency), join(place, 'node_modules', dependency));
      }
      writeFileSync(join(place, 'package.json'), '{"type":"module"}');
      writeFileSync(join(place, 'consumer.ts'), CONSUMER);
      const compilerOptions = {
        target: 'es2022',
        ...{ strict: true, exactOptionalPropertyTypes: true, noUncheckedIndexedAccess: true },
        ...{ verbatimModuleSyntax: true, isolatedModules: true, skipLibCheck: false, noEmit: true },
        ...settings,
      };
      writeFileSync(
        join(place, 'tsconfig.json'),
        JSON.stringify({ compilerOptions, files: ['consumer.ts'] }),
      );
      const { status, stdout } = run(tool('tsc'), ['--project', place], { cwd: place });
      assert.equal(status, 0, stdout);
    });
  }

  it('is installed beside openai and runs on the first and the newest Node 22, on both kinds of hardware', async () => {
    const place = temporaryDirectory('client-project-');
    const simulators = await Promise.all([
      startTestSimulator({ apiKey: CANARY_KEY }),
      startTestSimulator({ apiKey: CANARY_KEY, tee: 'tdx' }),
    ]);
    try {
      writeFileSync(join(place, 'package.json'), '{"type":"module"}');
      npm(['install', '--no-audit', '--no-fund', packed.tarball, `openai@${PACKAGES['openai']}`], place);
      writeFileSync(join(place, 'program.js'), PROGRAM);
      for (const simulator of simulators) {
        writeFileSync(join(place, 'ca.pem'), simulator.caPem);
        writeFileSync(join(place, 'service.mjs'), serviceModule(simulator));
        for (const node of ['node', 'node-first'] as const) {
          const { status, stdout, stderr } = await runIn(place, [RUNTIMES[node], 'program.js'], {
            PRIVATEMODE_API_KEY: CANARY_KEY,
            NODE_EXTRA_CA_CERTS: join(place, 'ca.pem'),
          });
          assert.equal(status, 0, stderr);
          assert.equal(stdout, 'hello there\nhello once more\n');
        }
        const opened = simulator.exchanges.all().map((exchange) => exchange.opened ?? '');
        assert.equal(opened.filter((text) => text.includes('hello there')).length, 2);
      }
    } finally {
      await Promise.all(simulators.map((simulator) => simulator.close()));
    }
  });
});
