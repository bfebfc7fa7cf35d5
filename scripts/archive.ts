/**
 * An archive whose bytes depend on nothing but what is in it: names in order, one time, owner root, one set
 * of permissions.
 */
import { spawnSync } from 'node:child_process';
import { gzipSync } from 'node:zlib';

/**
 * The files below `directory`, or only `names` of it, as a gzipped tar. `epoch`: their time, in seconds since
 * 1970. Needs GNU tar.
 */
export function tarGz(directory: string, epoch: number, names: readonly string[] = ['.']): Buffer {
  const order = [
    '--sort=name',
    `--mtime=@${epoch}`,
    '--owner=root:0',
    '--group=root:0',
    '--mode=u=rwX,go=rX',
    '--format=gnu',
  ];
  const { status, stdout, stderr, error } = spawnSync('tar', ['-c', '-C', directory, ...order, ...names], {
    maxBuffer: 1024 * 1024 * 1024,
  });
  if (error !== undefined) throw error;
  if (status !== 0) throw new Error(`tar: ${stderr}`);
  const packed = gzipSync(stdout, { level: 9 });
  packed[9] = 3; // the byte that names the operating system: Unix, wherever this runs
  return packed;
}
