/** `privatemode-proxy clients new NAME`: a token, once, and the line that lets it in. */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { describe, it } from 'node:test';
import { parseClientsFile } from '../../lib/clients/clients-file.ts';
import { type Ran, runCommand } from '../support/command.ts';

const run = (...argv: string[]): Promise<Ran> => runCommand(['clients', ...argv]);

describe('clients new', () => {
  it('prints a token of 256 bits once, and a line with its digest, which the file takes', async () => {
    const { code, stdout, stderr } = await run('new', 'ann');
    assert.deepEqual([code, stderr], [0, '']);
    const tokens = stdout.match(/pmp_[\w-]+/g) ?? [];
    assert.equal(tokens.length, 1);
    const token = tokens[0] as string;
    assert.match(token, /^pmp_[A-Za-z0-9_-]{43}$/);
    assert.equal(Buffer.from(token.slice(4), 'base64url').length, 32);
    const line = /^ {2}(\{.*\})$/m.exec(stdout)?.[1] ?? '';
    const digest = createHash('sha256').update(token).digest('hex');
    assert.deepEqual(JSON.parse(line), { name: 'ann', tokens: [digest] });
    assert.equal(
      parseClientsFile(Buffer.from(`{"clients":[${line}]}`), { needsKeys: false })[0]?.name,
      'ann',
    );
  });

  it('ends with an empty line, so that those of several clients in a loop stand apart', async () => {
    assert.match((await run('new', 'ann')).stdout, /\}\n\n$/);
  });

  it('never prints the same token twice', async () => {
    const tokens = await Promise.all(Array.from({ length: 20 }, () => run('new', 'ann')));
    assert.equal(new Set(tokens.map(({ stdout }) => /pmp_[\w-]+/.exec(stdout)?.[0])).size, 20);
  });
});
