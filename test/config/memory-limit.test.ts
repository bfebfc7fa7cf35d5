/** How much memory there is, by what the kernel says of control groups. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { memoryLimit } from '../../lib/config/config.ts';
import { parsed } from '../support/doors/config.ts';

const GIB = 1024 ** 3;
const MACHINE = 16 * GIB;

/** What is there to be read; everything else does not exist. */
const CASES: readonly [name: string, files: Readonly<Record<string, string>>, limit: number][] = [
  ['no control groups', {}, MACHINE],
  ['version 2, no limit', { '/proc/self/cgroup': '0::/\n', '/sys/fs/cgroup/memory.max': 'max\n' }, MACHINE],
  [
    'version 2, a container',
    { '/proc/self/cgroup': '0::/\n', '/sys/fs/cgroup/memory.max': '1073741824\n' },
    GIB,
  ],
  [
    'version 2, a service',
    {
      '/proc/self/cgroup': '0::/system.slice/proxy.service\n',
      '/sys/fs/cgroup/system.slice/proxy.service/memory.max': '2147483648\n',
    },
    2 * GIB,
  ],
  [
    'version 2, a service in a slice with less',
    {
      '/proc/self/cgroup': '0::/small.slice/proxy.service\n',
      '/sys/fs/cgroup/small.slice/proxy.service/memory.max': '2147483648\n',
      '/sys/fs/cgroup/small.slice/memory.max': '1073741824\n',
    },
    GIB,
  ],
  [
    'version 2, a container that sees the path of the host',
    { '/proc/self/cgroup': '0::/docker/ab12\n', '/sys/fs/cgroup/memory.max': '1073741824\n' },
    GIB,
  ],
  [
    'version 1, a container',
    {
      '/proc/self/cgroup': '5:cpu,cpuacct:/docker/ab12\n4:memory:/docker/ab12\n0::/\n',
      '/sys/fs/cgroup/memory/memory.limit_in_bytes': '1073741824\n',
    },
    GIB,
  ],
  [
    'version 1, no limit',
    {
      '/proc/self/cgroup': '4:memory:/\n',
      '/sys/fs/cgroup/memory/memory.limit_in_bytes': '9223372036854771712\n',
    },
    MACHINE,
  ],
  ['a limit beyond the machine', { '/sys/fs/cgroup/memory.max': String(64 * GIB) }, MACHINE],
  ['something else in the file', { '/sys/fs/cgroup/memory.max': '0\n' }, MACHINE],
];

describe('the memory limit of the program:', () => {
  for (const [name, files, limit] of CASES) {
    it(name, () => {
      const readFile = (path: string): Uint8Array => {
        const content = files[path];
        if (content === undefined) throw new Error('ENOENT');
        return Buffer.from(content);
      };
      assert.equal(memoryLimit(readFile, MACHINE), limit);
    });
  }

  it('a quarter of it is the default of --max-buffered-bytes', () => {
    const files = { '/sys/fs/cgroup/memory.max': '1048576\n' };
    assert.equal(parsed([], files).config.maxBufferedBytes, 262_144);
    assert.equal(parsed(['--max-buffered-bytes=7'], files).config.maxBufferedBytes, 7);
  });
});
