/** `verify` over files: roots, dates, what is left out, and files that cannot be used. */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { readFileSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { before, describe, it } from 'node:test';
import { flagsOf, secretFlagsOf, vectorPath, verifyCommand } from '../support/evidence/verify.ts';
import { temporaryDirectory } from '../support/processes/temporary-directory.ts';

const without = (flags: readonly string[], name: string): string[] => {
  const at = flags.indexOf(name);
  return at === -1 ? [...flags] : [...flags.slice(0, at), ...flags.slice(at + 2)];
};

const GOOD = flagsOf('synthetic_v158');
const SECRET = secretFlagsOf('synthetic_v158');
const OTHER_CA = vectorPath('synthetic', 'negative', 'secret_cert_other_ca.json');

describe('verify of a saved exchange', () => {
  it('rejects under the built-in roots an exchange that the vendors did not sign', async () => {
    const { code, stdout, stderr } = await verifyCommand([
      ...without([...GOOD, ...SECRET], '--roots'),
      '--verbose',
    ]);
    assert.equal(code, 10);
    assert.match(stdout, /^Roots +AMD and Intel, built in$/m);
    assert.match(stdout, /✗ Signature on the VCEK certificate/);
    assert.match(stdout, /\? 25 checks could not be made: an earlier check failed/);
    assert.equal(stderr, '');
  });

  it('warns of custom roots on stderr, in the heading and in the conclusion', async () => {
    const { code, stdout, stderr } = await verifyCommand([...GOOD, ...SECRET]);
    assert.equal(code, 0);
    assert.match(
      stderr,
      /!! WARNING: --roots .*synthetic_v158\n!! The built-in hardware roots .* are not used/,
    );
    assert.match(stdout, /^Roots +.*synthetic_v158, NOT those of AMD and Intel$/m);
    assert.match(stdout, /^[✓!] ACCEPTED under custom roots/m);
    assert.match(stdout, /says nothing about real hardware/);
  });

  it('judges by the date of --at, and without --at by the present', async () => {
    const { code } = await verifyCommand([...GOOD, '--at', '2040-01-01T00:00:00Z']);
    assert.equal(code, 10);
    const { json } = await verifyCommand([...without(GOOD, '--at'), '--json'], {
      now: '2026-12-05T06:07:08Z',
    });
    assert.equal(json().at, '2026-12-05T06:07:08.000Z');
  });

  for (const [tee, argv] of [
    ['snp', [...GOOD, ...SECRET]],
    ['tdx', flagsOf('synthetic_tdx')],
  ] as const) {
    it(`says NOT JUDGED if only the ${tee} collateral has expired, and until when it was in force`, async () => {
      const late = [...argv, '--at', '2029-01-01T00:00:00Z'];
      const { code, stdout } = await verifyCommand(late);
      assert.equal(code, 10);
      assert.match(
        stdout,
        /^✗ NOT JUDGED at this time under custom roots: the collateral was in force until 2027-11-01T00:00:00\.000Z, and every check that applies held then\.$/m,
      );
      assert.match(
        stdout,
        /^Judge it by the time it was made, before 2027-11-01T00:00:00\.000Z, with --at\./m,
      );
      assert.doesNotMatch(stdout, /REJECTED|ACCEPTED/);
      const { json } = await verifyCommand([...late, '--json']);
      assert.equal(json().outcome, 'rejected');
      assert.deepEqual(Object.keys(json()), [
        ...['outcome', 'tee', 'manifestSha256', 'at', 'roots', 'checks', 'failure'],
      ]);
    });
  }

  for (const [what, more] of [
    ['another manifest', ['--manifest', vectorPath('synthetic', 'manifest.json')]],
    ['other roots', ['--roots', vectorPath('synthetic')]],
    ['a secret of another mesh CA', ['--secret-response', OTHER_CA]],
    ['certificates that have expired', ['--at', '2040-01-01T00:00:00Z']],
  ] as const) {
    it(`rejects an exchange with ${what}, even if its collateral has expired too`, async () => {
      const { code, stdout } = await verifyCommand([
        ...GOOD,
        ...SECRET,
        '--at',
        '2029-01-01T00:00:00Z',
        ...more,
      ]);
      assert.equal(code, 10);
      assert.match(stdout, /^✗ REJECTED: a check failed\.$/m);
      assert.doesNotMatch(stdout, /NOT JUDGED/);
    });
  }

  it('warns of an --at in the future, but judges by it', async () => {
    const early = await verifyCommand([...GOOD, '--json'], { now: '2026-11-30T23:59:59Z' });
    assert.equal(early.code, 0);
    assert.match(early.stderr, /^Warning: --at 2026-12-01T00:00:00\.000Z lies in the future/m);
    assert.equal(early.json().at, '2026-12-01T00:00:00.000Z');
    for (const now of ['2026-12-01T00:00:00Z', '2027-01-01T00:00:00Z']) {
      assert.doesNotMatch((await verifyCommand(GOOD, { now })).stderr, /future/);
    }
  });

  it('exits with 35 for an exchange accepted under custom roots, unless --accept-custom-roots is given', async () => {
    const strict = GOOD.filter((flag) => flag !== '--accept-custom-roots');
    const { code, stdout } = await verifyCommand(strict);
    assert.equal(code, 35);
    assert.match(stdout, /^[✓!] ACCEPTED under custom roots/m);
    const rejected = await verifyCommand([...strict, '--at', '2040-01-01T00:00:00Z']);
    assert.equal(rejected.code, 10, 'what is refused anyway keeps its code');
  });

  it('accepts for --at a date in any form of RFC 3339', async () => {
    for (const at of [
      '2026-12-01T00:00:00.000Z',
      '2026-12-01t01:00:00+01:00',
      '2026-11-30T19:00:00.0000001-05:00',
    ]) {
      const { json } = await verifyCommand([...GOOD, '--at', at, '--json']);
      assert.equal(json().at, '2026-12-01T00:00:00.000Z', at);
    }
  });

  it('accepts evidence without its secret exchange, and says that only the evidence was verified', async () => {
    const { code, stdout } = await verifyCommand([...GOOD, '--verbose']);
    assert.equal(code, 0);
    assert.match(stdout, /– 7 checks do not apply: no secret exchange was given/);
    assert.match(stdout, /Only the evidence was verified/);
  });

  it('warns of unknown members of the collateral, but judges the exchange', async () => {
    const path = join(temporaryDirectory('verify-unknown-'), 'collateral.json');
    writeFileSync(path, '{"foo":"00","a\\u001b[2J":1}');
    const { code, stderr } = await verifyCommand([...GOOD, '--collateral', path, '--json']);
    assert.equal(code, 0);
    const names = String.raw`"foo", "a\u001b[2J"`;
    assert.ok(
      stderr.includes(
        `Warning: --collateral ${path} has members that verify does not know and ignores: ${names}\n`,
      ),
      stderr,
    );
    const { stderr: known } = await verifyCommand(flagsOf('synthetic_tdx'));
    assert.doesNotMatch(known, /does not know/);
  });

  it('rejects an exchange of another manifest with manifest_mismatch', async () => {
    const other = await verifyCommand([
      ...GOOD,
      '--manifest',
      vectorPath('synthetic', 'manifest.json'),
      '--json',
    ]);
    assert.deepEqual([other.code, other.json().failure?.code], [10, 'manifest_mismatch']);
  });

  it('needs no network: a process that can open no connection verifies the exchange', async () => {
    const cut =
      'import net from "node:net"; import dns from "node:dns";' +
      'const end = () => process.exit(99); net.Socket.prototype.connect = end; dns.lookup = end;';
    const run = (argv: readonly string[]): Promise<number | null> =>
      new Promise((resolve, reject) => {
        const program = join(import.meta.dirname, '../../bin/privatemode-proxy.ts');
        const child = spawn(
          process.execPath,
          ['--import', `data:text/javascript,${encodeURIComponent(cut)}`, program, 'verify', ...argv],
          { stdio: 'ignore', timeout: 60_000 },
        );
        child.on('error', reject);
        child.on('exit', resolve);
      });
    assert.deepEqual(
      await Promise.all([
        run([...GOOD, ...SECRET]),
        run(without(flagsOf('synthetic_tdx'), '--collateral')),
        // The cut is seen: the live service cannot be asked like this.
        run([
          '--api-endpoint',
          'localhost:9',
          '--api-key',
          'k',
          '--manifest-path',
          vectorPath('synthetic', 'manifest.json'),
        ]),
      ]),
      [0, 10, 99],
    );
  });
});

describe('files that verify cannot use', () => {
  let directory: string;
  before(() => {
    directory = temporaryDirectory('verify-files-');
  });

  const cases: readonly (readonly [
    what: string,
    flag: string,
    content: string | undefined,
    words: RegExp,
  ])[] = [
    [
      'a missing file',
      '--evidence',
      undefined,
      /failed to read ".*": ENOENT: no such file or directory; check the path/,
    ],
    ['an empty file', '--evidence', '', /it is empty/],
    [
      'an error page',
      '--manifest',
      '<!DOCTYPE html><title>404</title>',
      /cannot be used: it is no JSON object with the member Policies: not a manifest; fetch it again/,
    ],
    ['white space', '--manifest', '\n', /cannot be used: it is no JSON object/],
    ['text', '--evidence', 'hello', /not JSON/],
    ['a JSON list', '--evidence', '[]', /not a JSON object/],
    ['another object', '--nonce', '{"nonce":"AA=="}', /no member "Nonce"/],
    ['a number for base64', '--nonce', '{"Nonce":7}', /no member "Nonce" with base64/],
    ['base64 without padding', '--nonce', '{"Nonce":"AAA"}', /"Nonce" is not base64/],
    ['a member twice', '--nonce', '{"Nonce":"AA==","Nonce":"AA=="}', /appears twice/],
    [
      'an incomplete secret response',
      '--secret-response',
      '{"Signature":"AA=="}',
      /no member "EncapsulatedKey"/,
    ],
    ['collateral that is no object', '--collateral', '[]', /not a JSON object/],
    ['collateral with a number', '--collateral', '{"tcb_info":1}', /tcb_info is not a string/],
    ['collateral with odd hex', '--collateral', '{"vcek":"abc"}', /vcek is not hex/],
    [
      'roots that are no directory',
      '--roots',
      'x',
      /failed to read the directory ".*" of --roots: ENOTDIR: a file stands where a directory is needed/,
    ],
  ];
  for (const [what, flag, content, words] of cases) {
    it(`${what} as ${flag} is malformed input`, async () => {
      const path = join(directory, `${flag.slice(2)}-${Math.random()}`);
      if (content !== undefined) writeFileSync(path, content);
      const argv = [...GOOD, ...SECRET, flag, path];
      const { code, json } = await verifyCommand([...argv, '--json']);
      assert.equal(code, 30);
      const { outcome, checks, failure } = json();
      assert.deepEqual([outcome, checks, failure?.code], ['malformed', [], 'verify_input_invalid']);
      assert.match(failure?.found ?? '', words);
      const { stdout } = await verifyCommand(argv);
      assert.match(stdout, /^✗ MALFORMED: /m);
      assert.match(stdout, words);
    });
  }

  it('a file that is larger than any exchange is malformed input', async () => {
    const path = join(directory, 'large.json');
    writeFileSync(path, '');
    truncateSync(path, 67_108_865);
    const { code, json } = await verifyCommand([...GOOD, '--evidence', path, '--json']);
    assert.equal(code, 30);
    assert.match(json().failure?.found ?? '', /it is larger than 64 MiB/);
  });

  it('a nonce of another length fails the check nonce.length, and a document that is none document.form', async () => {
    const nonce = join(directory, 'short.json');
    writeFileSync(nonce, '{"Nonce":"AAAA"}');
    const short = await verifyCommand([...GOOD, '--nonce', nonce, '--json']);
    assert.deepEqual([short.code, short.json().failure?.id], [10, 'nonce.length']);
    const document = join(directory, 'document.json');
    writeFileSync(document, `{"AttestationDoc":"${Buffer.from('hello').toString('base64')}"}`);
    const none = await verifyCommand([...GOOD, '--evidence', document, '--json']);
    assert.deepEqual([none.code, none.json().failure?.id], [30, 'document.form']);
  });

  it('a manifest with a rule that this version does not know is unsupported', async () => {
    const manifest = JSON.parse(readFileSync(vectorPath('synthetic_v158', 'manifest.json'), 'utf8'));
    const bytes = Buffer.from(JSON.stringify({ ...manifest, FutureRule: true }));
    const path = join(directory, 'future.json');
    writeFileSync(path, bytes);
    const { AttestationDoc } = JSON.parse(
      readFileSync(vectorPath('synthetic_v158', 'attest_response.json'), 'utf8'),
    );
    const document = JSON.parse(Buffer.from(AttestationDoc, 'base64').toString('utf8'));
    const answer = { ...document, manifests: [bytes.toString('base64')] };
    const response = join(directory, 'future-response.json');
    writeFileSync(
      response,
      JSON.stringify({ AttestationDoc: Buffer.from(JSON.stringify(answer)).toString('base64') }),
    );
    const { code, stdout } = await verifyCommand([...GOOD, '--manifest', path, '--evidence', response]);
    assert.equal(code, 20);
    assert.match(stdout, /^✗ UNSUPPORTED: /m);
    assert.match(stdout, /FutureRule/);
    assert.match(stdout, /unmarshaling/);
    assert.match(stdout, /Update privatemode-proxy/);
  });
});
