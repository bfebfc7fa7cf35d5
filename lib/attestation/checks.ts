/** Every check of the program in one table; docs/verification.md is made from it. */
import type { CheckDescription } from './check.ts';
import { DOCUMENT_ROWS } from './document-checks.ts';
import { MESH_ROWS, SECRET_ROWS } from './mesh.ts';
import { SNP } from './snp/verify.ts';
import { TDX } from './tdx/verify.ts';

export interface CheckSection {
  readonly title: string;
  readonly rows: readonly CheckDescription[];
}

/** In the order in which the checks are made. Ids are unique over all sections. */
export const CHECK_SECTIONS: readonly CheckSection[] = [
  { title: 'Document and manifest', rows: DOCUMENT_ROWS },
  { title: 'SEV-SNP evidence', rows: SNP.rows },
  { title: 'TDX evidence', rows: TDX.rows },
  { title: 'Mesh certificate', rows: MESH_ROWS },
  { title: 'Secret exchange', rows: SECRET_ROWS },
];

const cell = (text: string): string => text.replaceAll('|', '\\|');

function renderRow({ id, title, expected, source, conditional, code }: CheckDescription): string {
  const holds = conditional === true ? `${expected} (may not apply)` : expected;
  return `| \`${id}\` | ${[title, holds, source].map(cell).join(' | ')} | \`${code ?? 'attestation_failed'}\` |`;
}

/** The sections as Markdown tables: id, what it is, what must hold, where the rule comes from, the error of a failure. */
export function renderChecksTable(): string {
  return CHECK_SECTIONS.map(({ title, rows }) =>
    [
      `### ${title}`,
      '',
      '| id | check | what must hold | source | error |',
      '| --- | --- | --- | --- | --- |',
      ...rows.map(renderRow),
      '',
    ].join('\n'),
  ).join('\n');
}
