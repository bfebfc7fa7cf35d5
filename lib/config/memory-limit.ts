import { totalmem } from 'node:os';
import { posix } from 'node:path';
import type { ReadFile } from './api-key.ts';

/** Where a memory controller is mounted, and its file; `line` finds the group of this process in /proc/self/cgroup. */
const CONTROLLERS = [
  { line: /^0::(\/.*)$/m, mount: '/sys/fs/cgroup', file: 'memory.max' },
  {
    line: /^\d+:(?:[^:\n]+,)?memory(?:,[^:\n]+)?:(\/.*)$/m,
    mount: '/sys/fs/cgroup/memory',
    file: 'memory.limit_in_bytes',
  },
];

/**
 * Bytes of memory that this process may use: those of the machine, or the smallest limit of its control group (version 1 or 2)
 * and of the groups around it. Where nothing is known of groups, the machine's.
 */
export function memoryLimit(readFile: ReadFile, machine: number = totalmem()): number {
  const read = (path: string): string => {
    try {
      return Buffer.from(readFile(path)).toString('latin1');
    } catch {
      return '';
    }
  };
  const groups = read('/proc/self/cgroup');
  const limits = CONTROLLERS.flatMap(({ line, mount, file }) =>
    groupsAround(line.exec(groups)?.[1]).map((group) => read(posix.join(mount, group, file)).trim()),
  );
  // "max", and a number beyond all memory in version 1, mean that there is none.
  return Math.min(machine, ...limits.filter((text) => /^[1-9]\d*$/.test(text)).map(Number));
}

/** The group and those it is in, up to `/`, which is what a container sees of its own. */
function groupsAround(group = '/'): string[] {
  return group === '/' ? ['/'] : [group, ...groupsAround(posix.dirname(group))];
}
