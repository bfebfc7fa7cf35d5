/**
 * A Debian as somebody has it who has just installed it, with systemd and no more: made once by debootstrap,
 * kept below .tools. Needs root. Its packages come from the mirror of this machine, with the settings by
 * which this machine reaches it.
 */
import { existsSync, mkdirSync, mkdtempSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { program } from '../../support/processes/foreign-programs.ts';
import { ROOT, run } from '../../support/processes/tools.ts';
import { HOST } from './built.ts';

const SUITE = 'bookworm';
const CACHE = join(ROOT, '.tools/debian');
const DEBOOTSTRAP = program('debootstrap', { from: 'scripts/install-system-tools.sh' });

/** Why there can be none here; false: there can. */
export const NO_DEBIAN_ROOT = DEBOOTSTRAP.skip;

/** Path of the root; nobody may write to it. */
export function debianRoot(): string {
  const root = join(CACHE, `${SUITE}-${HOST}`);
  if (existsSync(root)) return root;
  mkdirSync(CACHE, { recursive: true });
  const scratch = mkdtempSync(join(CACHE, 'making-'));
  try {
    // a directory of its own, because debootstrap keeps the mode of one that exists
    const made = join(scratch, 'root');
    const options = ['--variant=minbase', '--include=systemd', `--arch=${HOST}`];
    checked(DEBOOTSTRAP.path, [...options, SUITE, made, ...machineMirror()]);
    writeFileSync(join(made, 'etc/apt/apt.conf.d/90machine'), checked('apt-config', ['dump', 'Acquire']));
    renameSync(made, root);
  } finally {
    rmSync(scratch, { recursive: true });
  }
  return root;
}

/** The mirror of Debian that this machine uses; nothing: it uses none, and debootstrap takes its own. */
function machineMirror(): string[] {
  const targets = ['indextargets', '--format', '$(ORIGIN) $(RELEASE) $(SITE)', 'Created-By: Packages'];
  const found = new RegExp(`^Debian ${SUITE} (\\S+)$`, 'm').exec(checked('apt-get', targets));
  return found === null ? [] : [found[1] as string];
}

function checked(path: string, args: readonly string[]): string {
  const { status, stdout, stderr } = run(path, args, { timeoutMs: 600_000 });
  if (status !== 0) throw new Error(`${path} ${args.join(' ')} (${status}): ${stderr}${stdout}`);
  return stdout;
}
