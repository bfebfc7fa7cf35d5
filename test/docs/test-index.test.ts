/** test/README.md: what it links exists, and each file that the runners run stands on it. */
import assert from 'node:assert/strict';
import { existsSync, globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { ROOT } from '../support/processes/tools.ts';

const read = (path: string): string => readFileSync(join(ROOT, path), 'utf8');

/** Where each link of the page leads: a path in the tree, and a heading of a page where one is named. */
const LINKS = [...read('test/README.md').matchAll(/\]\(([^)#]+)(?:#([^)]+))?\)/g)].map(
  ([, path, heading]) => ({
    path: join('test', path as string),
    heading,
  }),
);

/** GitHub's names for the headings of a page. */
const headingsOf = (path: string): string[] =>
  [...read(path).matchAll(/^#+ (.*)$/gm)].map(([, heading]) =>
    (heading as string)
      .toLowerCase()
      .replace(/[^\w\- ]/g, '')
      .replaceAll(' ', '-'),
  );

/** The files that scripts/test.ts, package.json and the soak run. */
function filesThatRun(): string[] {
  const { scripts } = JSON.parse(read('package.json')) as { scripts: Record<string, string> };
  const patterns = Object.values(scripts).flatMap(
    (script) => script.match(/\btest\/(?!support\/)[\w*/.-]+\.ts\b/g) ?? [],
  );
  const soak = read('scripts/soak.ts').match(/\btest\/soak\/proxy-child\.ts\b/g) ?? [];
  return [...new Set(globSync(['test/**/*.test.ts', ...patterns, ...soak], { cwd: ROOT }))].sort();
}

describe('test/README.md, which says which test proves a promise,', () => {
  it('links files that exist', () => {
    const lost = LINKS.map(({ path }) => path).filter((path) => !existsSync(join(ROOT, path)));
    assert.deepEqual(lost, [], 'change the path in its row of test/README.md, or take the row out');
  });

  it('links headings that their pages have', () => {
    const lost = LINKS.filter(
      ({ path, heading }) =>
        heading !== undefined && existsSync(join(ROOT, path)) && !headingsOf(path).includes(heading),
    );
    const shown = lost.map(({ path, heading }) => `${path}#${heading}`);
    assert.deepEqual(shown, [], 'change the heading in its row of test/README.md to one of that page');
  });

  it('names each test file that the runners run', () => {
    const named = new Set(LINKS.map(({ path }) => path));
    const files = filesThatRun();
    assert.ok(files.length > 280 && files.includes('test/applications/codex.ts'), `${files.length} files`);
    const missing = files.filter((file) => !named.has(file));
    const where =
      'add each to test/README.md: as proof of a promise, or to its folder below "All other files"';
    assert.deepEqual(missing, [], where);
  });
});
