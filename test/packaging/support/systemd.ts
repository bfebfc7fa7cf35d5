/**
 * A machine in small that systemd has booted: its own processes, mounts and control groups, the network of
 * this one. It is this machine's system, and writes into memory only, whatever its units do, and that is gone
 * with it. Needs root.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  cpSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmdirSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { eventually } from '../../support/processes/eventually.ts';
import { program } from '../../support/processes/foreign-programs.ts';
import { runAside } from '../../support/processes/tools.ts';
import type { Remote } from '../../support/remote/remote.ts';

const FROM = { from: 'scripts/install-system-tools.sh' };

/**
 * $1: an empty directory; $2: files to lay over the system. The root is a layer in memory over it, and
 * nothing in there can write to what is below; of the devices there are the harmless ones, of the units those
 * that are laid over it.
 */
const BOOT = `
set -eu
mount -t tmpfs tmpfs "$1"
mkdir "$1/upper" "$1/work" "$1/root"
cp -a "$2/." "$1/upper/"
chmod 0755 "$1/upper"
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" "$1/root"
cd "$1/root"
mount -t proc proc proc
mount --bind proc/sys proc/sys
mount -o remount,bind,ro proc/sys
mount -t sysfs -o ro sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t tmpfs tmpfs dev
for device in null zero full random urandom tty; do touch "dev/$device"; mount --bind "/dev/$device" "dev/$device"; done
mkdir dev/shm dev/pts
ln -s pts/ptmx dev/ptmx
for place in run tmp var/tmp usr/lib/systemd/system usr/lib/systemd/system-generators; do mount -t tmpfs tmpfs "$place"; done
chmod 1777 tmp var/tmp dev/shm
for target in bare basic sysinit sockets network-online multi-user shutdown; do
  printf '[Unit]\nDescription=Nothing\nAllowIsolate=yes\nDefaultDependencies=no\n' > "usr/lib/systemd/system/$target.target"
done
mkdir old
pivot_root . old
umount --lazy /old
mount --make-rshared / # systemd expects it of whoever starts it in a container: credentials are mounted aside
exec env -i container=other PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd --system --unit=bare.target --log-target=null
`;

export interface Machine {
  /** Runs a program in it; resolves with what it printed, rejects where it failed. */
  run(...command: readonly string[]): Promise<string>;
  /** A property of a unit. */
  property(unit: string, name: string): Promise<string>;
  close(): Promise<void>;
}

type Files = Readonly<Record<string, string | { readonly copy: string }>>;

/** Where a machine has what it must trust of a remote. */
export const REMOTE = '/srv/remote';

/** A machine on which an administrator is about to install the proxy for that remote, as `bootMachine`. */
export async function machineFor({ directory }: Remote, files: Files): Promise<Machine> {
  const machine = await bootMachine({
    ...files,
    '/usr/local/bin/sudo': '#!/bin/sh\nexec "$@"\n', // the checks are root already
    ...Object.fromEntries(
      ['manifest.json', 'ca.pem', 'roots'].map((name) => [
        `${REMOTE}/${name}`,
        { copy: join(directory, name) },
      ]),
    ),
  });
  await machine.run('chmod', '-R', 'go+rX', REMOTE);
  await machine.run('chmod', '755', '/usr/local/bin/sudo');
  return machine;
}

/** `files` are laid over the system: absolute path → content, or the path of a file to copy. */
async function bootMachine(files: Files): Promise<Machine> {
  if (process.getuid?.() !== 0)
    throw new Error('booting systemd needs root: run the packaging checks as root');
  const unshare = program('unshare', FROM).path;
  const nsenter = program('nsenter', FROM).path;
  const place = mkdtempSync(join(tmpdir(), 'machine-'));
  const over = mkdtempSync(join(tmpdir(), 'machine-files-'));
  for (const [path, source] of Object.entries(files)) {
    const to = join(over, path);
    mkdirSync(dirname(to), { recursive: true });
    if (typeof source === 'string') writeFileSync(to, source);
    else cpSync(source.copy, to, { recursive: true });
  }
  const group = join(controlGroups(), `machine-${process.pid}`);
  mkdirSync(group);
  const namespaces = [
    '--mount',
    '--pid',
    '--uts',
    '--ipc',
    '--cgroup',
    '--fork',
    '--kill-child',
    '--propagation',
    'private',
  ];
  // The group is entered before it becomes the root that systemd sees.
  const enter = 'echo $$ > "$1/cgroup.procs" && shift && exec "$@"';
  const child = spawn(
    'bash',
    ['-c', enter, 'enter', group, unshare, ...namespaces, 'bash', '-c', BOOT, 'boot', place, over],
    // not everybody's path has the administrator's programs
    {
      stdio: ['ignore', 'ignore', 'inherit'],
      env: { ...process.env, PATH: `${process.env['PATH']}:/usr/sbin:/sbin` },
    },
  );
  const pid = await firstProcess(child);
  const run = async (...command: readonly string[]): Promise<string> => {
    const inside = ['--target', String(pid), '--mount', '--pid', '--uts', '--ipc', '--cgroup', '--'];
    const all = [...inside, ...command];
    const { status, stdout, stderr } = await runAside(nsenter, all, { timeoutMs: 180_000 });
    if (status !== 0) throw new Error(`${command.join(' ')} (${status}): ${stderr}${stdout}`);
    return stdout;
  };
  const machine: Machine = {
    run,
    property: async (unit, name) =>
      (await run('systemctl', 'show', '--property', name, '--value', unit)).trim(),
    async close() {
      child.kill('SIGKILL');
      if (child.exitCode === null && child.signalCode === null) await once(child, 'exit');
      await removeGroup(group);
      rmdirSync(place); // what was in it was mounted there for the machine only
      rmSync(over, { recursive: true });
    },
  };
  const booted = (): Promise<boolean> =>
    run('systemctl', 'is-active', 'bare.target').then(
      () => true,
      () => false,
    );
  await eventually('systemd to boot', booted, 30_000, 100);
  return machine;
}

/** Where this machine's control groups of version 2 are mounted. */
function controlGroups(): string {
  const line = /^\S+ (\S+) cgroup2 /m.exec(readFileSync('/proc/mounts', 'utf8'));
  if (line === null) throw new Error('there are no control groups of version 2');
  return line[1] as string;
}

/** The process that is number 1 in there. */
async function firstProcess(child: ChildProcess): Promise<number> {
  const children = `/proc/${child.pid}/task/${child.pid}/children`;
  let pid = 0;
  await eventually('systemd to start', () => {
    if (child.exitCode !== null) throw new Error(`unshare ended with ${child.exitCode}`);
    pid = Number(readFileSync(children, 'utf8').trim());
    return pid > 0 && readFileSync(`/proc/${pid}/comm`, 'utf8') === 'systemd\n';
  });
  return pid;
}

/** Kills what is left in the group and removes it with all below it. */
async function removeGroup(group: string): Promise<void> {
  writeFileSync(join(group, 'cgroup.kill'), '1');
  const remove = (path: string): void => {
    for (const entry of readdirSync(path, { withFileTypes: true }))
      if (entry.isDirectory()) remove(join(path, entry.name));
    rmdirSync(path);
  };
  await eventually(`the removal of ${group}`, () => {
    try {
      remove(group);
      return true;
    } catch {
      return false;
    }
  });
}
