/** What the workflow and the updates of dependencies may do. */
import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { parse } from 'yaml';
import { ROOT } from '../support/processes/tools.ts';

const read = (path: string): string => readFileSync(join(ROOT, path), 'utf8');

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
