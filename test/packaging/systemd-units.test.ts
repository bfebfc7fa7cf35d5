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

const SERVICES = ['privatemode-proxy.service', 'user/privatemode-proxy.service'];
const INSTANCES = 'privatemode-proxy@.service';

describe('systemd units', () => {
  const dropIn = (name: string): string => `privatemode-proxy.service.d/${name}.conf.example`;
  const DROP_INS = [dropIn('team')];
  for (const name of [SERVICES[0]!, ...DROP_INS]) {
    it(`${name} finds the program in /usr/local/bin or in /usr/bin`, () => {
      // systemd.service(5): a name without a slash is searched for in the standard directories
      assert.equal(settings(read(name), 'ExecStart').at(-1)!.split(' ')[0], 'privatemode-proxy');
    });
  }

  for (const name of [...SERVICES, ...DROP_INS]) {
    it(`${name} starts the proxy with flags it accepts`, () => {
      const files = {
        '/creds/api-key': 'key',
        '/creds/clients.json': '{"clients":[]}',
        '/config/privatemode-proxy/api-key': 'key',
      };
      const command = settings(read(name), 'ExecStart').at(-1)!;
      const words = command
        .replaceAll('%d', '/creds')
        .replaceAll('%E', '/config')
        .replaceAll('%S', '/state')
        .split(' ');
      const flags = words.slice(1).filter((word) => word !== '$PRIVATEMODE_PROXY_FLAGS');
      const { config } = parsed(flags, files);
      assert.equal(config.workspace, '/state/privatemode-proxy');
      assert.equal(config.apiKey?.kind, 'file');
      assert.equal(config.clients, name.includes('team') ? '/creds/clients.json' : undefined);
      // systemd kills what is left after TimeoutStopSec: that must not be before the proxy's own grace is
      // over
      const unit = read(name.includes('.service.d') ? SERVICES[0]! : name);
      assert.ok(
        Number.parseInt(settings(unit, 'TimeoutStopSec')[0]!, 10) * 1000 >= config.shutdownGrace + 10_000,
      );
    });
  }

  it('privatemode-proxy@.service gives each instance an admin port and a workspace, and all of them one user and no socket', () => {
    const unit = read(INSTANCES);
    const command = settings(unit, 'ExecStart').at(-1)!;
    const words = command
      .replaceAll('%d', '/creds')
      .replaceAll('%S', '/state')
      .replaceAll('%i', '2')
      .split(' ');
    assert.equal(words[0], 'privatemode-proxy');
    const { config } = parsed(words.slice(1), { '/creds/api-key': 'key' });
    assert.deepEqual(
      [config.reusePort, config.adminAddress, config.workspace],
      [true, { host: '127.0.0.1', port: 9092 }, '/state/privatemode-proxy-2'],
    );
    assert.deepEqual(settings(unit, 'StateDirectory'), ['privatemode-proxy-%i']);
    assert.deepEqual(settings(unit, 'User'), ['privatemode-proxy']);
    assert.doesNotMatch(unit, /^[A-Z][^#]*\.socket/m);
    const patience = Number.parseInt(settings(unit, 'TimeoutStopSec')[0]!, 10) * 1000;
    assert.ok(patience >= config.shutdownDelay + config.shutdownGrace + 10_000);
    // What keeps the service from everything else is the same with one instance and with several.
    const confinement = (name: string): string =>
      /^CapabilityBoundingSet=[\s\S]*(?=\n\[Install\])/m.exec(read(name))![0];
    assert.equal(confinement(INSTANCES), confinement(SERVICES[0]!));
  });

  it('team.conf.example loads each credential that it names, and keeps all flags of the unit but --api-key-fallback', () => {
    const team = read(dropIn('team'));
    const command = settings(team, 'ExecStart').at(-1)!;
    const loaded = settings(team, 'LoadCredential').map((value) => value.split(':')[0]);
    const named = [...command.matchAll(/%d\/([\w.-]+)/g)].map((match) => match[1]);
    assert.deepEqual(named.sort(), ['api-key', ...loaded].sort());
    for (const word of settings(read('privatemode-proxy.service'), 'ExecStart')[0]!.split(' ')) {
      if (!word.startsWith('--api-key-fallback')) assert.ok(command.split(' ').includes(word), word);
    }
  });

  // systemd applies drop-ins by name, so of two command lines only the later one counts.
  it('only team.conf.example has a command line of its own, since drop-ins with one each cancel each other', () => {
    const names = readdirSync(join(UNITS, 'privatemode-proxy.service.d'));
    const own = names.filter(
      (name) => settings(read(`privatemode-proxy.service.d/${name}`), 'ExecStart').length > 0,
    );
    assert.ok(names.length > own.length);
    assert.deepEqual(own, ['team.conf.example']);
  });

  for (const base of [SERVICES[0]!, dropIn('team')]) {
    it(`shared-cache.conf.example adds its settings to the flags of ${base}, and loads its credential`, () => {
      const added = read(dropIn('shared-cache'));
      const credential = 'prompt-cache-salt:/etc/privatemode-proxy/prompt-cache-salt';
      assert.deepEqual(settings(added, 'LoadCredential'), [credential]);
      const variables = settings(added, 'Environment').map((value) =>
        value.replace('%d', '/creds').split('='),
      );
      const command = settings(read(base), 'ExecStart').at(-1)!;
      const flags = command.replaceAll('%d', '/creds').replaceAll('%S', '/state').split(' ').slice(1, -1);
      const files = {
        '/creds/api-key': 'key',
        '/creds/clients.json': '{"clients":[]}',
        '/creds/prompt-cache-salt': 's'.repeat(32),
      };
      const { config: before } = parsed(flags, files);
      const { config } = parsed(flags, files, Object.fromEntries(variables));
      const expected = { disablePromptCache: false, promptCacheSalt: 's'.repeat(32) };
      assert.deepEqual(config, { ...before, ...expected });
    });
  }

  it('the commands of docs/replicas.md make a unit without a socket, with time to stop', () => {
    const command = /^ *sed [\s\S]*?(?= \| sudo tee)/m.exec(blockOf('replicas.md', 'without-socket'))![0];
    const { status, stdout: unit } = run('/bin/sh', ['-c', command], { cwd: ROOT });
    assert.equal(status, 0);
    assert.doesNotMatch(unit, /\.socket/);
    assert.deepEqual(settings(unit, 'After'), ['network-online.target']);
    assert.equal(settings(unit, 'ExecStart')[0], settings(read(SERVICES[0]!), 'ExecStart')[0]);
    const patience = Number.parseInt(settings(unit, 'TimeoutStopSec')[0]!, 10);
    assert.ok(patience >= 15 + 30 + 10, 'the delay and the grace of the page, and a margin');
  });

  for (const name of [SERVICES[0]!, ...DROP_INS]) {
    it(`${name} serves other machines and delays its end with the flags of docs/replicas.md`, () => {
      const page = readFileSync(join(ROOT, 'docs/replicas.md'), 'utf8');
      const added = /^ *PRIVATEMODE_PROXY_FLAGS=(.*)$/m.exec(page)![1]!;
      const command = settings(read(name), 'ExecStart').at(-1)!;
      const words = command.replaceAll('%d', '/creds').replaceAll('%S', '/state');
      const flags = words.replace('$PRIVATEMODE_PROXY_FLAGS', added).split(' ').slice(1);
      const files = {
        '/creds/api-key': 'key',
        '/creds/clients.json': '{"clients":[]}',
      };
      const { config } = parsed(flags, files);
      assert.deepEqual(
        [config.listenAddress, config.shutdownDelay, config.shutdownGrace],
        ['0.0.0.0', 15_000, 30_000],
      );
    });
  }

  for (const name of SERVICES) {
    it(`${name} takes its port from the socket unit, notifies systemd when it is ready, and has a watchdog`, () => {
      const unit = read(name);
      assert.deepEqual(settings(unit, 'Requires'), ['privatemode-proxy.socket']);
      assert.deepEqual(settings(unit, 'Type'), ['notify']);
      assert.deepEqual(settings(unit, 'NotifyAccess'), ['all']);
      // else SIGTERM would reach the systemd-notify that says STOPPING=1 as well
      assert.deepEqual(settings(unit, 'KillMode'), ['mixed']);
      assert.equal(settings(unit, 'WatchdogSec').length, 1);
      assert.match(settings(unit, 'ExecReload')[0]!, /kill -HUP \$MAINPID/);
      const socket = read(name.replace('.service', '.socket'));
      assert.deepEqual(settings(socket, 'ListenStream'), ['127.0.0.1:8080']);
    });
  }
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

    const verify = (scope: string, units: readonly string[]) =>
      run(ANALYZE.path, [scope, 'verify', '--man=no', ...units.map((unit) => join(directory, unit))], {
        env: { PATH: process.env['PATH'], HOME: '/root', XDG_RUNTIME_DIR: directory },
      });

    for (const [scope, folder] of [
      ['system', ''],
      ['user', 'user/'],
    ] as const) {
      it(`finds nothing wrong with the units for --${scope}`, () => {
        const units = ['service', 'socket'].map((kind) => `${folder}privatemode-proxy.${kind}`);
        if (folder === '') units.push('privatemode-proxy@1.service');
        const { status, stderr } = verify(`--${scope}`, units);
        assert.deepEqual([status, stderr], [0, '']);
      });
    }

    it('notices a misspelt setting', () => {
      const path = join(directory, 'privatemode-proxy.service');
      const unit = readFileSync(path, 'utf8');
      writeFileSync(path, unit.replace('WatchdogSec', 'WatchDogSec'));
      assert.match(verify('--system', ['privatemode-proxy.service']).stderr, /WatchDogSec/);
      writeFileSync(path, unit);
    });

    it('rates the exposure of the service at 2.0 at most', () => {
      const unit = join(directory, 'privatemode-proxy.service');
      const { stdout } = run(ANALYZE.path, ['security', '--offline=true', '--no-pager', unit]);
      const exposure = Number(/Overall exposure level .*: ([\d.]+)/.exec(stdout)?.[1]);
      assert.ok(exposure > 0 && exposure <= 2, stdout);
    });
  });
}
