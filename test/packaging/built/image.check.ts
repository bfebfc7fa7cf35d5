import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  chmodSync,
  cpSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { eventually } from '../../support/processes/eventually.ts';
import { program } from '../../support/processes/foreign-programs.ts';
import { type Program, startProgram } from '../../support/processes/program.ts';
import { temporaryDirectory } from '../../support/processes/temporary-directory.ts';
import { ROOT, run } from '../../support/processes/tools.ts';
import { type Remote, startRemote } from '../../support/remote/remote.ts';
import { binary, HOST } from '../support/built.ts';
import { buildStages, parseDockerfile } from '../support/dockerfile.ts';
import { readElfNeeds } from '../support/elf.ts';
import { installBlock } from '../support/install-blocks.ts';
import { streamsUnderLoad, tally } from '../support/streams-under-load.ts';

const UNSHARE = program('unshare', { from: 'scripts/install-system-tools.sh' });
const PORT = 28_764;
const KEY = '/run/secrets/api-key';

/** Stands in for the engine's client: notes each call in $CALLS, and copies out of the tree in $IMAGE. */
const DOCKER = `#!/bin/sh
set -eu
IFS='	'; echo "$*" >> "$CALLS"
case $1 in
  create) echo 0123456789ab ;;
  cp) cp "$IMAGE\${2#*:}" "$3" ;;
esac
`;

/**
 * A container in small: own mounts, own process numbers with the program as number 1, the image's tree as a
 * read-only root, /proc, the user of the image, and volumes: one FROM:TO a line.
 */
const CONTAINER = `
set -eu
root=$1 volumes=$2 user=$3 group=$4 workdir=$5
shift 5
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
for volume in $volumes; do mount --bind "\${volume%%:*}" "$root\${volume#*:}"; done
mount -o remount,bind,ro "$root"
exec unshare --root="$root" --wd="$workdir" --setuid="$user" --setgid="$group" "$@"
`;

