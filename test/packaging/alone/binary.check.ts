import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { VERSION } from '../../../lib/version.ts';
import type { Architecture } from '../../../scripts/node-runtime.ts';
import { program } from '../../support/processes/foreign-programs.ts';
import { cleanEnvironment, startProgram } from '../../support/processes/program.ts';
import { temporaryDirectory } from '../../support/processes/temporary-directory.ts';
import { ROOT, run } from '../../support/processes/tools.ts';
import { type Remote, startRemote } from '../../support/remote/remote.ts';
import { binary, HOST } from '../support/built.ts';
import { readElfNeeds } from '../support/elf.ts';
import { streamsUnderLoad, tally } from '../support/streams-under-load.ts';

const EMULATOR = 'qemu-aarch64';
const ARM64_LIBRARIES = '/usr/aarch64-linux-gnu';

/** How each file is started on this machine. */
function launch(architecture: Architecture): string[] {
  if (architecture === HOST) return [binary(architecture)];
  if (architecture === 'amd64') throw new Error('the amd64 executable cannot run on this machine');
  const emulator = program(EMULATOR, { from: 'scripts/install-system-tools.sh' }).path;
  return [emulator, '-L', ARM64_LIBRARIES, binary(architecture)];
}

const COMMON =
  'libatomic.so.1 libc.so.6 libdl.so.2 libgcc_s.so.1 libm.so.6 libpthread.so.0 libstdc++.so.6'.split(' ');
/** What docs/install.md says is needed; a change here is a change there. */
const NEEDS = {
  amd64: {
    machine: 'Advanced Micro Devices X86-64',
    interpreter: '/lib64/ld-linux-x86-64.so.2',
    loader: 'ld-linux-x86-64.so.2',
  },
  arm64: { machine: 'AArch64', interpreter: '/lib/ld-linux-aarch64.so.1', loader: 'ld-linux-aarch64.so.1' },
} as const;
const OLDEST = { GLIBC: '2.28', GLIBCXX: '3.4.21' } as const;

/** The other one is emulated, which takes minutes. */
const ARCHITECTURES = process.env['RELEASE'] === undefined ? [HOST] : (['amd64', 'arm64'] as const);

describe('single executable', { timeout: 600_000 }, () => {
  let remote: Remote;
  before(async () => {
    remote = await startRemote();
  });
  after(() => remote.close());

  for (const architecture of ARCHITECTURES) {
    describe(architecture, () => {
      const command = (): [string, ...string[]] => launch(architecture) as [string, ...string[]];
      const call = (...flags: string[]) => {
        const [program, ...args] = command();
        return run(program, [...args, ...flags], { env: cleanEnvironment() });
      };

      it('needs only the C and C++ libraries of the system, none newer than docs/install.md says', () => {
        const needs = readElfNeeds(binary(architecture));
        const { machine, interpreter, loader } = NEEDS[architecture];
        assert.equal(needs.machine, machine);
        assert.equal(needs.interpreter, interpreter);
        assert.deepEqual([...needs.libraries].sort(), [...COMMON, loader].sort());
        for (const [family, version] of Object.entries(OLDEST)) {
          const newest = needs.symbolVersions.findLast((each) => each.startsWith(`${family}_`));
          assert.equal(newest, `${family}_${version}`);
        }
        const page = readFileSync(join(ROOT, 'docs/install.md'), 'utf8');
        for (const word of [`glibc ${OLDEST.GLIBC}`, 'libstdc++', 'libatomic'])
          assert.ok(page.includes(word), word);
      });

      it('prints its version and its flags, and nothing to stderr', () => {
        const { stdout, stderr } = call('--version');
        assert.deepEqual([stdout, stderr], [`privatemode-proxy version v${VERSION}\n`, '']);
        const help = call('--help');
        assert.deepEqual([help.status, help.stderr], [0, '']);
        assert.match(help.stdout, /--api-key KEY\|@FILE/);
      });

      it('prints the licences of all its parts', () => {
        const { stdout, status } = call('--licenses');
        assert.equal(status, 0);
        const titles = [...stdout.matchAll(/^={78}\n(.+)\n={78}$/gm)].map((match) => match[1] as string);
        assert.equal(titles[0], 'privatemode-proxy');
        assert.match(titles.at(-1) as string, /^Node\.js 26/);
        assert.ok(titles.some((title) => title.startsWith('undici ')));
        // Node's own licence brings those of its libraries
        for (const library of ['V8', 'OpenSSL', 'libuv', 'ICU']) assert.ok(stdout.includes(library), library);
      });

      it('serves streams, and ends with 0 on SIGTERM', async () => {
        const proxy = await startProgram([...command(), ...remote.flags, '--port=0'], remote.env);
        try {
          const port = Number(new URL(proxy.url).port);
          const fates = await streamsUnderLoad({ port, count: 3, everyMs: 10, model: 'sim-5x10' });
          assert.deepEqual(tally(fates), { complete: 3 }, proxy.log());
          assert.doesNotMatch(proxy.log(), /Warning/);
        } finally {
          assert.equal(await proxy.stop(), 0);
        }
      });

      it('has the same bytes when it is built again, elsewhere', () => {
        const elsewhere = temporaryDirectory('again-');
        const out = join(elsewhere, 'deeper/proxy');
        const args = [join(ROOT, 'scripts/build-binary.ts'), '--arch', architecture, '--out', out];
        const { status, stderr } = run(process.execPath, args, { cwd: elsewhere, timeoutMs: 300_000 });
        assert.equal(status, 0, stderr);
        assert.equal(sha256(out), sha256(binary(architecture)));
      });
    });
  }
});

function sha256(path: string): string {
  return createHash('sha256').update(readFileSync(path)).digest('hex');
}
