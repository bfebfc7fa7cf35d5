/** `verify` against a whole simulated deployment: what it asks, what it says, and what it leaves behind. */
import assert from 'node:assert/strict';
import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { after, afterEach, before, describe, it } from 'node:test';
import type { FaultName } from '../../simulator/faults.ts';
import type { Simulator } from '../../simulator/simulator.ts';
import { type Verified, verifyCommand } from '../support/evidence/verify.ts';
import { temporaryDirectory } from '../support/processes/temporary-directory.ts';
import { startTestSimulator } from '../support/remote/simulator.ts';

const KEY = 'a-key-that-must-not-be-found-anywhere';

describe('verify of a live service', () => {
  let directory: string;
  const simulators: Record<'snp' | 'tdx', Simulator> = {} as never;
  before(async () => {
    directory = temporaryDirectory('verify-live-');
    for (const tee of ['snp', 'tdx'] as const) {
      simulators[tee] = await startTestSimulator({ tee, directory: join(directory, tee), apiKey: KEY });
    }
  });
  afterEach(() => {
    for (const simulator of Object.values(simulators)) simulator.faults.clear();
  });
  after(async () => {
    for (const simulator of Object.values(simulators)) await simulator.close();
  });

  const flags = (tee: 'snp' | 'tdx'): string[] => {
    const { port, url } = simulators[tee];
    return [
      ...[`--api-endpoint=localhost:${port}`, `--api-key=${KEY}`, `--cdn-base-url=${url}`],
      ...[`--amd-kds-url=${url}`, `--intel-pcs-url=${url}`],
      `--unsafe-trust-roots=${join(directory, tee, 'roots')}`,
      '--accept-custom-roots',
    ];
  };
  const verify = (tee: 'snp' | 'tdx', ...more: string[]): Promise<Verified> =>
    verifyCommand([...flags(tee), ...more], { env: { SSL_CERT_FILE: join(directory, tee, 'ca.pem') } });

  /** The command in README.txt of a saved directory, run there. */
  async function verifyAgain(saved: string): Promise<Verified> {
    const text = readFileSync(join(saved, 'README.txt'), 'utf8');
    const command = /^privatemode-proxy verify ((?:.*\\\n)*.*)$/m.exec(text)?.[1] ?? '';
    const words = command.replaceAll('\\\n', ' ').trim().split(/\s+/);
    const paths = words.map((word, at) =>
      word.startsWith('--') || words[at - 1] === '--at' ? word : join(saved, word),
    );
    return verifyCommand([...paths, '--json']);
  }

  for (const tee of ['snp', 'tdx'] as const) {
    it(`accepts a ${tee} deployment under its published manifest, secret exchange included`, async () => {
      const { code, stdout, stderr } = await verify(tee, '--verbose');
      assert.equal(code, 0, stdout);
      assert.match(stdout, /✓ Signature on the secret exchange +valid/);
      assert.match(stdout, new RegExp(`SHA-256 ${simulators[tee].manifestSha256}$`, 'm'));
      assert.match(stdout, /published at https:\/\/localhost/);
      assert.doesNotMatch(stdout, /✗|\?/);
      assert.match(stderr, /!! WARNING: --unsafe-trust-roots/);
    });

    it(`saves a ${tee} exchange that anybody can verify again to the same verdict`, async () => {
      const saved = join(directory, `saved-${tee}`);
      const first = await verify(tee, '--save', saved, '--json');
      assert.equal(first.code, 0, first.stdout);
      assert.equal(readFileSync(join(saved, 'verdict.json'), 'utf8'), first.stdout);
      const again = await verifyAgain(saved);
      assert.equal(again.code, 35, 'accepted, under the roots of a simulator');
      assert.deepEqual(again.json(), first.json());
      const collateral = Object.keys(JSON.parse(readFileSync(join(saved, 'collateral.json'), 'utf8')));
      assert.equal(collateral.length, tee === 'snp' ? 0 : 9);
    });
  }

  it('prints each step with its time on stderr if that is a terminal, but not with --json', async () => {
    const env = { SSL_CERT_FILE: join(directory, 'snp', 'ca.pem') };
    const stepsOf = async (...more: string[]) => {
      const { stderr } = await verifyCommand([...flags('snp'), ...more], { env, stderrIsTTY: true });
      return (stderr.match(/^[✓✗] .*$/gm) ?? []).map((line) => line.replace(/ \d+\.\d\d s$/, ' TIME'));
    };
    const good = ['✓ manifest TIME', '✓ evidence TIME', '✓ checks of the evidence TIME'];
    assert.deepEqual(await stepsOf(), [...good, '✓ secret exchange TIME']);
    assert.deepEqual(await stepsOf('--json'), []);
    assert.doesNotMatch((await verify('snp')).stderr, /[✓✗]/);
    const { faults } = simulators.snp;
    faults.set('secret-signature', true);
    assert.deepEqual(await stepsOf(), [...good, '✗ secret exchange TIME']);
    faults.clear();
    faults.set('evidence-debug', true);
    assert.deepEqual(await stepsOf(), [...good.slice(0, 2), '✗ checks of the evidence TIME']);
    faults.clear();
    faults.set('attest-status', 500);
    assert.deepEqual(await stepsOf(), ['✓ manifest TIME', '✗ evidence TIME']);
  });

  it('writes the same on stdout whether or not stderr is a terminal', async () => {
    const env = { SSL_CERT_FILE: join(directory, 'snp', 'ca.pem') };
    const [plain, watched] = await Promise.all(
      [false, true].map((stderrIsTTY) => verifyCommand(flags('snp'), { env, stderrIsTTY })),
    );
    // Values that each attestation has anew: times, and digests over nonce and keys.
    const steady = (text = '') => text.replace(/\d{4}-\d\d-\d\dT[\d:.]+Z|[0-9a-f]{40,}…?|\d+ s\b/g, 'X');
    assert.equal(steady(watched?.stdout), steady(plain?.stdout));
  });

  it('exits with 35 for a service accepted under custom roots, unless --accept-custom-roots is given', async () => {
    const argv = flags('snp').filter((flag) => flag !== '--accept-custom-roots');
    const env = { SSL_CERT_FILE: join(directory, 'snp', 'ca.pem') };
    const { code, json } = await verifyCommand([...argv, '--json'], { env });
    assert.equal(code, 35);
    assert.deepEqual([json().outcome, json().roots], ['accepted', 'custom']);
    assert.equal((await verify('snp')).code, 0);
  });

  it('names on stderr the flags that a simulator needs and that were not given', async () => {
    const argv = flags('snp').filter((flag) => !flag.startsWith('--unsafe-trust-roots'));
    const env = { SSL_CERT_FILE: join(directory, 'snp', 'ca.pem') };
    const { code, stderr } = await verifyCommand(argv, { env });
    assert.equal(code, 10);
    assert.equal(
      stderr,
      'If the service is a simulator, add --unsafe-trust-roots DIR/roots, --manifest-path DIR/manifest.json, where DIR is the "dir" that it printed.\n',
    );
  });

  it('saves the verdict as it is printed, and in verdict_about.json the service and the verifier', async () => {
    const saved = join(directory, 'saved-about');
    const { stdout } = await verify('snp', '--save', saved, '--json');
    const about = readFileSync(join(saved, 'verdict_about.json'), 'utf8');
    const { version } = JSON.parse(readFileSync(join(import.meta.dirname, '../../package.json'), 'utf8'));
    assert.deepEqual(JSON.parse(about), {
      subject: `https://localhost:${simulators.snp.port}`,
      verifier: `privatemode-proxy v${version}`,
    });
    assert.equal(readFileSync(join(saved, 'verdict.json'), 'utf8'), stdout);
  });

  it('saves a README that claims no date, and messages that all hold one nonce', async () => {
    const saved = join(directory, 'saved-readme');
    await verify('snp', '--save', saved);
    const readme = readFileSync(join(saved, 'README.txt'), 'utf8');
    const dates = readme.match(/^.*\d{4}-\d\d-\d\d.*$/gm) ?? [];
    assert.equal(dates.length, 1);
    assert.match(dates[0] ?? '', /^ {2}--at /);
    assert.match(readme, /Nothing in these files proves it/);
    assert.match(readme, /about a third of the\nattestation document/);
    assert.match(readme, /^DIR\/node_modules\/\.bin\/node DIR\/bin\/privatemode-proxy\.ts verify$/m);
    assert.doesNotMatch(readme, /REJECTED|alone/);
    const nonceOf = (name: string): unknown => JSON.parse(readFileSync(join(saved, name), 'utf8')).Nonce;
    const nonce = nonceOf('attest_request.json');
    assert.match(String(nonce), /^[A-Za-z0-9+/]{43}=$/);
    for (const name of ['attest_response.json', 'secret_request.json', 'secret_response.json']) {
      assert.equal(nonceOf(name), nonce, name);
    }
  });

  it('refuses the secret exchange of another attempt under the same mesh CA', async () => {
    const [one, other] = ['one', 'other'].map((name) => join(directory, `attempt-${name}`)) as [
      string,
      string,
    ];
    await verify('snp', '--save', one);
    await verify('snp', '--save', other);
    const command = (secretRequest: string, secretResponse: string, evidence = one): Promise<Verified> =>
      verifyCommand([
        ...['--nonce', join(one, 'attest_request.json'), '--manifest', join(one, 'manifest.json')],
        ...['--evidence', join(evidence, 'attest_response.json'), '--roots', join(one, 'roots')],
        ...['--secret-request', join(secretRequest, 'secret_request.json')],
        ...['--secret-response', join(secretResponse, 'secret_response.json')],
        ...['--at', new Date().toISOString(), '--json'],
      ]);
    assert.equal((await command(one, one)).code, 35);
    for (const mixed of [command(other, one), command(one, other), command(one, one, other)]) {
      const { code, json } = await mixed;
      assert.equal(code, 30);
      assert.match(json().failure?.found ?? '', /belongs to another exchange/);
    }
    // Where the files do not say it, as those of other programs do not, nobody can tell.
    for (const name of ['secret_request.json', 'secret_response.json']) {
      const { Nonce: _, ...message } = JSON.parse(readFileSync(join(other, name), 'utf8'));
      writeFileSync(join(other, name), JSON.stringify(message));
    }
    assert.equal((await command(other, other)).code, 35);
  });

  it('saves the CRL and the VCEK that it fetched because the evidence lacks them', async () => {
    simulators.snp.faults.set('evidence-no-crl', true);
    simulators.snp.faults.set('evidence-no-vcek', true);
    const saved = join(directory, 'saved-fetched');
    const first = await verify('snp', '--save', saved, '--json');
    assert.equal(first.code, 0, first.stdout);
    assert.deepEqual(Object.keys(JSON.parse(readFileSync(join(saved, 'collateral.json'), 'utf8'))).sort(), [
      'ark_crl',
      'vcek',
    ]);
    assert.deepEqual((await verifyAgain(saved)).json(), first.json());
  });

  it('saves the whole exchange in files for the owner only, without the API key', async () => {
    const saved = join(directory, 'new', 'deep');
    await verify('snp', '--save', saved);
    const names = readdirSync(saved, { recursive: true, encoding: 'utf8' }).sort();
    assert.deepEqual(names, [
      ...['README.txt', 'attest_request.json', 'attest_response.json', 'collateral.json', 'manifest.json'],
      ...['roots', 'roots/ARK-Genoa.pem', 'roots/Intel-SGX-Root-CA.pem', 'roots/SEV-Genoa.pem'],
      ...['secret_request.json', 'secret_response.json', 'verdict.json', 'verdict_about.json'],
    ]);
    assert.equal(statSync(saved).mode & 0o777, 0o700);
    for (const name of names.filter((each) => each !== 'roots')) {
      const path = join(saved, name);
      assert.equal(statSync(path).mode & 0o777, 0o600, name);
      assert.ok(!readFileSync(path, 'utf8').includes(KEY), name);
    }
    assert.deepEqual(readFileSync(join(saved, 'manifest.json')), Buffer.from(simulators.snp.manifest));
  });

  it('refuses to save into a directory that holds an exchange or anything else, before it sends any request', async () => {
    const taken = join(directory, 'taken');
    mkdirSync(taken);
    writeFileSync(join(taken, 'verdict.json'), '{}');
    const before = { ...simulators.snp.counts };
    const { code, stderr } = await verify('snp', '--save', taken);
    assert.equal(code, 1);
    assert.equal(
      stderr,
      `Error: --save: ${taken} already holds verdict.json; name an empty directory, or verify the saved exchange: verify --saved ${taken}\n`,
    );
    assert.deepEqual(readdirSync(taken), ['verdict.json']);
    assert.deepEqual(simulators.snp.counts, before);
    rmSync(join(taken, 'verdict.json'));
    symlinkSync('/nowhere', join(taken, 'notes'));
    const { stderr: other } = await verify('snp', '--save', taken);
    assert.equal(other, `Error: --save: ${taken} already holds notes; name an empty directory\n`);
    assert.deepEqual(simulators.snp.counts, before);
    writeFileSync(join(taken, 'verdict.json'), '{}');
    const file = await verify('snp', '--save', join(taken, 'verdict.json', 'below'));
    assert.deepEqual(
      [
        file.code,
        /cannot be written: ENOTDIR: a file stands where a directory is needed; check the path$/m.test(
          file.stderr,
        ),
      ],
      [1, true],
    );
  });

  const refusals: readonly (readonly [fault: FaultName, id: string, asksForSecret: boolean])[] = [
    ['evidence-stale-nonce', 'snp.report_data', false],
    ['evidence-signature', 'snp.report.signature', false],
    ['evidence-history', 'manifest.count', false],
    ['secret-signature', 'secret.signature', true],
    ['secret-foreign-ca', 'mesh.certificate.signature', true],
    ['secret-expired-certificate', 'mesh.certificate.validity', true],
  ];
  for (const [fault, id, asksForSecret] of refusals) {
    it(`rejects the fault ${fault} by the check ${id}, live and again from the saved files`, async () => {
      const simulator = simulators.snp;
      simulator.faults.set(fault, true as never);
      const { secret } = simulator.counts;
      const saved = join(directory, `saved-${fault}`);
      const first = await verify('snp', '--save', saved, '--json');
      assert.deepEqual([first.code, first.json().failure?.id], [10, id]);
      assert.equal((simulator.counts['secret'] ?? 0) - (secret ?? 0), asksForSecret ? 1 : 0);
      assert.equal(existsSync(join(saved, 'secret_request.json')), asksForSecret);
      const again = await verifyAgain(saved);
      assert.equal(again.code, 10);
      assert.deepEqual(again.json(), first.json());
    });
  }

  it('sends the nonce of --nonce if --save is given, and refuses a nonce that has not 32 bytes', async () => {
    const nonce = Buffer.alloc(32, 0x5a);
    const challenge = join(directory, 'challenge.json');
    writeFileSync(challenge, JSON.stringify({ Nonce: nonce.toString('base64') }));
    const saved = join(directory, 'saved-challenge');
    const { code, stdout } = await verify('snp', '--nonce', challenge, '--save', saved);
    assert.equal(code, 0, stdout);
    const sent = JSON.parse(readFileSync(join(saved, 'attest_request.json'), 'utf8'));
    assert.deepEqual(sent, { Nonce: nonce.toString('base64') });
    assert.equal((await verifyCommand(['--saved', saved, '--accept-custom-roots'])).code, 0);
    writeFileSync(challenge, JSON.stringify({ Nonce: 'AAAA' }));
    const refused = await verify('snp', '--nonce', challenge, '--save', join(directory, 'saved-short'));
    assert.equal(refused.code, 1);
    assert.match(refused.stderr, /its nonce has 3 bytes, not 32/);
    const alone = await verify('snp', '--nonce', challenge);
    assert.match(
      alone.stderr,
      /^Error: --api-endpoint is for the live service, but --nonce is for a saved exchange/m,
    );
  });

  it('says which directory to name if that of --saved holds no exchange or does not exist', async () => {
    const workspace = join(directory, 'workspace');
    mkdirSync(join(workspace, 'receipts/exchanges'), { recursive: true });
    assert.match(
      (await verifyCommand(['--saved', workspace])).stderr,
      /workspace holds no exchange; name one of the directories in .*workspace\/receipts\/exchanges$/m,
    );
    const { code, stderr } = await verifyCommand(['--saved', join(directory, 'nowhere')]);
    assert.equal(code, 1);
    assert.match(
      stderr,
      /^Error: --saved: .*nowhere is not there; name a directory that verify --save or --receipts/m,
    );
  });

  it('fails the check manifest.expected if the manifest in force is not that of --manifest-path', async () => {
    const path = join(directory, 'old-manifest.json');
    writeFileSync(path, `${Buffer.from(simulators.snp.manifest).toString('utf8')}\n`);
    const { code, stdout } = await verify('snp', '--manifest-path', path);
    assert.equal(code, 10);
    assert.match(
      stdout,
      /^✗ The expected manifest\n[^✗]+\n {2}check +manifest\.expected \(.+\) \[manifest_mismatch\]$/m,
    );
    assert.match(stdout, /another manifest than yours/);
  });

  for (const fault of ['evidence-signature', 'evidence-no-vcek'] as const) {
    it(`does not ask for another manifest if a mismatch comes with the fault ${fault}`, async () => {
      simulators.snp.faults.set(fault, true);
      const path = join(directory, 'old-manifest.json');
      writeFileSync(path, `${Buffer.from(simulators.snp.manifest).toString('utf8')}\n`);
      const { code, stdout } = await verify('snp', '--manifest-path', path);
      assert.equal(code, 10);
      assert.match(stdout, /^Do not send anything to this remote\./m);
      assert.match(stdout, /\[attestation_failed\]$/m);
      assert.doesNotMatch(stdout, /another manifest than yours|current manifest/);
    });
  }

  for (const [tee, lacking, names] of [
    ['snp', 'Intel-SGX-Root-CA.pem', 'ARK-Genoa and SEV-Genoa'],
    ['tdx', 'ARK-Genoa.pem SEV-Genoa.pem', 'Intel SGX Root CA'],
  ] as const) {
    it(`rejects ${tee} evidence, and names the roots, if --unsafe-trust-roots has only ${lacking}`, async () => {
      const roots = join(directory, `half-of-${tee}`);
      mkdirSync(roots);
      for (const name of lacking.split(' '))
        writeFileSync(join(roots, name), readFileSync(join(directory, tee, 'roots', name)));
      const { code, stderr, json } = await verify(tee, `--unsafe-trust-roots=${roots}`, '--json');
      assert.deepEqual([code, json().outcome, json().failure?.code], [10, 'rejected', 'attestation_failed']);
      assert.ok(stderr.includes(`The directory of --unsafe-trust-roots lacks ${names}: `), stderr);
    });
  }

  const outages: readonly (readonly [what: string, fault: FaultName, value: number | true, code: string])[] =
    [
      ['a manifest that cannot be fetched', 'manifest-status', 503, 'manifest_unavailable'],
      ['an error page in place of the manifest', 'manifest-page', true, 'manifest_unavailable'],
      ['a key that is refused', 'attest-status', 401, 'api_key_rejected'],
      ['an attestation that fails', 'attest-status', 500, 'control_api_failed'],
      ['a connection that is cut', 'attest-reset', 1, 'upstream_reset'],
      ['a secret exchange that fails', 'secret-status', 500, 'control_api_failed'],
    ];
  for (const [what, fault, value, code] of outages) {
    it(`exits with 40, without a verdict, for ${what}`, async () => {
      simulators.snp.faults.set(fault, value as never);
      const { code: exitCode, json } = await verify('snp', '--json');
      const { outcome, failure } = json();
      assert.deepEqual([exitCode, outcome, failure?.code, failure?.id], [40, 'unavailable', code, null]);
    });
  }

  it('exits with 40 if missing collateral cannot be fetched, and saves the exchange without it', async () => {
    simulators.tdx.faults.set('collateral-status', 503);
    const saved = join(directory, 'saved-unavailable');
    const { code, stdout } = await verify('tdx', '--save', saved);
    assert.equal(code, 40);
    assert.match(stdout, /^✗ NO VERDICT: /m);
    assert.match(stdout, /\nNothing is proved either way\.[^✗]+✗[^✗]+\[collateral_unavailable\]\n/);
    assert.equal((await verifyAgain(saved)).code, 10);
    assert.match(
      readFileSync(join(saved, 'README.txt'), 'utf8'),
      /verified from them, the verdict is REJECTED \(exit code 10\)/,
    );
  });

  for (const [tee, collateral, id] of [
    ['snp', { 'evidence-no-vcek': true, 'collateral-status': 404 }, 'snp.vcek.available'],
    ['snp', { 'evidence-no-crl': true, 'collateral-status': 503 }, 'snp.id_key'],
    ['tdx', { 'collateral-status': 503 }, 'tdx.policy.td_attributes'],
  ] as const) {
    const faults = { 'evidence-debug': true, ...collateral };
    it(`rejects ${tee} evidence of a guest under debug by ${id} though collateral is missing: ${Object.keys(collateral)}`, async () => {
      for (const [fault, value] of Object.entries(faults)) simulators[tee].faults.parse(fault, value);
      const { code, stdout, json } = await verify(tee, '--json');
      assert.deepEqual([code, json().outcome, json().failure?.id], [10, 'rejected', id]);
      assert.doesNotMatch(stdout, /proved either way/);
    });
  }

  it('says in the README of an exchange saved without its secret that only the evidence is verified', async () => {
    simulators.snp.faults.set('secret-status', 500);
    const saved = join(directory, 'saved-without-secret');
    assert.equal((await verify('snp', '--save', saved)).code, 40);
    assert.equal((await verifyAgain(saved)).json().outcome, 'accepted');
    assert.match(
      readFileSync(join(saved, 'README.txt'), 'utf8'),
      /they verify the evidence alone, which is ACCEPTED/,
    );
  });

  it('saves nothing if the service sends no evidence, and says no more than that, whatever it answered', async () => {
    for (const [fault, value] of [
      ['attest-status', 401],
      ['attest-status', 503],
      ['attest-reset', 1],
      ['manifest-status', 503],
    ] as const) {
      simulators.snp.faults.clear();
      simulators.snp.faults.set(fault, value);
      const saved = join(directory, `saved-nothing-${fault}-${value}`);
      const { stderr } = await verify('snp', '--save', saved);
      assert.match(stderr, /^Nothing was saved in .*: there is no evidence to save\.$/m);
      assert.deepEqual(readdirSync(saved), []);
    }
  });

  it('exits with 40 and upstream_tls_untrusted if it lacks the CA of the host, and sends no request', async () => {
    const before = { ...simulators.snp.counts };
    const { code, json } = await verifyCommand([...flags('snp'), '--json']);
    assert.deepEqual([code, json().failure?.code], [40, 'upstream_tls_untrusted']);
    assert.deepEqual(simulators.snp.counts, before);
  });

  it('exits with 30 and the outcome malformed if the manifest file does not exist, and sends no request', async () => {
    const before = { ...simulators.snp.counts };
    const path = join(directory, 'none.json');
    const named = await verify('snp', '--manifest-path', path, '--json');
    const env = { PRIVATEMODE_PROXY_MANIFEST_PATH: path };
    const inVariable = await verifyCommand([...flags('snp'), '--json'], { env });
    for (const { code, json } of [named, inVariable])
      assert.deepEqual([code, json().outcome], [30, 'malformed']);
    assert.deepEqual(simulators.snp.counts, before);
  });

  it('refuses --unsafe-trust-roots if the API or the CDN is that of the real service', async () => {
    const argv = ['--api-key=k', `--unsafe-trust-roots=${join(directory, 'snp', 'roots')}`];
    for (const more of [[], ['--api-endpoint=API.privatemode.ai.'], ['--api-endpoint=localhost:9']]) {
      const { code, stderr } = await verifyCommand([...argv, ...more]);
      assert.equal(code, 1);
      assert.match(stderr, /^Error: --unsafe-trust-roots .*refused for/, more.join());
    }
  });

  it('writes nothing into the working directory without --save', async () => {
    const here = process.cwd();
    const empty = join(directory, 'empty');
    mkdirSync(empty);
    process.chdir(empty);
    try {
      assert.equal((await verify('tdx')).code, 0);
    } finally {
      process.chdir(here);
    }
    assert.deepEqual(readdirSync(empty), []);
  });

  it('shows the API key neither as text nor with --json', async () => {
    for (const result of [await verify('snp'), await verify('snp', '--json')]) {
      assert.ok(!(result.stdout + result.stderr).includes(KEY));
    }
  });

  it('neither shows nor saves the secret that the service made for it', async () => {
    const { secrets } = simulators.snp;
    for (const more of [[], ['--json']]) {
      const saved = join(directory, `saved-no-secret${more.join()}`);
      secrets.dropAll();
      const { stdout, stderr } = await verify('snp', '--save', saved, ...more);
      const files = readdirSync(saved, { recursive: true, withFileTypes: true }).filter((each) =>
        each.isFile(),
      );
      const written = files.map(({ parentPath, name }) => readFileSync(join(parentPath, name), 'latin1'));
      const texts = [stdout, stderr, ...written].join('\n');
      const [id = '', ...others] = secrets.ids();
      assert.deepEqual([others, files.length], [[], 12]);
      const secret = Buffer.from(secrets.lookup(id) as Uint8Array);
      for (const form of ['latin1', 'hex', 'base64', 'base64url'] as const)
        assert.ok(!texts.includes(secret.toString(form).replace(/=$/, '')), form);
    }
  });
});
