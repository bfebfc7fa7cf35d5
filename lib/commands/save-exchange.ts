/** `--save DIR`: an exchange with the service as files, from which anybody can verify it again without the service. */
import { existsSync } from 'node:fs';
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import type { TrustRoots } from '../attestation/verify.ts';
import { codeOf, makeDirectory, orRefuse } from '../config/files.ts';
import { invalid } from '../config/values.ts';
import { replace } from '../files/durable-file.ts';
import { renderJson } from '../verdict/json.ts';
import type { SecretMessages } from '../verdict/judge.ts';
import { OUTCOMES } from '../verdict/outcome.ts';
import type { Judgement } from '../verdict/verdict.ts';
import { VERSION } from '../version.ts';
import type { StoredCollateral } from './collateral-file.ts';
import { MESSAGES, NONCE } from './verify-files.ts';

/** What crossed the wire, and what it was judged by; without the private key of the secret exchange. */
export interface LiveExchange {
  readonly nonce: Uint8Array;
  readonly document: Uint8Array;
  readonly manifest: Uint8Array;
  readonly collateral: StoredCollateral;
  /** Undefined where no secret exchange was completed. */
  readonly secret: SecretMessages | undefined;
  readonly roots: TrustRoots;
}

/** Names in the directory, of what a flag of verify names under the name of that flag. */
const SAVED = {
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

/** Creates the directory; refuses one that holds another exchange. For before the first request. Throws config_invalid. */
export function prepareSave(directory: string): void {
  const taken = Object.values(SAVED).find((name) => existsSync(join(directory, name)));
  if (taken !== undefined) {
    throw invalid(`--save: ${directory} already holds ${taken}; name an empty directory`);
  }
  orRefuse(() => makeDirectory(directory, 0o700), unwritable(directory));
}

/** Writes every file whole or not at all, readable by the owner only; the verdict comes last. Throws config_invalid. */
export async function saveExchange(
  directory: string,
  exchange: LiveExchange,
  judgement: Judgement,
  endpoint: string,
): Promise<void> {
  const custom = judgement.roots === 'custom';
  const files = {
    ...(custom ? rootFiles(exchange.roots) : {}),
    ...messageFiles(exchange),
    [SAVED.manifest]: exchange.manifest,
    [SAVED.collateral]: json(exchange.collateral),
    [SAVED.readme]: readme(exchange, judgement, endpoint),
    [SAVED.about]: json(aboutVerdict(endpoint)),
    [SAVED.verdict]: renderJson(judgement),
  };
  try {
    if (custom) await mkdir(join(directory, SAVED.roots), { mode: 0o700 });
    for (const [name, content] of Object.entries(files)) await replace(join(directory, name), content, 0o600);
  } catch (cause) {
    throw unwritable(directory)(cause);
  }
}

/** The messages as they crossed the wire, each with the nonce of the attempt. */
function messageFiles({ nonce, document, secret }: LiveExchange): Record<string, string> {
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

/** On whom the verdict is and who made it; apart from verdict.json, whose bytes stay those that `verify --json` prints. */
const aboutVerdict = (endpoint: string) => ({ subject: endpoint, verifier: VERIFIER });

const base64 = (bytes: Uint8Array): string => Buffer.from(bytes).toString('base64');
const json = (value: unknown): string => `${JSON.stringify(value, undefined, 2)}\n`;

const unwritable = (directory: string) => (cause: unknown) =>
  invalid(`--save: ${directory} cannot be written (${codeOf(cause)})`, cause);

/** Roots of a simulator, without which its evidence cannot be verified again. */
function rootFiles({ snp, tdx }: TrustRoots): Record<string, string> {
  const files: Record<string, string> = {};
  for (const [product, pair] of Object.entries(snp)) {
    files[join(SAVED.roots, `ARK-${product}.pem`)] = pair.ark;
    files[join(SAVED.roots, `SEV-${product}.pem`)] = pair.ask;
  }
  if (tdx !== undefined) files[join(SAVED.roots, 'Intel-SGX-Root-CA.pem')] = tdx.root;
  return files;
}

function readme(exchange: LiveExchange, judgement: Judgement, endpoint: string): string {
  const { outcome, at, manifestSha256, roots, failure } = judgement;
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
  // What the files cannot say again: which host did not answer.
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
