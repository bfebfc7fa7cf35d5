/** How much memory there is, by what the kernel says of control groups. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { memoryLimit } from '../../lib/config/config.ts';
import { parsed } from '../support/doors/config.ts';

const GIB = 1024 ** 3;
const MACHINE = 16 * GIB;

/** What is there to be read; everything else does not exist. */
const CASES: readonly [name: string, files: Readonly<Record<string, string>>, limit: number][] = [
  ['without control groups, as the machine has', {}, MACHINE],
  [
    'under cgroup version 2 without a limit, as the machine has',
    { '/proc/self/cgroup': '0::/\n', '/sys/fs/cgroup/memory.max': 'max\n' },
    MACHINE,
  ],
  [
    'in a container under cgroup version 2',
    { '/proc/self/cgroup': '0::/\n', '/sys/fs/cgroup/memory.max': '1073741824\n' },
    GIB,
  ],
  [
    'in a service under cgroup version 2',
    {
      '/proc/self/cgroup': '0::/system.slice/proxy.service\n',
      '/sys/fs/cgroup/system.slice/proxy.service/memory.max': '2147483648\n',
    },
    2 * GIB,
  ],
  [
    'in a service under cgroup version 2 whose slice has less',
    {
      '/proc/self/cgroup': '0::/small.slice/proxy.service\n',
      '/sys/fs/cgroup/small.slice/proxy.service/memory.max': '2147483648\n',
      '/sys/fs/cgroup/small.slice/memory.max': '1073741824\n',
    },
    GIB,
  ],
  [
    'in a container under cgroup version 2 that sees the path of the host',
    { '/proc/self/cgroup': '0::/docker/ab12\n', '/sys/fs/cgroup/memory.max': '1073741824\n' },
    GIB,
  ],
  [
    'in a container under cgroup version 1',
    {
      '/proc/self/cgroup': '5:cpu,cpuacct:/docker/ab12\n4:memory:/docker/ab12\n0::/\n',
      '/sys/fs/cgroup/memory/memory.limit_in_bytes': '1073741824\n',
    },
    GIB,
  ],
  [
    '(that of the machine) under cgroup version 1 without a limit',
    {
      '/proc/self/cgroup': '4:memory:/\n',
      '/sys/fs/cgroup/memory/memory.limit_in_bytes': '9223372036854771712\n',
    },
    MACHINE,
  ],
  [
    '(that of the machine) if the cgroup allows more',
    { '/sys/fs/cgroup/memory.max': String(64 * GIB) },
    MACHINE,
  ],
  [
    '(that of the machine) if the file of the cgroup holds no limit',
    { '/sys/fs/cgroup/memory.max': '0\n' },
    MACHINE,
  ],
];

describe('the memory limit of the program', () => {
  for (const [name, files, limit] of CASES) {
    it(`is ${limit / GIB} GiB ${name}`, () => {
      const readFile = (path: string): Uint8Array => {
        const content = files[path];
        if (content === undefined) throw new Error('ENOENT');
        return Buffer.from(content);
      };
      assert.equal(memoryLimit(readFile, MACHINE), limit);
    });
  }

  it('determines the default of --max-buffered-bytes: a quarter of the limit', () => {
    const files = { '/sys/fs/cgroup/memory.max': '1048576\n' };
    assert.equal(parsed([], files).config.maxBufferedBytes, 262_144);
    assert.equal(parsed(['--max-buffered-bytes=7'], files).config.maxBufferedBytes, 7);
  });
});
