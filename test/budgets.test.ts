/** The budgets of docs/architecture.md: what counts, what is refused, and which raise is told. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { aboveBudget, lowered, raises, roomSizes, tooFewComments } from '../scripts/budgets.ts';

const PAGE = `
| room | holds | lines | at most | may import |
| \`a\` | the first | 1,200 | 1,250 | - |
| \`b-c\` | the second: \`x | y\` | 7 | 9 | a |

| what | counted | today | at most |
| \`pages\` | words | 10 | 12 |
`;

const sizes = (a: number, b: number, pages = 12) =>
  new Map([
    ['a', a],
    ['b-c', b],
    ['pages', pages],
  ]);

describe('the budget of a room', () => {
  it('counts all lines of its files, also blank ones and comments, in TypeScript or not', () => {
    const files = [
      ['a/one.ts', '// why\n\nlet x;\n'],
      ['a/deep/two.html', '<p>\n</p>'],
      ['b-c.ts', 'let y;\n'],
    ] as const;
    assert.deepEqual(
      [...roomSizes(files)],
      [
        ['a', 5],
        ['b-c', 1],
      ],
    );
  });

  it('refuses one line more, a room without a row, and a row without a room', () => {
    assert.deepEqual(aboveBudget(sizes(1250, 9), PAGE), []);
    assert.deepEqual(aboveBudget(sizes(1251, 10, 13), PAGE), [
      'a has 1,251, and at most 1,250 in docs/architecture.md',
      'b-c has 10, and at most 9 in docs/architecture.md',
      'pages has 13, and at most 12 in docs/architecture.md',
    ]);
    assert.deepEqual(aboveBudget(new Map([...sizes(1, 1), ['d', 1]]), PAGE), [
      'd has no row in docs/architecture.md',
    ]);
    assert.deepEqual(
      aboveBudget(
        new Map([
          ['a', 1],
          ['b-c', 1],
        ]),
        PAGE,
      ),
      ['pages has a row in docs/architecture.md, and is not there'],
    );
  });

  it('is told when it was raised, and only then', () => {
    assert.deepEqual(raises(PAGE, PAGE), []);
    assert.deepEqual(raises(PAGE.replace('1,250', '1,300'), PAGE), []);
    assert.deepEqual(raises(PAGE.replace('1,250', '1,200'), PAGE), [
      'budget of a raised from 1,200 to 1,250',
    ]);
    const before = PAGE.replace(/^\| `b-c`.*\n/m, '');
    assert.deepEqual(raises(before, PAGE), ['budget of b-c raised from 0 to 9']);
  });

  it('is lowered to what is there, never raised', () => {
    const page = lowered(PAGE, sizes(1100, 10, 11));
    assert.match(page, /^\| `a` \| the first \| 1,100 \| 1,100 \| - \|$/m);
    assert.match(page, /^\| `b-c` \| the second: `x \| y` \| 10 \| 9 \| a \|$/m);
    assert.match(page, /^\| `pages` \| words \| 11 \| 11 \|$/m);
  });
});

describe('the share of comments', () => {
  const code = 'let x; // no line of its own\n';
  const comments = '/**\n * two\n */\n  // one\n'; // four lines

  it('is refused below 12 % in a folder of lib, and in the files beside them together', () => {
    assert.deepEqual(tooFewComments([['a/one.ts', comments + code.repeat(29)]]), []);
    assert.deepEqual(tooFewComments([['a/one.ts', comments + code.repeat(30)]]), [
      'a: 11.8 % of the lines are comments, not 12 %',
    ]);
    assert.deepEqual(
      tooFewComments([
        ['b.ts', comments.repeat(2) + code.repeat(29)],
        ['c.ts', code.repeat(29)],
      ]),
      [],
    );
    assert.deepEqual(tooFewComments([['b.ts', code]]), [
      'files alone in lib: 0.0 % of the lines are comments, not 12 %',
    ]);
  });
});
