/**
 * The name of the provider that `run` gives to agents: constant for a user in a project, and known to no file
 * of a repository.
 */
import assert from 'node:assert/strict';
import {
  chmodSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { userInfo } from 'node:os';
import { join } from 'node:path';
import { beforeEach, describe, it } from 'node:test';
import { providerName, stateDirectory } from '../../lib/commands/provider-name.ts';
import { temporaryDirectory } from '../support/processes/temporary-directory.ts';

describe('the name of the provider that run gives to agents', () => {
  const directory = temporaryDirectory('provider-name-');
  let project: string;
  let state: string;
  const file = (): string => join(state, 'privatemode-proxy/provider-names.key');
  const name = (at = project, env: Record<string, string> = { XDG_STATE_HOME: state }) =>
    providerName(env, at);
  beforeEach(() => {
    const scratch = mkdtempSync(join(directory, 'case-'));
    project = join(scratch, 'project');
    state = join(scratch, 'state');
    mkdirSync(join(project, '.git'), { recursive: true });
    mkdirSync(join(project, 'below'));
    mkdirSync(join(scratch, 'other/.git'), { recursive: true });
  });

  it('is the same in a project and its subdirectories, and is another one in another project', async () => {
    const { name: first, why } = await name();
    assert.match(first, /^privatemode-[0-9a-f]{16}$/);
    assert.equal(why, undefined);
    assert.deepEqual(await Promise.all([name(), name(join(project, 'below'))]), [
      { name: first },
      { name: first },
    ]);
    assert.notEqual((await name(join(project, '../other'))).name, first);
  });

  it('is the same for two that start at the same time, before there is a key', async () => {
    const [first, second] = await Promise.all([name(), name()]);
    assert.deepEqual(second, first);
    assert.equal(first.why, undefined);
  });

  it('is derived from a key in a file that only the user can read', async () => {
    const { name: first } = await name();
    assert.equal(statSync(file()).mode & 0o777, 0o600);
    assert.equal(statSync(join(state, 'privatemode-proxy')).mode & 0o777, 0o700);
    assert.match(readFileSync(file(), 'utf8'), /^[0-9a-f]{64}\n$/);
    writeFileSync(file(), `${'0'.repeat(64)}\n`);
    assert.notEqual((await name()).name, first, 'another key');
  });

  it('is derived from a key below the home directory if XDG_STATE_HOME is not an absolute path', async () => {
    const home = mkdtempSync(join(directory, 'home-'));
    const { name: first } = await name(project, { HOME: home, XDG_STATE_HOME: 'state' });
    assert.deepEqual(await name(project, { HOME: home }), { name: first });
    assert.ok(statSync(join(home, '.local/state/privatemode-proxy/provider-names.key')).isFile());
  });

  it('is derived from a key below the home directory of the account if HOME is empty or no absolute path', () => {
    const own = join(userInfo().homedir, '.local/state/privatemode-proxy');
    for (const HOME of ['', '.', 'home']) assert.equal(stateDirectory({ HOME }), own);
  });

  for (const [what, spoil, why] of [
    ['can be read by others', () => chmodSync(file(), 0o644), /only you can read/],
    ['holds no key', () => writeFileSync(file(), 'known\n'), /only you can read/],
    ['would lie in a directory that cannot be made', () => (state = '/dev/null'), /^ENOTDIR$/],
    [
      'would lie in a directory of the project',
      () => (state = join(project, '.state')),
      /is part of the project/,
    ],
    [
      'would lie behind a link into the project',
      () => {
        mkdirSync(join(project, 'bait'));
        state = join(state, 'link');
        symlinkSync(join(project, 'bait'), state);
      },
      /is part of the project/,
    ],
  ] as const) {
    it(`is new each time, with the reason, if its key file ${what}`, async () => {
      await name();
      spoil();
      const [first, second] = [await name(), await name()];
      assert.match(first.name, /^privatemode-[0-9a-f]{16}$/);
      assert.notEqual(first.name, second.name);
      assert.match(first.why ?? '', why);
    });
  }
});
