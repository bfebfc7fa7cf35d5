/**
 * The command line of `verify`: the flags (those of the proxy and its own), the request they describe, and
 * the help text.
 */
import { NONCE_BYTES } from '../attestation/document-checks.ts';
import { type Environment, withEnvironment } from '../config/environment.ts';
import { FLAGS } from '../config/flags.ts';
import { helpPage, section } from '../config/help.ts';
import { BOOLEAN, type Flag, type Given, setting, text, type ValuesOf, valuesOf } from '../config/setting.ts';
import { invalid, parseMoment, wants } from '../config/values.ts';
import { TILDE } from '../files/path-refusal.ts';
import { CUSTOM_ROOTS_EXIT_CODE, OUTCOMES, USAGE_EXIT_CODE } from '../verdict/verdict.ts';

const FILE = text('FILE', required);

const OWN = [
  setting('save', FILE, {
    help: 'Store the exchange in this new file, the record, with all that is needed to verify it again, offline, by anyone. No key or secret is stored.',
  }),
  setting('nonce', text('BASE64', parseNonce), {
    help: 'The 32 bytes to send to the live service in place of random ones, from whoever wants to see that the answer is new.',
  }),
  setting('saved', FILE, {
    bare: 'a service is given with --api-endpoint HOST:PORT, and a record with --saved FILE',
    help: 'Verify this record, which --save or --receipts has written, and use no network.',
  }),
  setting(
    'at',
    text('TIME', (flag, given) => parseMoment(flag, required(flag, given))),
    {
      help: 'With --saved: time at which to judge all dates, as in 2026-12-01T00:00:00Z (default: the time that the record states). A time in the future prints a warning.',
    },
  ),
  setting('accept-custom-roots', BOOLEAN, {
    help: 'Exit with 0 if evidence is accepted under roots other than those of AMD and Intel, as a simulator needs. Without this flag the exit code is 35.',
  }),
  setting('json', BOOLEAN, { help: 'Print the verdict as one JSON object (docs/verify.md).' }),
  setting('verbose', BOOLEAN, { help: 'Print each check below its link of the chain of trust.' }),
] as const;

/** Includes all flags of the proxy, so that its command line can be used as it is. */
export const VERIFY_FLAGS = [...FLAGS, ...OWN];
type Own = ValuesOf<(typeof OWN)[number]>;

/** Flags that name the service or save its responses; they have no meaning for a record. */
const OF_SERVICE = [
  ...['save', 'nonce', 'api-endpoint', 'api-key', 'manifest-path', 'cdn-base-url'],
  ...['unsafe-trust-roots', 'amd-kds-url', 'intel-pcs-url'],
];

export type LiveRequest = Readonly<ReturnType<typeof liveRequest>>;
export type SavedRequest = Own & {
  readonly mode: 'record';
  readonly saved: string;
  readonly warnings: Given['warnings'];
};

/** The request of a command line. Throws config_invalid. */
export function verifyRequest(given: Given, env: Environment = {}): LiveRequest | SavedRequest {
  const { values, warnings } = given;
  const own = valuesOf(OWN, given);
  const { saved, at } = own;
  // Variables of the proxy count for the live service only.
  if (saved === undefined && at === undefined) return liveRequest(withEnvironment(given, env), own);
  if (saved === undefined) throw invalid('--at is for a record: name it with --saved FILE');
  const stray = OF_SERVICE.find((name) => values.has(name));
  if (stray !== undefined)
    throw invalid(`--${stray} is for the live service, but --saved is for a record; leave one of them out`);
  return { ...own, mode: 'record', saved, warnings };
}

function liveRequest(given: Given, own: Own) {
  const { values, warnings } = given;
  if (!values.has('api-key')) {
    throw invalid(
      'verify asks the live service, which needs --api-key KEY or --api-key @FILE (or PRIVATEMODE_API_KEY); to verify a record instead, name it with --saved FILE (see verify --help)',
    );
  }
  const manifestPath = values.get('manifest-path');
  if (manifestPath === '') throw invalid('--manifest-path wants a path, and got none');
  // The settings of the proxy, for `configOf`, without the manifest, which verify reads itself.
  const proxy = new Map(values);
  for (const name of [...OWN.map(({ name }): string => name), 'manifest-path']) proxy.delete(name);
  return { ...own, mode: 'live' as const, warnings, given: { ...given, values: proxy }, manifestPath };
}

function parseNonce(flag: string, text: string): Uint8Array {
  const bytes = Buffer.from(text, 'base64');
  if (bytes.length === NONCE_BYTES && bytes.toString('base64') === text) return new Uint8Array(bytes);
  throw wants(flag, `${NONCE_BYTES} bytes in base64, as openssl rand -base64 32 prints them`, text);
}

function required(flag: string, text: string): string {
  if (text === '') throw invalid(`${flag} wants a value, and got none`);
  if (text.startsWith('~/')) throw invalid(`${flag} begins with ~: ${TILDE}`);
  return text;
}

/** Flags of the proxy, with their help texts for verify. */
const SERVICE = Object.entries({
  'api-key': 'API key: a literal, or a file path prefixed with @. Required.',
  'api-endpoint': 'Endpoint of the remote API.',
  'manifest-path': 'Manifest file to verify the remote against. If unset, the newest one from the service.',
  'protocol-version':
    'An experiment: announce another protocol version, to find out which versions the service takes.',
}).map(([name, help]) => ({ ...proxyFlag(name), help }));

/** The text of `verify --help`, as helpPage gives it. */
export function renderVerifyHelp(): string {
  const foreign = 'under roots that are not those of AMD and Intel, without --accept-custom-roots';
  const codes = [
    ...Object.entries(OUTCOMES).map(([outcome, row]) => [row.exitCode, outcome, row.meaning] as const),
    [CUSTOM_ROOTS_EXIT_CODE, 'accepted', foreign] as const,
  ]
    .sort(([a], [b]) => a - b)
    .map(([code, outcome, meaning]) => [`  ${String(code).padStart(2)}  ${outcome}`, `${meaning}.`] as const);
  const noOutcome = 'a flag is wrong, or the exchange could not be saved; "Error: …" says why.';
  return helpPage(
    `Verifies by hardware evidence that a remote inference service is what its manifest says, and says
what each link of its chain of trust establishes. Sends only the key, a nonce and a fresh public key.`,
    ['verify --api-key KEY [flags]', 'verify --saved FILE [flags]'],
    [
      section('The live service', [...SERVICE, ...OWN.slice(0, 2)]),
      "The proxy's other flags are accepted too, so that you can reuse its command line.\n",
      section('A record (no network is used)', OWN.slice(2, 4)),
      section('Output', [...OWN.slice(4), proxyFlag('help')]),
      section('Exit codes', [...codes, [`   ${USAGE_EXIT_CODE}  no outcome`, noOutcome]]),
      section('Environment', [
        ['  PRIVATEMODE_API_KEY, PRIVATEMODE_PROXY_FLAG, SSL_CERT_FILE, https_proxy', 'As for the proxy.'],
        ['  NO_COLOR', 'Print no colours, even on a terminal.'],
      ]),
    ],
  );
}

function proxyFlag(wanted: string): Flag {
  return FLAGS.find(({ name }) => name === wanted) as Flag;
}
