/**
 * The examples of the client library against the simulator as a person starts it: those whose packages this
 * checkout has.
 */
import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { cpSync, existsSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { promisify } from 'node:util';
import { build } from 'esbuild';
import { REQUIRE } from '../../scripts/bundle.ts';
import { cleanEnvironment } from '../support/processes/program.ts';
import { temporaryDirectory } from '../support/processes/temporary-directory.ts';
import { ROOT } from '../support/processes/tools.ts';

/** Rows of the table in examples/README.md that Node runs: file, and the packages that it needs. */
const TABLE = [
  ...readFileSync(join(ROOT, 'examples/README.md'), 'utf8').matchAll(
    /^\| `([^`]+)` \| .* \| `node [^`]+` \| (.+) \|$/gm,
  ),
].map(([, file, needs]) => ({
  file: file as string,
  packages: [...(needs as string).matchAll(/`([^`]+)`/g)].map(([, name]) => name as string),
}));
const INSTALLED = TABLE.filter(({ packages }) =>
  packages.every((name) => existsSync(join(ROOT, 'node_modules', name))),
);

const SAID =
  'You said: Say hello. I am a simulated model: I understand nothing, and only repeat what you say.';
const OUTPUT: Readonly<Record<string, RegExp>> = {
  'node.mjs': new RegExp(`^${SAID}\nencrypted for [0-9a-f]{64}\n$`),
  'anthropic.mjs': new RegExp(`^${SAID}\n\\d+ tokens\n$`),
};

describe('the examples against npm run simulator', { timeout: 600_000 }, () => {
  const project = temporaryDirectory('examples-');
  const sim = join(project, 'sim');
  let stop: () => Promise<unknown>;

  before(async () => {
    cpSync(join(ROOT, 'examples'), project, { recursive: true });
    const library = join(project, 'node_modules/privatemode-ai');
    mkdirSync(library, { recursive: true });
    const exported = { '.': './index.js', './fetch': './fetch.js' };
    writeFileSync(join(library, 'package.json'), JSON.stringify({ type: 'module', exports: exported }));
    await build({
      entryPoints: {
        index: join(ROOT, 'lib/client-library/index.ts'),
        fetch: join(ROOT, 'lib/client-library/fetch.ts'),
      },
      outdir: library,
      ...{ absWorkingDir: ROOT, bundle: true, splitting: true, format: 'esm', platform: 'node' },
      ...{ banner: { js: REQUIRE }, external: ['openai', '@anthropic-ai/sdk'], logLevel: 'error' },
    });
    for (const name of new Set(INSTALLED.flatMap(({ packages }) => packages))) {
      const place = join(project, 'node_modules', name);
      mkdirSync(dirname(place), { recursive: true });
      symlinkSync(join(ROOT, 'node_modules', name), place);
    }
    const program = [join(ROOT, 'bin/privatemode-simulator.ts'), '--dir', sim, '--quiet'];
    const simulator = spawn(process.execPath, program, { stdio: ['ignore', 'pipe', 'inherit'] });
    const ended = once(simulator, 'close');
    stop = () => {
      simulator.kill('SIGTERM');
      return ended;
    };
    await once(simulator.stdout, 'data');
    cpSync(join(sim, 'service.mjs'), join(project, 'service.mjs'));
  });
  after(() => stop());

  it('include those of the OpenAI client and of the Anthropic client', () => {
    assert.deepEqual(INSTALLED.map(({ file }) => file).slice(0, 2), Object.keys(OUTPUT));
  });

  for (const { file } of INSTALLED) {
    it(`print the answer with no change but the service.mjs of the simulator: ${file}`, async () => {
      const { stdout } = await promisify(execFile)(process.execPath, [join(project, file)], {
        cwd: project,
        env: cleanEnvironment({ PRIVATEMODE_API_KEY: 'any', NODE_EXTRA_CA_CERTS: join(sim, 'ca.pem') }),
        timeout: 30_000,
      });
      assert.match(stdout, OUTPUT[file] as RegExp);
    });
  }
});
