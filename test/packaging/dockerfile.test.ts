import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { RUNTIME_VERSION } from '../../scripts/node-runtime.ts';
import { ROOT } from '../support/processes/tools.ts';
import { parseDockerfile, type Stage } from './support/dockerfile.ts';

const { globals, stages } = parseDockerfile(readFileSync(join(ROOT, 'Dockerfile'), 'utf8'));
const last = stages.at(-1) as Stage;
const texts = (name: string, of: readonly Stage[] = stages): string[] =>
  of.flatMap(({ instructions }) => instructions.filter((each) => each.name === name).map(({ text }) => text));

/** test/packaging/built/image.check.ts proves what the image does, where a build of it can be started. */
describe('Dockerfile', () => {
  it('names every base image in a build argument, with an exact tag, and builds with the Node of the executable', () => {
    const defaults = new Map(globals.map(({ text }) => text.split('=') as [string, string]));
    const images = stages.map(({ image }) => image).filter((image) => image !== 'scratch');
    for (const image of images)
      assert.match(
        defaults.get(/^\$\{(\w+)\}$/.exec(image)?.[1] ?? '') ?? image,
        /^[a-z/]+:\d+\.\d+\.\d+[-\w.]*$/,
      );
    assert.ok(defaults.get('NODE_IMAGE')?.startsWith(`node:${RUNTIME_VERSION}-`));
  });

  it('starts what it does as a user with a number that is not 0, and the last stage from nothing', () => {
    for (const stage of stages.filter((each) => texts('ENTRYPOINT', [each]).length > 0))
      assert.match(texts('USER', [stage]).at(-1) ?? '0', /^[1-9]\d*(:\d+)?$/);
    assert.deepEqual(
      [last.image, texts('RUN', [last]), texts('STOPSIGNAL', [last])],
      ['scratch', [], ['SIGTERM']],
    );
  });

  it('copies only files that exist and pass .dockerignore, and installs exactly what the lock file says', () => {
    const allowed = readFileSync(join(ROOT, '.dockerignore'), 'utf8').match(/(?<=^!).*$/gm) ?? [];
    const sources = stages
      .flatMap(({ instructions }) => instructions)
      .filter(({ name, flags }) => name === 'COPY' && flags['from'] === undefined)
      .flatMap(({ text }) => text.split(/\s+/).slice(0, -1));
    for (const source of sources) {
      assert.ok(existsSync(join(ROOT, source)), source);
      assert.ok((allowed as string[]).includes(source.split('/')[0]!), source);
    }
    assert.deepEqual(texts('ADD'), []);
    for (const command of texts('RUN')) assert.doesNotMatch(command, /\bnpm (i|install|add)\b|\bnpx\b|\|/);
  });
});
