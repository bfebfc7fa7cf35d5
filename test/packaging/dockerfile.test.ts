import assert from 'node:assert/strict';
import { existsSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { RUNTIME_VERSION } from '../../scripts/node-runtime.ts';
import { temporaryDirectory } from '../support/processes/temporary-directory.ts';
import { ROOT, run } from '../support/processes/tools.ts';
import { type Instruction, parseDockerfile, type Stage } from './support/dockerfile.ts';

const SOURCE = readFileSync(join(ROOT, 'Dockerfile'), 'utf8');

interface Rule {
  readonly says: string;
  /** What is wrong, for a person; empty: nothing. */
  readonly find: (file: { globals: readonly Instruction[]; stages: readonly Stage[] }) => readonly string[];
  /** Turns the Dockerfile into one that breaks the rule. */
  readonly plant: (source: string) => string;
}

const named = (stage: Stage | undefined, name: string): Instruction[] =>
  (stage?.instructions ?? []).filter((instruction) => instruction.name === name);

const all = (stages: readonly Stage[], name: string): Instruction[] =>
  stages.flatMap((stage) => named(stage, name));

const isExec = ({ text }: Instruction): boolean => {
  const list = text.slice(Math.max(text.indexOf('['), 0));
  try {
    return Array.isArray(JSON.parse(list));
  } catch {
    return false;
  }
};

/** With the last of these words replaced, which belong to the image of the proxy. */
const withLast = (source: string, from: string, to: string): string => {
  const at = source.lastIndexOf(from);
  return source.slice(0, at) + to + source.slice(at + from.length);
};

/** Stages that people start. */
const started = (stages: readonly Stage[]): readonly Stage[] =>
  stages.filter((stage) => named(stage, 'ENTRYPOINT').length > 0);

/** Rules of the linter hadolint, by its numbers where it has one, and of this image. */
const RULES: readonly Rule[] = [
  {
    says: 'names every base image in a build argument, with an exact tag (DL3006, DL3007)',
    find: ({ globals, stages }) => {
      const defaults = new Map(globals.map(({ text }) => text.split('=') as [string, string]));
      return stages.flatMap(({ image }) => {
        if (image === 'scratch') return [];
        const argument = /^\$\{(\w+)\}$/.exec(image)?.[1];
        const value = argument === undefined ? undefined : defaults.get(argument);
        return /^[a-z/]+:\d+\.\d+\.\d+[-\w.]*$/.test(value ?? '') ? [] : [`FROM ${image} (${value})`];
      });
    },
    plant: (source) => source.replace(/=node:[\w.-]+\n/, '=node:latest\n'),
  },
  {
    says: 'names no base image by a digest',
    find: ({ globals, stages }) =>
      [...globals.map(({ text }) => text), ...stages.map(({ image }) => image)].filter((text) =>
        text.includes('@'),
      ),
    plant: (source) => source.replace('bookworm-slim\n', `bookworm-slim@sha256:${'0'.repeat(64)}\n`),
  },
  {
    says: 'builds with the Node that the executable is made of',
    find: ({ globals }) =>
      globals
        .filter(({ text }) => !text.startsWith(`NODE_IMAGE=node:${RUNTIME_VERSION}-`))
        .map(({ text }) => text),
    plant: (source) => source.replace('ARG NODE_IMAGE=node:26', 'ARG NODE_IMAGE=node:25'),
  },
  {
    says: 'starts the last stage from nothing',
    find: ({ stages }) => (stages.at(-1)?.image === 'scratch' ? [] : [String(stages.at(-1)?.image)]),
    plant: (source) => source.replace('FROM scratch', 'FROM alpine'),
  },
  {
    says: 'runs nothing in the last stage, which has no shell',
    find: ({ stages }) => named(stages.at(-1), 'RUN').map(({ text }) => text),
    plant: (source) => withLast(source, 'VOLUME', 'RUN mkdir /x\nVOLUME'),
  },
  {
    says: 'runs as a user with a number that is not 0 (DL3002)',
    find: ({ stages }) =>
      started(stages)
        .map((stage) => named(stage, 'USER').at(-1)?.text ?? '0')
        .filter((user) => !/^[1-9]\d*(:\d+)?$/.test(user)),
    plant: (source) => source.replace('USER 65532:0', 'USER root'),
  },
  {
    says: 'starts the program without a shell, so that signals reach it (DL3025)',
    find: ({ stages }) => {
      const last = stages.at(-1);
      const commands = [...named(last, 'ENTRYPOINT'), ...named(last, 'HEALTHCHECK'), ...named(last, 'CMD')];
      const missing = ['ENTRYPOINT', 'HEALTHCHECK'].filter((name) => named(last, name).length !== 1);
      return [...missing, ...commands.filter((command) => !isExec(command)).map(({ text }) => text)];
    },
    plant: (source) =>
      source.replace('ENTRYPOINT ["/bin/privatemode-proxy"]', 'ENTRYPOINT /bin/privatemode-proxy'),
  },
  {
    says: 'checks health with the command healthcheck of the program',
    find: ({ stages }) => {
      const check = named(stages.at(-1), 'HEALTHCHECK')[0]?.text ?? '';
      return check.includes('"/bin/privatemode-proxy", "healthcheck"') ? [] : [check];
    },
    plant: (source) => source.replace('"healthcheck"', '"--help"'),
  },
  {
    says: 'has a workspace that is its working directory, a volume, and writable for its user',
    find: ({ stages }) => {
      const last = stages.at(-1);
      const copied = named(last, 'COPY').find(({ text }) => text === '/assemble/writable/ /');
      const user = named(last, 'USER')[0]?.text;
      return [
        ...(named(last, 'WORKDIR')[0]?.text === '/workspace' ? [] : ['WORKDIR']),
        ...(named(last, 'VOLUME')[0]?.text === '/workspace' ? [] : ['VOLUME']),
        ...(copied?.flags['chown'] === user ? [] : ['COPY']),
      ];
    },
    plant: (source) => withLast(source, '--chown=65532:0 ', ''),
  },
  {
    says: 'stops by SIGTERM',
    find: ({ stages }) => (named(stages.at(-1), 'STOPSIGNAL')[0]?.text === 'SIGTERM' ? [] : ['STOPSIGNAL']),
    plant: (source) => source.replace('STOPSIGNAL SIGTERM', 'STOPSIGNAL SIGKILL'),
  },
  {
    says: 'copies only files that exist and pass .dockerignore, by COPY rather than ADD (DL3020)',
    find: ({ stages }) => {
      const allowed: readonly string[] =
        readFileSync(join(ROOT, '.dockerignore'), 'utf8').match(/(?<=^!).*$/gm) ?? [];
      const sources = all(stages, 'COPY')
        .filter(({ flags }) => flags['from'] === undefined)
        .flatMap(({ text }) => text.split(/\s+/).slice(0, -1));
      return [
        ...all(stages, 'ADD').map(({ text }) => `ADD ${text}`),
        ...sources.filter((source) => !existsSync(join(ROOT, source))),
        ...sources.filter((source) => !allowed.includes(source.split('/')[0] as string)),
      ];
    },
    plant: (source) => source.replace('COPY lib ./lib', 'COPY test ./test'),
  },
  {
    says: 'has absolute working directories (DL3000), no sudo (DL3004), no cd (DL3003), no package manager of the base',
    find: ({ stages }) => [
      ...all(stages, 'WORKDIR')
        .map(({ text }) => text)
        .filter((text) => !text.startsWith('/')),
      ...all(stages, 'RUN')
        .map(({ text }) => text)
        .filter((text) => /\b(sudo|cd|apt|apt-get|curl|wget)\b/.test(text)),
    ],
    plant: (source) => source.replace('RUN npm ci', 'RUN cd /build && npm ci'),
  },
  {
    says: 'hides no failure in a pipe (DL4006)',
    find: ({ stages }) =>
      all(stages, 'RUN')
        .map(({ text }) => text)
        .filter((text) => text.includes('|')),
    plant: (source) => source.replace('RUN npm ci', 'RUN npm ci | cat'),
  },
  {
    says: 'installs exactly what the lock file says',
    find: ({ stages }) =>
      all(stages, 'RUN')
        .map(({ text }) => text)
        .filter((text) => /\bnpm (i|install|add)\b|\bnpx\b/.test(text)),
    plant: (source) => source.replace('npm ci', 'npm install'),
  },
  {
    says: 'copies only from stages that it has named before',
    find: ({ stages }) =>
      stages.flatMap((stage, index) => {
        const earlier = stages.slice(0, index).map(({ as }) => as);
        return named(stage, 'COPY')
          .map(({ flags }) => flags['from'])
          .filter((from) => from !== undefined && !earlier.includes(from)) as string[];
      }),
    plant: (source) => source.replace('--from=assemble', '--from=asemble'),
  },
];

describe('Dockerfile', () => {
  for (const { says, find, plant } of RULES) {
    it(says, () => {
      assert.deepEqual(find(parseDockerfile(SOURCE)), []);
      const planted = plant(SOURCE);
      assert.notEqual(planted, SOURCE);
      assert.notDeepEqual(find(parseDockerfile(planted)), [], 'and notices where it does not');
    });
  }
});

describe('scripts/image-root.sh', () => {
  it('makes /workspace and /app/privatemode-proxy accessible for owner and group only', () => {
    const scratch = temporaryDirectory('image-root-');
    writeFileSync(join(scratch, 'bundle'), '');
    const { status, stderr } = run('sh', [
      'scripts/image-root.sh',
      '/bin/sh',
      ...['bundle', 'image'].map((name) => join(scratch, name)),
    ]);
    assert.equal(status, 0, stderr);
    const writable = join(scratch, 'writable');
    const modes = readdirSync(writable, { recursive: true, encoding: 'utf8' })
      .sort()
      .map((path) => [path, (statSync(join(writable, path)).mode & 0o7777).toString(8)]);
    assert.deepEqual(modes, [
      ['app', '755'],
      ['app/privatemode-proxy', '770'],
      ['workspace', '770'],
    ]);
  });
});