describe('container image', { timeout: 600_000 }, () => {
  let scratch: string;
  let root: string;
  let remote: Remote;
  const dockerfile = parseDockerfile(readFileSync(join(ROOT, 'Dockerfile'), 'utf8'));
  const said = (name: string): string =>
    dockerfile.stages.at(-1)!.instructions.find((instruction) => instruction.name === name)!.text;
  const exec = (name: string): string[] => JSON.parse(said(name).slice(said(name).indexOf('['))) as string[];

  before(async () => {
    remote = await startRemote();
    chmodSync(remote.directory, 0o755); // readable for the image's user
    scratch = temporaryDirectory('image-');
    root = buildStages(dockerfile.stages, scratch, {
      args: { TARGETARCH: HOST },
      instead: (command, directory) => {
        // The packages are those of this checkout, which npm ci installed; so is the Node that was fetched.
        if (command !== 'npm ci') return undefined;
        return () => {
          for (const name of ['node_modules', '.tools']) symlinkSync(join(ROOT, name), join(directory, name));
        };
      },
    });
    // as the engine makes mount points
    for (const name of ['proc', 'remote', 'run/secrets']) mkdirSync(join(root, name), { recursive: true });
    writeFileSync(join(root, KEY), '');
    writeFileSync(join(root, 'etc/hosts'), '127.0.0.1 localhost\n'); // as the engine does
  });
  after(async () => {
    await remote.close();
  });

  const container = (
    command: readonly string[],
    workspace: string,
    key?: string,
    at: string = said('VOLUME'),
  ): string[] => [
    UNSHARE.path,
    ...['--mount', '--pid', '--fork', '--kill-child', '--ipc', '--uts', '--propagation', 'private'],
    ...['bash', '-c', CONTAINER, 'container', root],
    [
      ...[`${workspace}:${at}`, `${remote.directory}:/remote`],
      ...(key === undefined ? [] : [`${key}:${KEY}`]),
    ].join('\n'),
    ...[...said('USER').split(':'), said('WORKDIR')],
    ...command,
  ];

  /** A new volume, as the engine makes one: with the content and the rights of what it is mounted over. */
  const workspace = (at: string = said('VOLUME')): string => {
    const path = mkdtempSync(join(scratch, 'workspace-'));
    cpSync(join(root, at), path, { recursive: true });
    chmodSync(path, statSync(join(root, at)).mode);
    const { status, stderr } = run('chown', [said('USER'), path]);
    assert.equal(status, 0, stderr);
    return path;
  };

  it('holds only the executable, its libraries, CA certificates, the key file and four other files in /etc', () => {
    const files = readdirSync(root, { recursive: true, encoding: 'utf8' })
      .filter((path) => statSync(join(root, path)).isFile())
      .sort();
    const { libraries, interpreter } = readElfNeeds(binary(HOST));
    const rest = files.filter((path) => !libraries.some((library) => path.endsWith(`/${library}`)));
    assert.deepEqual(rest, [
      'bin/privatemode-proxy',
      'etc/group',
      'etc/hosts',
      'etc/nsswitch.conf',
      'etc/passwd',
      'etc/ssl/certs/ca-certificates.crt',
      KEY.slice(1),
    ]);
    assert.equal(files.length - rest.length, libraries.length);
    assert.ok(files.includes(interpreter.slice(1)));
    assert.match(readFileSync(join(root, 'etc/ssl/certs/ca-certificates.crt'), 'utf8'), /BEGIN CERTIFICATE/);
  });

  it('has a target for the simulator, whose files start by its entry point', async (t) => {
    const stage = dockerfile.stages.find(({ as }) => as === 'simulator');
    const entry = stage?.instructions.find(({ name }) => name === 'ENTRYPOINT')?.text ?? '[]';
    const [, module, ...flags] = JSON.parse(entry) as string[];
    assert.deepEqual(flags, ['--host', '0.0.0.0', '--port', '8443', '--dir', '/sim']);
    assert.equal(statSync(join(scratch, 'simulator/sim')).mode & 0o777, 0o770, 'its user can write there');
    const here = ['--host', '127.0.0.1', '--port', '0', '--dir', temporaryDirectory('image-simulator-')];
    const child = spawn(process.execPath, [join(scratch, 'simulator', module as string), ...here]);
    const gone = once(child, 'close');
    t.after(() => child.kill('SIGKILL') && gone);
    const [line] = await once(child.stdout, 'data');
    assert.equal(JSON.parse(String(line)).ready, true);
    child.kill('SIGTERM'); // its own handler, since the kernel gives process 1 none
    assert.deepEqual(await gone, [0, null]);
  });

  /** Runs a block of docs/install.md in `place`; returns what it asked of the engine, call by call. */
  const ask = (block: string, place: string): string[][] => {
    writeFileSync(join(place, 'docker'), DOCKER, { mode: 0o755 });
    const calls = join(place, 'calls');
    const env = { PATH: `${place}:${process.env['PATH']}`, CALLS: calls, IMAGE: root };
    const { status, stderr } = run('bash', ['-euc', installBlock(block)], { cwd: place, env });
    assert.equal(status, 0, stderr);
    return readFileSync(calls, 'utf8')
      .trimEnd()
      .split('\n')
      .map((line) => line.split('\t'));
  };

  it('is built and started by the commands of docs/install.md, read-only, with the port and volume of the Dockerfile', () => {
    const [build, start, ...more] = ask('container', scratch) as [string[], string[]];
    assert.deepEqual([build, more], [['build', '--tag', 'privatemode-proxy', '.'], []]);
    const port = said('EXPOSE');
    assert.deepEqual(start, [
      ...['run', '--detach', '--name', 'privatemode-proxy', '--read-only', '--stop-timeout', '45'],
      ...['--publish', `127.0.0.1:${port}:${port}`, '--volume', `${scratch}/key.txt:${KEY}:ro`],
      ...['--volume', `privatemode-proxy:${said('VOLUME')}`, 'privatemode-proxy', '--api-key', `@${KEY}`],
    ]);
  });

  it('yields its executable by the commands of docs/install.md', () => {
    const place = mkdtempSync(join(scratch, 'extracted-'));
    const [create, , remove] = ask('extract', place).map((words) => words.join(' '));
    assert.deepEqual([create, remove], ['create privatemode-proxy', 'rm 0123456789ab']);
    assert.match(run(join(place, 'privatemode-proxy'), ['--version']).stdout, /^privatemode-proxy version v/);
  });

  /** The remote's flags as they are inside, but for those that a test gives itself. */
  const flagsInside = (): string[] =>
    remote.flags
      .filter((flag) => !/^--(api-key|workspace|listen-address)=/.test(flag))
      .map((flag) => flag.replace(remote.directory, '/remote'));

  /**
   * Starts a container's command line, hands the proxy over with its process number, and leaves nothing
   * behind.
   */
  const whileServing = async (
    line: readonly string[],
    check: (proxy: Program, inside: number) => Promise<void>,
  ): Promise<void> => {
    const proxy = await startProgram(line, { SSL_CERT_FILE: '/remote/ca.pem' });
    const inside = childOf(proxy.process.pid as number);
    try {
      await check(proxy, inside);
    } finally {
      if (proxy.process.exitCode === null) {
        process.kill(inside, 'SIGKILL');
        await proxy.stop('SIGKILL');
      }
    }
  };

  it('starts as a user without rights on a read-only root, serves, is healthy, and ends with 0 on SIGTERM as process 1', async () => {
    const place = workspace();
    const key = join(scratch, 'key.txt');
    writeFileSync(key, 'test-key\n');
    const command = [...exec('ENTRYPOINT'), `--api-key=@${KEY}`, ...flagsInside(), `--port=${PORT}`];
    await whileServing(container(command, place, key), async (proxy, inside) => {
      const fates = await streamsUnderLoad({ port: PORT, count: 5, everyMs: 5, model: 'sim-5x10' });
      assert.deepEqual(tally(fates), { complete: 5 }, proxy.log());
      assert.match(readFileSync(join(place, 'manifests/log.txt'), 'utf8'), / \S*manifests\/1\.json\n$/);

      const check = [...exec('HEALTHCHECK'), `--port=${PORT}`];
      const [program, ...args] = container(check, place) as [string, ...string[]];
      assert.deepEqual(run(program, args).stdout, 'ready\n');
      const [other, ...elsewhere] = container([...exec('HEALTHCHECK'), '--port=1'], place) as [
        string,
        ...string[],
      ];
      assert.equal(run(other, elsewhere).status, 1);

      assert.match(readFileSync(`/proc/${inside}/status`, 'utf8'), /^NSpid:\s+\d+\s+1$/m);
      assert.match(readFileSync(`/proc/${inside}/status`, 'utf8'), /^Uid:\s+65532\s/m);
      process.kill(inside, 'SIGTERM');
      const ended = await eventually('the end of the proxy', () => proxy.process.exitCode ?? undefined);
      assert.equal(ended, 0, proxy.log());
    });
  });

  it('serves with a command line and a volume of the reference implementation', async () => {
    const at = '/app/privatemode-proxy';
    const place = workspace(at);
    const flags = ['--workspace', at, '--apiKey', 'test-key', '--port', `${PORT}`];
    const command = [...exec('ENTRYPOINT'), ...flags, ...flagsInside()];
    await whileServing(container(command, place, undefined, at), async (proxy) => {
      const fates = await streamsUnderLoad({ port: PORT, count: 1, everyMs: 5, model: 'sim-5x10' });
      assert.deepEqual(tally(fates), { complete: 1 }, proxy.log());
      assert.match(readFileSync(join(place, 'manifests/log.txt'), 'utf8'), / \S*manifests\/1\.json\n$/);
    });
  });
});

/** unshare itself takes no signals; the program is its child, and number 1 where it runs. */
const childOf = (pid: number): number =>
  Number(readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').trim());
