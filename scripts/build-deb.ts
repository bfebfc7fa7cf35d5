/**
 * The executable as a Debian package, with its units, its user and the files that pages name; needs neither
 * root nor Debian's tools. The same executable and time give the same bytes. The maintainer scripts and the
 * list of lintian's overrides are in deploy/debian.
 */
import { createHash } from 'node:crypto';
import {
  cpSync,
  globSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { ar, tarGz } from './archive.ts';
import type { Architecture } from './node-runtime.ts';

const ROOT = join(import.meta.dirname, '..');
const SCRIPTS = ['postinst', 'prerm', 'postrm'];
const UNITS = ['privatemode-proxy.service', 'privatemode-proxy.socket'];
/** What pages have somebody take from deploy who may have the package alone. */
const EXAMPLES = '{systemd,prometheus,grafana}/**';

export interface DebOptions {
  readonly executable: string;
  readonly architecture: Architecture;
  readonly version: string;
  /** Texts of the licences of all parts. */
  readonly licences: string;
  /** Time of its files, in seconds since 1970. */
  readonly epoch: number;
}

/** The bytes of the package. */
export function buildDeb({ executable, architecture, version, licences, epoch }: DebOptions): Buffer {
  const scratch = mkdtempSync(join(tmpdir(), 'deb-'));
  const write = (path: string, content: string | Buffer, mode = 0o644): void => {
    mkdirSync(dirname(join(scratch, path)), { recursive: true, mode: 0o755 });
    writeFileSync(join(scratch, path), content, { mode });
  };
  const read = (path: string): string => readFileSync(join(ROOT, path), 'utf8');
  try {
    mkdirSync(join(scratch, 'data/usr/bin'), { recursive: true, mode: 0o755 });
    cpSync(executable, join(scratch, 'data/usr/bin/privatemode-proxy'));
    for (const unit of UNITS) write(`data/usr/lib/systemd/system/${unit}`, read(`deploy/systemd/${unit}`));
    const doc = 'data/usr/share/doc/privatemode-proxy';
    for (const path of globSync(EXAMPLES, { cwd: join(ROOT, 'deploy') }).sort())
      if (statSync(join(ROOT, 'deploy', path)).isFile())
        write(`${doc}/examples/${path}`, read(`deploy/${path}`));
    write(`${doc}/copyright`, licences);
    write(`${doc}/changelog.gz`, packed(changelog(version, epoch)));
    write('data/usr/share/lintian/overrides/privatemode-proxy', read('deploy/debian/lintian-overrides'));

    const kib = Math.ceil(statSync(executable).size / 1024) + 1024;
    write('control/control', control(version, architecture, kib));
    write('control/md5sums', md5sums(join(scratch, 'data')));
    for (const name of SCRIPTS) write(`control/${name}`, read(`deploy/debian/${name}`), 0o755);
    return ar(
      [
        ['debian-binary', Buffer.from('2.0\n')],
        ['control.tar.gz', tarGz(join(scratch, 'control'), epoch)],
        ['data.tar.gz', tarGz(join(scratch, 'data'), epoch)],
      ],
      epoch,
    );
  } finally {
    rmSync(scratch, { recursive: true });
  }
}

const MAINTAINER = 'privatemode-proxy maintainers <maintainers@privatemode-proxy.invalid>';

/**
 * The fields of deb-control(5). The libraries are those that the executable names (docs/install.md). postinst
 * calls adduser, and the unit calls /bin/kill of procps to reload. An older systemd does not know the place
 * of the credentials (%d in the unit).
 */
function control(version: string, architecture: Architecture, kib: number): string {
  return `Package: privatemode-proxy
Version: ${version}
Architecture: ${architecture}
Maintainer: ${MAINTAINER}
Installed-Size: ${kib}
Depends: adduser, libatomic1, libc6 (>= 2.28), libgcc-s1, libstdc++6, procps
Breaks: systemd (<< 250)
Section: net
Priority: optional
Description: local encrypting gateway for LLM traffic
 It attests the remote inference service, encrypts every prompt end to end,
 and streams the answers back decrypted.
`;
}

function changelog(version: string, epoch: number): string {
  const date = new Date(epoch * 1000).toUTCString().replace('GMT', '+0000');
  return `privatemode-proxy (${version}) stable; urgency=medium\n\n  * See CHANGELOG.md of that release.\n\n -- ${MAINTAINER}  ${date}\n`;
}

function packed(text: string): Buffer {
  const bytes = gzipSync(text, { level: 9 });
  bytes[8] = 2; // says that it is the best compression, as Debian's policy wants
  bytes[9] = 3;
  return bytes;
}

/** Debian's own tools check installed files by this (dpkg --verify). */
function md5sums(directory: string): string {
  const files = readdirSync(directory, { recursive: true, encoding: 'utf8' }).filter((path) =>
    statSync(join(directory, path)).isFile(),
  );
  return files
    .sort()
    .map(
      (path) =>
        `${createHash('md5')
          .update(readFileSync(join(directory, path)))
          .digest('hex')}  ${path}\n`,
    )
    .join('');
}
