/** An exchange with the service as files, from which anybody can verify it again without the service. */
import { sha256 } from '#crypto';
import type { CollateralSource, TrustRoots } from '../attestation/verify-evidence.ts';
import { VERSION } from '../version.ts';
import { recordCollateral, type StoredCollateral } from './collateral-file.ts';
import type { SecretMessages } from './judge.ts';
import { OUTCOMES } from './outcome.ts';
import { renderJson, type Verdict } from './verdict.ts';

/**
 * Every saved message holds the nonce, which names the attestation that the message belongs to. Only the
 * first message held it on the wire. Nothing else ties a secret exchange to the evidence before it, since all
 * attestations of one deployment share its mesh CA.
 */
export const NONCE = { nonce: 'Nonce' } as const;

/** The base64 members of each saved message, by this program's names for their content. */
export const MESSAGES = {
  nonce: NONCE,
  evidence: { document: 'AttestationDoc' },
  'secret-request': { publicKey: 'PublicKey' },
  'secret-response': { encapsulatedKey: 'EncapsulatedKey', signature: 'Signature', meshCert: 'MeshCert' },
} as const;

/**
 * The messages that crossed the wire, and what they were judged by. The private key of the secret exchange is
 * not among them.
 */
export interface SavedExchange {
  readonly nonce: Uint8Array;
  readonly document: Uint8Array;
  readonly manifest: Uint8Array;
  readonly collateral: StoredCollateral;
  /** Undefined where no secret exchange was completed. */
  readonly secret: SecretMessages | undefined;
  readonly roots: TrustRoots;
}

/**
 * The names of the files in the directory. A file that a flag of `verify` takes stands under the name of that
 * flag.
 */
export const SAVED = {
  nonce: 'attest_request.json',
  evidence: 'attest_response.json',
  manifest: 'manifest.json',
  collateral: 'collateral.json',
  'secret-request': 'secret_request.json',
  'secret-response': 'secret_response.json',
  verdict: 'verdict.json',
  about: 'verdict_about.json',
  readme: 'README.txt',
  roots: 'roots',
} as const;

/** The contents of files by their names. A name may have a folder in front. */
export type Files = Readonly<Record<string, Uint8Array | string>>;

/**
 * The digest that names an exchange: lower-case hex SHA-256 of the lines that `sha256sum` would print for all
 * its files in the order of their names. Each line is `<SHA-256>  <name>` and a line feed.
 */
export function exchangeDigest(files: Files): string {
  const hex = (bytes: Uint8Array): string => Buffer.from(sha256(bytes)).toString('hex');
  const lines = Object.entries(files)
    .toSorted(([a], [b]) => (a < b ? -1 : 1))
    .map(([name, content]) => `${hex(Buffer.from(content as string))}  ${name}\n`);
  return hex(Buffer.from(lines.join('')));
}

/**
 * Records one attestation of the service at `endpoint` (https://HOST:PORT), so that its verdict can be made
 * again. The attestation asks `source` for collateral. `files` then gives the files of the exchange, and the
 * digest that names them.
 */
export function recordExchange(collateral: CollateralSource, endpoint: string) {
  const { source, recorded } = recordCollateral(collateral);
  return {
    source,
    files(exchange: Omit<SavedExchange, 'collateral'>, verdict: Verdict) {
      const files = exchangeFiles({ ...exchange, collateral: recorded() }, verdict, endpoint);
      return { sha256: exchangeDigest(files), files };
    },
  };
}

/**
 * The content of each file by its name in the directory, the verdict last. The roots are among them only if
 * they are not the vendors'.
 */
export function exchangeFiles(exchange: SavedExchange, verdict: Verdict, endpoint: string): Files {
  return {
    ...(verdict.roots === 'custom' ? rootFiles(exchange.roots) : {}),
    ...messageFiles(exchange),
    [SAVED.manifest]: exchange.manifest,
    [SAVED.collateral]: json(exchange.collateral),
    [SAVED.readme]: readme(exchange, verdict, endpoint),
    [SAVED.about]: json(aboutVerdict(endpoint)),
    [SAVED.verdict]: renderJson(verdict),
  };
}

/** The messages as they crossed the wire, each with the nonce of the attestation. */
function messageFiles({ nonce, document, secret }: SavedExchange): Record<string, string> {
  const held: Readonly<Record<string, Uint8Array>> = { nonce, document, ...secret };
  const files: Record<string, string> = {};
  for (const flag of Object.keys(MESSAGES) as (keyof typeof MESSAGES)[]) {
    if (secret === undefined && flag.startsWith('secret-')) continue;
    const members = Object.entries({ ...MESSAGES[flag], ...NONCE });
    const message = members.map(([ours, name]) => [name, base64(held[ours] as Uint8Array)]);
    files[SAVED[flag]] = json(Object.fromEntries(message));
  }
  return files;
}

