import assert from 'node:assert/strict';
import { cpSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { before, describe, it } from 'node:test';
import { parsed } from '../support/doors/config.ts';
import { program } from '../support/processes/foreign-programs.ts';
import { temporaryDirectory } from '../support/processes/temporary-directory.ts';
import { ROOT, run } from '../support/processes/tools.ts';
import { blockOf } from './support/install-blocks.ts';

const UNITS = join(ROOT, 'deploy/systemd');
const ANALYZE = program('systemd-analyze', { from: 'scripts/install-system-tools.sh' });
const read = (name: string): string => readFileSync(join(UNITS, name), 'utf8');

/** All values of a setting, in order. */
const settings = (unit: string, name: string): string[] =>
  [...unit.matchAll(new RegExp(`^${name}=(.*)$`, 'gm'))].map((match) => match[1] as string);

/** What the last unit or drop-in sets, with the files of the others as systemd shows them to the service. */
function configured(names: readonly string[], more: Readonly<Record<string, string>> = {}) {
  const shown = (text: string): string =>
    text
      .replaceAll('%d', '/creds')
      .replaceAll('%E', '/config')
      .replaceAll('%S', '/state')
      .replaceAll('%i', '2');
  const variables = names.flatMap((name) => settings(read(name), 'Environment').map(shown));
  const env = Object.fromEntries(variables.map((each) => [each.split('=')[0]!, each.replace(/^\w+=/, '')]));
  const files = {
    '/creds/api-key': 'key',
    '/creds/clients.json': '{"clients":[]}',
    '/creds/prompt-cache-salt': 's'.repeat(32),
    '/config/privatemode-proxy/api-key': 'key',
  };
  return parsed([], files, { ...env, ...more }).config;
}

const SERVICES = ['privatemode-proxy.service', 'user/privatemode-proxy.service'];
const INSTANCES = 'privatemode-proxy@.service';

describe('systemd units', () => {
  const dropIn = (name: string): string => `privatemode-proxy.service.d/${name}.conf.example`;
  const [SYSTEM = ''] = SERVICES;
  const TEAM = [SYSTEM, dropIn('team')];
  const patience = (name: string): number =>
    Number.parseInt(settings(read(name), 'TimeoutStopSec')[0]!, 10) * 1000;

  it('start the program without flags, so that a variable of an administrator wins over those of the unit', () => {
    // systemd.service(5): a name without a slash is searched for in the standard directories
    for (const name of [SYSTEM, INSTANCES])
      assert.deepEqual(settings(read(name), 'ExecStart'), ['privatemode-proxy']);
    assert.deepEqual(settings(read('user/privatemode-proxy.service'), 'ExecStart'), [
      '%h/.local/bin/privatemode-proxy',
    ]);
    for (const name of readdirSync(join(UNITS, 'privatemode-proxy.service.d')))
      assert.deepEqual(settings(read(`privatemode-proxy.service.d/${name}`), 'ExecStart'), [], name);
  });

  for (const names of [...SERVICES.map((name) => [name]), TEAM]) {
    it(`${names.join(' and ')}: settings that the proxy accepts, and time to stop`, () => {
      const config = configured(names);
      assert.equal(config.workspace, '/state/privatemode-proxy');
      assert.equal(config.listenAddress, '127.0.0.1');
      assert.ok(config.apiKey?.path);
      assert.equal(config.clients, names === TEAM ? '/creds/clients.json' : undefined);
      // systemd kills what is left after TimeoutStopSec: that must not be before the proxy's own grace is
      // over
      assert.ok(patience(names[0]!) >= config.shutdownGrace + 10_000);
    });
  }

  it('privatemode-proxy@.service gives each instance an admin port and a workspace, and all of them one user and no socket', () => {
    const unit = read(INSTANCES);
    const config = configured([INSTANCES]);
    assert.deepEqual(
      [config.reusePort, config.adminAddress, config.workspace],
      [true, { host: '127.0.0.1', port: 9092 }, '/state/privatemode-proxy-2'],
    );
    assert.deepEqual(settings(unit, 'StateDirectory'), ['privatemode-proxy-%i']);
    assert.deepEqual(settings(unit, 'User'), ['privatemode-proxy']);
    assert.doesNotMatch(unit, /^[A-Z][^#]*\.socket/m);
    assert.ok(patience(INSTANCES) >= config.shutdownDelay + config.shutdownGrace + 10_000);
    // What keeps the service from everything else is the same with one instance and with several.
    const confinement = (name: string): string =>
      /^CapabilityBoundingSet=[\s\S]*(?=\n\[Install\])/m.exec(read(name))![0];
    assert.equal(confinement(INSTANCES), confinement(SYSTEM));
  });

  for (const name of ['team', 'shared-cache']) {
    it(`${name}.conf.example loads each credential that it names`, () => {
      const loaded = settings(read(dropIn(name)), 'LoadCredential').map((value) => value.split(':')[0]);
      const named = [...read(dropIn(name)).matchAll(/=@?%d\/([\w.-]+)/g)].map((match) => match[1]);
      assert.deepEqual(named.sort(), loaded.sort());
    });
  }

  it('shared-cache.conf.example adds a shared salt', () => {
    const expected = { disablePromptCache: false, promptCacheSalt: 's'.repeat(32) };
    assert.deepEqual(configured([...TEAM, dropIn('shared-cache')]), { ...configured(TEAM), ...expected });
  });

  it('serve other machines and delay their end with the variables of docs/team.md', () => {
    const page = readFileSync(join(ROOT, 'docs/team.md'), 'utf8');
    const added = [...page.matchAll(/^ *(PRIVATEMODE_PROXY_\w+)=(.*)$/gm)].map(([, name, value]) => [
      name,
      value,
    ]);
    const config = configured(TEAM, Object.fromEntries(added));
    assert.deepEqual(
      [config.listenAddress, config.shutdownDelay, config.shutdownGrace],
      ['0.0.0.0', 15_000, 30_000],
    );
  });

  it('the commands of docs/team.md make a unit without a socket, with time to stop', () => {
    const command = /^ *sed [\s\S]*?(?= \| sudo tee)/m.exec(blockOf('team.md', 'without-socket'))![0];
    const { status, stdout: unit } = run('/bin/sh', ['-c', command], { cwd: ROOT });
    assert.equal(status, 0);
    assert.doesNotMatch(unit, /\.socket/);
    assert.deepEqual(settings(unit, 'After'), ['network-online.target']);
    assert.deepEqual(settings(unit, 'Environment'), settings(read(SYSTEM), 'Environment'));
    const seconds = Number.parseInt(settings(unit, 'TimeoutStopSec')[0]!, 10);
    assert.ok(seconds >= 15 + 30 + 10, 'the delay and the grace of the page, and a margin');
  });

  it('notify systemd, have a watchdog, and let the proxy alone get SIGTERM', () => {
    for (const unit of SERVICES.map(read)) {
      for (const [name, value] of Object.entries({ Type: 'notify', NotifyAccess: 'all', KillMode: 'mixed' }))
        assert.deepEqual(settings(unit, name), [value]); // else SIGTERM would reach systemd-notify as well
      assert.equal(settings(unit, 'WatchdogSec').length, 1);
    }
  });
});

if (ANALYZE.skip === false) {
  describe('systemd-analyze', () => {
    let directory: string;
    // The units as they are, but for a program that exists on this machine.
    before(() => {
      directory = temporaryDirectory('units-');
      cpSync(UNITS, directory, { recursive: true });
      for (const name of [...SERVICES, INSTANCES]) {
        const path = join(directory, name);
        writeFileSync(path, readFileSync(path, 'utf8').replaceAll(/^ExecStart=\S+/gm, 'ExecStart=/bin/true'));
      }
    });

    for (const [scope, units] of [
      ['system', ['privatemode-proxy.service', 'privatemode-proxy.socket', 'privatemode-proxy@1.service']],
      ['user', ['user/privatemode-proxy.service', 'user/privatemode-proxy.socket']],
    ] as const) {
      it(`finds nothing wrong with the units for --${scope}`, () => {
        const paths = units.map((unit) => join(directory, unit));
        const env = { PATH: process.env['PATH'], HOME: '/root', XDG_RUNTIME_DIR: directory };
        const { status, stderr } = run(ANALYZE.path, [`--${scope}`, 'verify', '--man=no', ...paths], { env });
        assert.deepEqual([status, stderr], [0, '']);
      });
    }

    it('rates the exposure of the service at 2.0 at most', () => {
      const unit = join(directory, 'privatemode-proxy.service');
      const { stdout } = run(ANALYZE.path, ['security', '--offline=true', '--no-pager', unit]);
      const exposure = Number(/Overall exposure level .*: ([\d.]+)/.exec(stdout)?.[1]);
      assert.ok(exposure > 0 && exposure <= 2, stdout);
    });
  });
}
