import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { hash } from 'node:crypto';
import { once } from 'node:events';
import { globSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { VERSION } from '../../../lib/version.ts';
import { buildDeb } from '../../../scripts/build-deb.ts';
import { program } from '../../support/processes/foreign-programs.ts';
import { withoutSettings } from '../../support/processes/program.ts';
import { temporaryDirectory } from '../../support/processes/temporary-directory.ts';
import { ROOT, run, runAside } from '../../support/processes/tools.ts';
import { binary, HOST } from '../support/built.ts';
import { debianRoot, NO_DEBIAN_ROOT } from '../support/debian-root.ts';
import { blockOf } from '../support/install-blocks.ts';
import { bootMachine, type Machine } from '../support/systemd.ts';

const LINTIAN = program('lintian', { from: 'scripts/install-system-tools.sh' });
const PACKAGE = `privatemode-proxy_${VERSION}_${HOST}.deb`;
const UNITS = ['privatemode-proxy.service', 'privatemode-proxy.socket'];
const PORT = 28_767;
/** Where the administrator stands: the package, and a key. */
const HERE = '/srv/here';
const REMOTE = '/srv/remote';
const STATE = '/var/lib/privatemode-proxy/manifests/log.txt';
const KEY = '/etc/privatemode-proxy/api-key';

let directory: string;
let lintian: ReturnType<typeof runAside>;
before(() => {
  directory = temporaryDirectory('debian-');
  const licences = run(binary(HOST), ['--licenses']).stdout;
  const deb = {
    executable: binary(HOST),
    architecture: HOST,
    version: VERSION,
    licences,
    epoch: 1_790_000_000,
  };
  writeFileSync(join(directory, PACKAGE), buildDeb(deb));
  // It takes a while, beside all else. Its lower levels are asked for because of unused overrides; the
  // spelling is of words in Node.
  if (LINTIAN.skip === false) {
    const asked = [
      '--fail-on',
      'error,warning',
      '--profile',
      'debian',
      '--display-info',
      '--dont-check-part',
      'binaries/spelling',
      join(directory, PACKAGE),
    ];
    lintian = runAside(LINTIAN.path, asked, { timeoutMs: 240_000 });
  }
});

describe('the Debian package in a clean Debian', { skip: NO_DEBIAN_ROOT, timeout: 900_000 }, () => {
  let simulator: Simulator;
  let machine: Machine;
  before(async () => {
    simulator = await packedSimulator();
    const remote = join(directory, 'sim');
    const certificate = ['-euc', blockOf('team.md', 'team-certificate')];
    assert.equal(run('bash', certificate, { cwd: directory }).status, 0);
    machine = await bootMachine(
      {
        [`${HERE}/${PACKAGE}`]: { copy: join(directory, PACKAGE) },
        [`${HERE}/key.txt`]: 'test-key\n',
        [`${HERE}/tls.crt`]: { copy: join(directory, 'tls.crt') },
        [`${HERE}/tls.key`]: { copy: join(directory, 'tls.key') },
        '/etc/hosts': '127.0.0.1 localhost\n',
        '/etc/resolv.conf': { copy: '/etc/resolv.conf' },
        '/etc/apt/apt.conf.d/yes': 'APT::Get::Assume-Yes "true";\n', // nobody is there to answer
        '/usr/local/bin/sudo': '#!/bin/sh\nexec "$@"\n', // the checks are root already
        // Another port, because 8080 may be taken here.
        '/etc/systemd/system/privatemode-proxy.socket.d/port.conf': `[Socket]\nListenStream=\nListenStream=127.0.0.1:${PORT}\n`,
        '/srv/environment': [
          `PRIVATEMODE_PROXY_FLAGS=--api-endpoint=localhost:${simulator.port} --manifest-path=${REMOTE}/manifest.json --unsafe-trust-roots=${REMOTE}/roots`,
          `SSL_CERT_FILE=${REMOTE}/ca.pem\n`,
        ].join('\n'),
        ...Object.fromEntries(
          ['manifest.json', 'ca.pem', 'roots'].map((name) => [
            `${REMOTE}/${name}`,
            { copy: join(remote, name) },
          ]),
        ),
      },
      debianRoot(),
    );
    await inside(`chmod 755 /usr/local/bin/sudo; chmod -R go+rX ${REMOTE}; apt-get update`);
  });
  after(async () => {
    await machine?.close();
    await simulator?.stop();
  });

  const inside = (script: string): Promise<string> =>
    machine.run(
      ...[
        'env',
        'PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin',
        'DEBIAN_FRONTEND=noninteractive',
      ],
      ...['LC_ALL=C.UTF-8', 'bash', '-euc', `cd ${HERE}\n${script}`],
    );
  /** Which of these are there, of the paths, users and packages that the package brings or makes. */
  const left = async (): Promise<string[]> =>
    (
      await inside(`
        for path in /usr/bin/privatemode-proxy /var/lib/privatemode-proxy /var/lib/private/privatemode-proxy ${KEY}; do
          [ ! -e $path ] && [ ! -L $path ] || echo $path
        done
        find /etc/systemd/system -path '*.wants/privatemode-proxy.*'
        getent passwd privatemode-proxy | cut -d: -f1
        getent group privatemode-proxy | sed 's/:.*/ (group)/'
        find / -xdev -user privatemode-proxy 2>/dev/null || :`)
    )
      .split('\n')
      .filter(Boolean)
      .sort();

  const keepsOwnerWithoutLinks = async (): Promise<void> => {
    const names = await left();
    assert.ok(names.includes('privatemode-proxy'), 'the owner of the log');
    const links = names.filter((path) => path.includes('.wants/'));
    assert.deepEqual(links, []);
  };

  it('is installed and started by the commands of docs/releases.md, and answers a chat', async () => {
    assert.deepEqual(await left(), [], 'the root is not clean');
    await inside(
      'install -d -m 700 /etc/privatemode-proxy; cp /srv/environment /etc/privatemode-proxy/environment',
    );
    const block = blockOf('releases.md', 'deb');
    assert.ok(block.includes(`./privatemode-proxy_${VERSION}_amd64.deb`));
    await inside(block.replace('amd64', HOST));
    assert.equal(await inside('privatemode-proxy --version'), `privatemode-proxy version v${VERSION}\n`);
    const body = { model: 'sim-chat', messages: [{ role: 'user', content: 'hello' }] };
    const url = `http://127.0.0.1:${PORT}/v1/chat/completions`;
    const asked = [
      '--fail-with-body',
      '--silent',
      '--show-error',
      '--max-time',
      '60',
      '--json',
      JSON.stringify(body),
      url,
    ];
    const answer = await runAside('curl', asked);
    assert.equal(
      answer.status,
      0,
      `${answer.stdout}${answer.stderr}${await inside(`systemctl status --no-pager ${UNITS[0]} || :`)}`,
    );
    assert.match(JSON.parse(answer.stdout).choices[0].message.content, /^You said: hello/);
    assert.equal(await inside(`stat -c %U $(readlink -f ${STATE})`), 'privatemode-proxy\n');
  });

  it('has units that systemd-analyze accepts after the installation', async () => {
    assert.equal(await inside(`systemd-analyze verify --man=no ${UNITS.join(' ')} 2>&1`), '');
  });

  /** The status of /readyz over TLS, by an address of this machine that is not 127.0.0.1. */
  const readyOverTls = async (): Promise<string> => {
    const retry = ['--retry', '20', '--retry-all-errors', '--fail'];
    const url = `https://127.0.0.2:${PORT}/readyz`;
    const asked = ['--insecure', '--silent', ...retry, '--write-out', '%{http_code}', url];
    const { status, stdout } = await runAside('curl', asked, { timeoutMs: 60_000 });
    const state = await inside(`systemctl status --no-pager ${UNITS[0]} || :`);
    assert.equal(status, 0, `${stdout}${state}`);
    return stdout;
  };

  it('brings each file of deploy that is for systemd, Prometheus or Grafana, as the checkout has it', async () => {
    const files = globSync('{systemd,prometheus,grafana}/**/*.*', { cwd: join(ROOT, 'deploy') });
    const installed = await inside(`cd ${examplesOf('releases.md')}; find . -type f -exec sha256sum {} +`);
    const expected = files
      .filter((path) => statSync(join(ROOT, 'deploy', path)).isFile())
      .map((path) => `${hash('sha256', readFileSync(join(ROOT, 'deploy', path)))}  ./${path}`);
    assert.ok(expected.length >= 9, String(expected.length));
    assert.deepEqual(installed.trim().split('\n').sort(), expected.sort());
  });

  it('serves a team over TLS on all addresses by the commands of docs/team.md', async () => {
    await inside(blockOf('team.md', 'team-tokens'));
    // Another port, by a drop-in that comes after that of the checks.
    const commands = packageBlock('team.md', 'team-systemd').replace('network.conf', 'team.conf');
    await inside(commands.replace('=8080', `=${PORT}`));
    assert.equal(await readyOverTls(), '204');
  });

  it('serves the team without the socket, and stops with a delay, by the commands of docs/replicas.md', async () => {
    const page = readFileSync(join(ROOT, 'docs/replicas.md'), 'utf8');
    const flags = /^ *PRIVATEMODE_PROXY_FLAGS=(.*)$/m.exec(page)![1];
    await inside(`sed -i '/_FLAGS=/s/$/ --port=${PORT} ${flags}/' /etc/privatemode-proxy/environment`);
    await inside(packageBlock('replicas.md', 'without-socket'));
    assert.equal(await readyOverTls(), '204');
    assert.equal(await machine.property(UNITS[1]!, 'ActiveState'), 'inactive');
    const began = Date.now();
    await inside(`systemctl stop ${UNITS[0]}`);
    const seconds = (Date.now() - began) / 1000;
    assert.ok(seconds >= 15 && seconds < 45, `${seconds} s`);
    assert.equal(await machine.property(UNITS[0]!, 'Result'), 'success');
    await inside(`rm /etc/systemd/system/${UNITS[0]}; systemctl daemon-reload`);
    await inside(`systemctl enable --now ${UNITS.join(' ')}`);
  });

  it('can be reloaded, and when it is removed, stops and disables its units and keeps the key and the log', async () => {
    await inside(`systemctl reload ${UNITS[0]}`);
    await inside('apt-get remove privatemode-proxy');
    for (const unit of UNITS) assert.notEqual(await machine.property(unit, 'ActiveState'), 'active', unit);
    await inside(`test -s ${STATE} && test -s ${KEY} && ! test -e /usr/bin/privatemode-proxy`);
    await keepsOwnerWithoutLinks();
  });

  it('stays enabled when it is installed over itself', async () => {
    await inside('apt-get install ./privatemode-proxy_*.deb');
    await inside(`systemctl enable ${UNITS.join(' ')}`);
    await inside('apt-get install --reinstall ./privatemode-proxy_*.deb');
    assert.equal((await left()).filter((path) => path.includes('.wants/')).length, 2);
  });

  it('keeps the key, the log and the owner of the log when it is purged', async () => {
    await inside('apt-get purge privatemode-proxy');
    await inside(`test -s ${STATE} && test -s ${KEY} && ! test -e /usr/bin/privatemode-proxy`);
    await keepsOwnerWithoutLinks();
  });

  it('makes its user also where a unit installed by hand runs, with a user of that name made by systemd', async () => {
    const unit = '[Service]\\nDynamicUser=yes\\nExecStart=sleep infinity\\n';
    await inside(`apt-get install libnss-systemd
      userdel privatemode-proxy
      rm -r /etc/systemd/system/${UNITS[0]}.d
      printf '${unit}' > /etc/systemd/system/${UNITS[0]}
      systemctl daemon-reload
      systemctl start ${UNITS[0]}
      getent passwd privatemode-proxy`);
    await inside('apt-get install ./privatemode-proxy_*.deb');
    await inside('grep ^privatemode-proxy: /etc/passwd');
  });
});

describe('the Debian package by itself', { skip: LINTIAN.skip, timeout: 600_000 }, () => {
  it('passes lintian without an error, a warning or an unused override', async () => {
    const { status, stdout, stderr } = await lintian;
    assert.equal(status, 0, stdout + stderr);
    assert.doesNotMatch(stdout, /^[EW]: |-override /m);
  });

  it('is not installed beside a systemd that does not know the credentials of its unit', () => {
    const { stdout } = run('dpkg-deb', ['--field', join(directory, PACKAGE), 'Breaks']);
    assert.equal(stdout, 'systemd (<< 250)\n');
  });
});

/** Where that page says that the package has the files of deploy. */
const examplesOf = (page: string): string =>
  /`(\/usr\/share\/doc\/\S+)`/.exec(readFileSync(join(ROOT, 'docs', page), 'utf8'))![1]!;

/** A block as somebody writes it who has the package and no checkout. */
const packageBlock = (page: string, name: string): string =>
  blockOf(page, name).replaceAll('deploy/', `${examplesOf(page)}/`);

interface Simulator {
  readonly port: number;
  stop(): Promise<void>;
}

/**
 * The simulator of the packed tarball, started by the line of docs/simulator.md on a free port; its files are
 * in `sim`.
 */
async function packedSimulator(): Promise<Simulator> {
  const packed = run('npm', ['pack', '--ignore-scripts', '--pack-destination', directory]);
  assert.equal(packed.status, 0, packed.stderr);
  const line = blockOf('simulator.md', 'packed');
  assert.ok(line.includes(`./privatemode-proxy-${VERSION}.tgz `) && line.includes('--port 9443'));
  const env = {
    ...withoutSettings(process.env),
    PATH: `${dirname(process.execPath)}:${process.env['PATH']}`,
    npm_config_yes: 'true', // nobody is there to answer
    npm_config_cache: join(directory, 'cache'),
  };
  // In a process group, because npx starts it by a shell.
  const child = spawn('bash', ['-euc', line.replace('9443', '0')], {
    cwd: directory,
    env,
    detached: true,
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const gone = once(child, 'close');
  const [said] = await Promise.race([
    once(child.stdout, 'data'),
    gone.then(() => assert.fail('the simulator ended')),
  ]);
  return {
    port: JSON.parse(String(said)).port,
    async stop() {
      process.kill(-(child.pid as number), 'SIGTERM');
      await gone;
    },
  };
}