const VERIFIER = `privatemode-proxy v${VERSION}`;

/**
 * Whom the verdict is about, and which program made it. A file of its own, so that the bytes of verdict.json
 * stay those that `verify --json` prints.
 */
const aboutVerdict = (endpoint: string) => ({ subject: endpoint, verifier: VERIFIER });

const base64 = (bytes: Uint8Array): string => Buffer.from(bytes).toString('base64');
const json = (value: unknown): string => `${JSON.stringify(value, undefined, 2)}\n`;

/** The files of the roots, for a simulator: without them its evidence cannot be verified again. */
function rootFiles({ snp, tdx }: TrustRoots): Record<string, string> {
  const files: Record<string, string> = {};
  for (const [product, pair] of Object.entries(snp)) {
    files[`${SAVED.roots}/ARK-${product}.pem`] = pair.ark;
    files[`${SAVED.roots}/SEV-${product}.pem`] = pair.ask;
  }
  if (tdx !== undefined) files[`${SAVED.roots}/Intel-SGX-Root-CA.pem`] = tdx.root;
  return files;
}

function readme(exchange: SavedExchange, verdict: Verdict, endpoint: string): string {
  const { outcome, at, manifestSha256, roots, failure } = verdict;
  const named = [
    ...(['evidence', 'nonce', 'manifest', 'collateral'] as const),
    ...(exchange.secret === undefined ? [] : (['secret-request', 'secret-response'] as const)),
    ...(roots === 'custom' ? (['roots'] as const) : []),
  ];
  const flags = [...named.map((flag) => `--${flag} ${SAVED[flag]}`), `--at ${at.toISOString()}`];
  const secretFiles = `${SAVED['secret-request']}, ${SAVED['secret-response']}`;
  const exchanged =
    exchange.secret === undefined
      ? `(no ${secretFiles.replace(',', ' and')})
    It did not come to a secret exchange.
`
      : `${secretFiles}
    The secret exchange: a public key and the service's signed answer. The private key was never written anywhere,
    so nobody can derive the secret from these files.
`;
  const foreign = `${SAVED.roots}/
    The hardware roots that were trusted. They are NOT the built-in ones of AMD and Intel: this exchange is with a
    simulator, and its verdict says nothing about real hardware. So the exit code is 35 where it is accepted, or 0 with
    --accept-custom-roots.
`;
  // The files do not record which host sent nothing, so they may lead to another verdict.
  const otherwise =
    failure === undefined
      ? ''
      : failure.check === undefined
        ? '\nThe secret exchange gave no verdict and is not in these files: they verify the evidence alone, which is ACCEPTED.\n'
        : outcome === 'unavailable'
          ? '\nWhat a host did not deliver is not in these files: verified from them, the verdict is REJECTED (exit code 10).\n'
          : '';
  const under =
    roots === 'custom' ? ' under hardware roots that are NOT those of AMD and Intel (a simulator)' : '';
  return `An exchange with ${endpoint}, judged by ${VERIFIER}: ${OUTCOMES[outcome].word}${under}.

To verify it again, on any machine and without a network, in this directory:

privatemode-proxy verify \\
  ${flags.join(' \\\n  ')}

In a checkout of the repository at DIR, after npm ci, the first words are instead:
DIR/node_modules/.bin/node DIR/bin/privatemode-proxy.ts verify
${otherwise}
The time behind --at is what the clock of the saving machine said. Nothing in these files proves it: whoever holds them
can write another. They cannot show either that the nonce was new when it was sent, which only its maker knows. What an
accepted exchange shows is that the deployment which the manifest names answered this nonce, and that the answer was
valid at the time given.

Some bytes are covered by no check and may have been changed since: the coordinator's version, and about a third of the
attestation document, which is copies of vendor certificates that the verifier ignores. Nothing protects ${SAVED.verdict},
${SAVED.about} and this file: verify again instead of reading them. Compare the manifest's SHA-256 with one that you trust:
${manifestSha256 ?? 'unknown'}

${SAVED.nonce}, ${SAVED.evidence}
    The nonce, and the attestation document that answers it. The nonce stands in every message, so that those of
    different attempts are told apart.
${SAVED.manifest}
    The manifest that was expected, byte for byte.
${SAVED.collateral}
    What had to be fetched from AMD or Intel to judge it; {} if the evidence brought everything.
${exchanged}${SAVED.verdict}
    Every check, as it came out then.
${SAVED.about}
    The host that was asked, and the program that judged it.
${roots === 'custom' ? foreign : ''}`;
}
