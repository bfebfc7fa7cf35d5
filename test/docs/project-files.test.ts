/**
 * The files by which others join: AGENTS.md, the workflow, dependency updates; and how the scripts read their
 * command line.
 */
import assert from 'node:assert/strict';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { parse } from 'yaml';
import { ROOT, run } from '../support/processes/tools.ts';

const read = (path: string): string => readFileSync(join(ROOT, path), 'utf8');

describe('AGENTS.md', () => {
  const page = read('AGENTS.md');

  it('has at most 60 lines, and the file names that it gives exist', () => {
    assert.ok(page.trimEnd().split('\n').length <= 60);
    const paths = [...page.matchAll(/`((?:lib|test|simulator|docs)\/[\w./-]*)`/g)].map(
      ([, path]) => path as string,
    );
    assert.ok(paths.length >= 5, paths.join());
    for (const path of paths) assert.ok(existsSync(join(ROOT, path)), path);
  });

  it('links CONTRIBUTING.md, and repeats no step of it', () => {
    assert.ok(page.includes('[CONTRIBUTING.md](CONTRIBUTING.md)'));
    const own = new Set(page.split('\n').filter((line) => /^(?:\d+\.|- ) /.test(line)));
    const steps = read('CONTRIBUTING.md').split('\n');
    assert.deepEqual(
      steps.filter((line) => own.has(line)),
      [],
    );
  });
});

interface Workflow {
  readonly permissions: object;
  readonly jobs: Readonly<Record<string, Job>>;
}
interface Job {
  readonly permissions: object;
  readonly container?: { readonly image: string };
  readonly steps: readonly Step[];
}
interface Step {
  readonly uses?: string;
  readonly run?: string;
  readonly with?: Readonly<Record<string, unknown>>;
}

/** What a workflow must not do: each is a sentence for a person; none: it is good. */
function faultsOf({ permissions, jobs }: Workflow): string[] {
  const all = Object.values(jobs).flatMap(({ steps }) => steps);
  const allowed = Object.values(jobs).flatMap((job) => Object.entries(job.permissions ?? { all: 'write' }));
  return [
    ...(JSON.stringify(permissions) === '{}' ? [] : ['grants something to every job']),
    ...allowed
      .filter(([scope, right]) => scope !== 'contents' || right !== 'read')
      .map(([scope]) => `grants ${scope}`),
    ...all
      .map(({ uses }) => uses)
      .filter((uses) => uses !== undefined && !/^actions\/[\w-]+@[0-9a-f]{40}$/.test(uses))
      .map((uses) => `uses ${uses}`),
    ...all
      .filter(
        (step) => step.uses?.startsWith('actions/checkout@') && step.with?.['persist-credentials'] !== false,
      )
      .map(() => 'leaves the token in .git/config'),
  ];
}

describe('the workflows', () => {
  it('run .ci/run with read permission only, by actions that are pinned to a commit', () => {
    const names = readdirSync(join(ROOT, '.github/workflows'));
    assert.ok(names.includes('ci.yml'));
    for (const name of names)
      assert.deepEqual(faultsOf(parse(read(`.github/workflows/${name}`)) as Workflow), [], name);
    const { jobs } = parse(read('.github/workflows/ci.yml')) as Workflow;
    assert.ok(jobs['check']?.steps.some(({ run }) => run === '.ci/run'));
    assert.match(jobs['check']?.container?.image ?? '', /-bookworm$/, 'lib/crypto/ghash needs its compiler');
  });
});

/**
 * Days that npm waits. Throws where they are fewer than seven and no release that fixes a vulnerability is
 * named.
 */
function daysIn(npmrc: string): number {
  const days = Number(/^min-release-age=(\d+)$/m.exec(npmrc)?.[1]);
  const named = /^# until \d{4}-\d\d-\d\d: \S+@\d+\.\d+\.\d+, (?:CVE|GHSA)-\S+$/m.test(npmrc);
  assert.ok(days >= 7 || named, 'min-release-age: at least 7, or "# until DAY: NAME@VERSION, ADVISORY"');
  return days;
}

describe('new versions of dependencies', () => {
  it('wait at least seven days before npm installs them, unless .npmrc names a release that fixes a vulnerability, its advisory and the last day of the exception', () => {
    assert.ok(daysIn(read('.npmrc')) >= 0);
    assert.equal(daysIn('# until 2027-01-31: undici@8.12.5, GHSA-aaaa-bbbb-cccc\nmin-release-age=0\n'), 0);
    for (const text of [
      'min-release-age=0\n',
      '',
      '# until later: undici@8.12.5, GHSA-aaaa-bbbb-cccc\nmin-release-age=6\n',
      '#   # until 2027-01-31: NAME@1.2.3, GHSA-xxxx-xxxx-xxxx\nmin-release-age=0\n', // the example
    ])
      assert.throws(() => daysIn(text), { code: 'ERR_ASSERTION' }, text);
  });

  it('wait seven days before Dependabot proposes them, for npm, GitHub Actions and Docker', () => {
    const { updates } = parse(read('.github/dependabot.yml')) as {
      updates: readonly { 'package-ecosystem': string; cooldown?: Record<string, unknown> }[];
    };
    assert.deepEqual(
      updates.map((update) => [update['package-ecosystem'], update.cooldown]),
      ['npm', 'github-actions', 'docker'].map((name) => [name, { 'default-days': 7 }]),
    );
  });
});

describe('the scripts', () => {
  const started = (...command: string[]) => run(process.execPath, command, { cwd: ROOT });

  for (const command of [
    'build-binary.ts --arch x86',
    'build-ghash.ts --chek',
    'release.ts --outt x',
    'soak.ts --seconds abc',
    'test.ts --dor library',
  ])
    it(`do nothing and end with one line and exit code 2: ${command}`, () => {
      const { status, stdout, stderr } = started(...`scripts/${command}`.split(' '));
      assert.deepEqual([status, stdout, stderr.split('\n').length], [2, '', 2], stderr);
    });
});
