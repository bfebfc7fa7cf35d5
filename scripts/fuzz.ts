/**
 * Every property of the test tree, run longer and from new seeds: `npm run fuzz -- [--seconds 600] [PATH…]`.
 * The time is shared out among the properties; one in a loop takes its share for each turn. A failure is
 * saved in test/fuzz/regressions, where `npm test` tries it again ever after; commit it with what mends it.
 * Exit code 1 if there was one.
 */
import { readdirSync } from 'node:fs';
import { filesWithProperties, REGRESSIONS, runProperties } from '../test/fuzz/run-properties.ts';
import { readOptions, refuse } from './options.ts';

const { values, positionals } = readOptions(import.meta.filename, {
  options: { seconds: { type: 'string', default: '600' } },
  allowPositionals: true,
});

const files = filesWithProperties().filter(
  ({ file }) => positionals.length === 0 || positionals.some((path) => file.includes(path)),
);
if (files.length === 0) refuse(`no file with a property is named so: ${positionals.join(' ')}`);
const properties = files.reduce((sum, file) => sum + file.properties, 0);
const each = Math.max(Math.round((Number(values.seconds) * 1000) / properties), 500);
const saved = (): number => readdirSync(REGRESSIONS).filter((name) => name.endsWith('.json')).length;

console.log(`${properties} properties of ${files.length} files, ${each / 1000} s each`);
const before = saved();
let failed = 0;
for (const { file } of files) {
  const { code, output } = await runProperties(file, { FUZZ_MS: String(each) });
  console.log(`${code === 0 ? 'ok    ' : 'FAILED'}  ${file}`);
  if (code === 0) continue;
  failed += 1;
  console.log(output);
}
console.log(
  failed === 0
    ? 'no property failed'
    : `${failed} files failed, ${saved() - before} failures saved in ${REGRESSIONS}`,
);
process.exitCode = failed === 0 ? 0 : 1;
