/** What comments, test names and pages refer to is in the repository. */
import assert from 'node:assert/strict';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { ROOT } from '../support/processes/tools.ts';

const SOURCES = ['lib', 'simulator', 'scripts', 'bench', 'bin', 'test'];
const PAGES = [
  'README.md',
  'CONTRIBUTING.md',
  'AGENTS.md',
  'SECURITY.md',
  'bench/README.md',
  'deploy/chart/README.md',
];

/** A path of ours in running text or code, also where `../` stands before it. */
const PATH =
  /(?<![\w@$.~/-])(?:\.{1,2}\/)*((?:docs|lib|simulator|scripts|bench|bin|test|deploy)\/[\w./@-]*\w\.(?:ts|md|json|sh|svg|yaml|txt))\b/g;
/** A page with numbers of it: `docs/architecture.md H25`, `docs/protocol/inference.md 5.6 and 11`. */
const SECTION = /\bdocs\/([\w/-]+\.md) ([DH]?\d+(?:\.\d+)?(?:(?:, | and | to )\d+(?:\.\d+)?(?![\w.]))*)/g;
/** References that name no page of ours, or not where it is. */
const NOWHERE: readonly RegExp[] = [
  /\b(?:traps?|hazards?|decisions?) \d+/gi,
  /\(spec[ ,;]|\bspec "/g,
  // The source of a check is shown to people, who find the page in docs/protocol.
  /(?<![\w/-])(?<!['`])(?:inference|attestation|grammar)\.md\b/g,
];

const read = (path: string): string => readFileSync(join(ROOT, path), 'utf8');
const filesBelow = (directory: string): string[] =>
  readdirSync(join(ROOT, directory), { recursive: true, encoding: 'utf8' }).map(
    (name) => `${directory}/${name}`,
  );

const WIDEST_COMMENT = 110;
/** Comments that end beyond that column, a comment behind code too, each with its place. */
const wideComments = (file: string, text: string): string[] =>
  text
    .split('\n')
    .flatMap((line, i) =>
      line.length > WIDEST_COMMENT && /^\s*(?:\*|\/\/|\/\*)|[;,{)] \/\/ /.test(line)
        ? [`${file}:${i + 1}`]
        : [],
    );

/** The numbers of a page: of its headings, decisions, hazards, and numbered items below the chapters. */
function numbersOf(page: string): Set<string> {
  const numbers = new Set<string>();
  let chapter = '';
  for (const line of page.split('\n')) {
    const heading = /^(?:#{2,3} |- \*\*)([DH]?\d+(?:\.\d+)?)\.? /.exec(line)?.[1];
    const item = /^(\d+)\. /.exec(line)?.[1];
    if (heading !== undefined) numbers.add(heading);
    if (/^## /.test(line)) chapter = heading ?? '';
    if (item !== undefined) numbers.add(`${chapter}.${item}`);
  }
  return numbers;
}

/** Numbers of sections that the text refers to and no page has. */
const lostSections = (text: string): string[] =>
  [...text.matchAll(SECTION)].flatMap(([, page, list]) => {
    const path = `docs/${page}`;
    const known = existsSync(join(ROOT, path)) ? numbersOf(read(path)) : new Set<string>();
    return (list as string)
      .split(/, | and | to /)
      .filter((number) => !known.has(number))
      .map((number) => `${path} ${number}`);
  });

/** References of a text that lead nowhere. */
function lostIn(text: string): string[] {
  const paths = [...text.matchAll(PATH)].map(([, path]) => path as string);
  return [...paths.filter((path) => !existsSync(join(ROOT, path))), ...lostSections(text)];
}

const lostInSource = (text: string): string[] => [
  ...lostIn(text),
  ...NOWHERE.flatMap((pattern) => text.match(pattern) ?? []),
];

const lostByFile = (paths: readonly string[], lost: (text: string) => string[]): string[] =>
  paths.flatMap((path) => lost(read(path)).map((reference) => `${path}: ${reference}`));

describe('references to files and sections', () => {
  const sources = SOURCES.flatMap(filesBelow).filter(
    (path) => /\.(?:ts|mjs|sh)$/.test(path) && path !== 'test/docs/references.test.ts',
  );
  const pages = [...PAGES, ...filesBelow('docs').filter((path) => path.endsWith('.md'))];

  it('in comments, code and test names point to something that exists', () => {
    assert.ok(sources.length > 200, `${sources.length} files`);
    assert.deepEqual(lostByFile(sources, lostInSource), []);
  });

  it('in pages point to something that exists', () => {
    assert.ok(pages.length > 12, `${pages.length} pages`);
    assert.deepEqual(lostByFile(pages, lostIn), []);
  });
});

describe('comments', () => {
  it('end at column 110 at the latest', () => {
    const wide = SOURCES.flatMap(filesBelow)
      .filter((file) => /\.(?:ts|js)$/.test(file))
      .flatMap((file) => wideComments(file, read(file)));
    assert.deepEqual(wide, []);
  });
});
