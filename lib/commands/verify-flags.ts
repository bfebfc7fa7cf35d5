/**
 * The command line of `verify`: the flags (those of the proxy and its own), the request they describe, and
 * the help text.
 */
import { type Environment, withEnvironment } from '../config/environment.ts';
import { FLAGS } from '../config/flags.ts';
import { helpPage, section } from '../config/help.ts';
import { BOOLEAN, type Flag, type Given, setting, text, type ValuesOf, valuesOf } from '../config/setting.ts';
import { invalid, parseMoment } from '../config/values.ts';
import { TILDE } from '../files/path-refusal.ts';
import { CUSTOM_ROOTS_EXIT_CODE, OUTCOMES, USAGE_EXIT_CODE } from '../verdict/outcome.ts';
import { savedIn } from './save-exchange.ts';

const FILE = text('FILE', required);
const DIRECTORY = text('DIR', required);

/** For the live service. */
const SAVE = setting('save', DIRECTORY, {
  help: 'Store the exchange in this directory, with all that is needed to verify it again, offline, by anyone. No key or secret is stored.',
});

/** For a saved exchange. */
const SAVED = setting('saved', DIRECTORY, {
  help: 'Directory of an exchange that --save or --receipts has written: names all of its files, and the time of its verdict.',
});
const OFFLINE = [
  SAVED,
  setting('evidence', FILE, {
    bare: 'a service is given with --api-endpoint HOST:PORT, and the files of a saved exchange with --saved DIR, or with --evidence, --nonce and --manifest, as its README.txt says',
    help: 'Response of the attestation call: {"AttestationDoc": base64}.',
  }),
  setting('nonce', FILE, {
    help: 'Body of that call: {"Nonce": base64 of 32 bytes}. With --save: the nonce to send to the live service, from whoever wants to see that the answer is new.',
  }),
  setting('manifest', FILE, { help: 'The expected manifest, byte for byte.' }),
  setting('secret-request', FILE, {
    help: 'Body of the secret exchange: {"PublicKey": base64}. Together with --secret-response; without both, only the evidence is verified.',
  }),
  setting('secret-response', FILE, {
    help: 'Response of the secret exchange: {"EncapsulatedKey", "Signature", "MeshCert"}, each base64.',
  }),
  setting('collateral', FILE, {
    help: 'Certificates and revocation lists of AMD or Intel, as --save writes them. SEV-SNP evidence usually contains its own; TDX evidence never does.',
  }),
  setting('roots', DIRECTORY, {
    help: 'Trust the hardware roots in the .pem files of this directory instead of the built-in ones of AMD and Intel. For simulators and tests only: it proves nothing about real hardware.',
  }),
  setting(
    'at',
    text('TIME', (flag, given) => parseMoment(flag, required(flag, given))),
    {
      help: 'Time at which to judge all dates, as in 2026-12-01T00:00:00Z (default now). Evidence that was good then may not be good now; a time in the future prints a warning.',
    },
  ),
] as const;

/** For the live service and for a saved exchange. */
const OUTPUT = [
  setting('accept-custom-roots', BOOLEAN, {
    help: 'Exit with 0 if evidence is accepted under roots other than those of AMD and Intel, as a simulator needs. Without this flag the exit code is 35.',
  }),
  setting('json', BOOLEAN, { help: 'Print the verdict as one JSON object (docs/verify.md).' }),
] as const;

const OWN = [SAVE, ...OFFLINE, ...OUTPUT];
/** Includes all flags of the proxy, so that its command line can be used as it is. */
export const VERIFY_FLAGS = [...FLAGS, ...OWN];
type Own = ValuesOf<(typeof OWN)[number]> & { readonly verbose: boolean };

/** Flags that name the service or save its responses; they have no meaning for files. */
const OF_SERVICE = [
  ...['save', 'api-endpoint', 'api-key', 'manifest-path', 'cdn-base-url'],
  ...['unsafe-trust-roots', 'amd-kds-url', 'intel-pcs-url'],
];

export type LiveRequest = Readonly<ReturnType<typeof liveRequest>>;
export type OfflineRequest = Readonly<ReturnType<typeof offlineRequest>>;

/**
 * The request of a command line. Any flag for a saved exchange makes it offline, except --nonce together with
 * --save. Throws config_invalid.
 */
export function verifyRequest(given: Given, env: Environment = {}): LiveRequest | OfflineRequest {
  const own = { ...valuesOf(OWN, given), verbose: given.values.get('verbose') === 'true' };
  const isChallenge = given.values.has('save');
  const offline = OFFLINE.find(({ name }) => given.values.has(name) && !(name === 'nonce' && isChallenge));
  if (offline !== undefined) return offlineRequest(given, own, offline.name);
  // Variables of the proxy count for the live service only: a saved exchange is judged by what the command
  // line names.
  return liveRequest(withEnvironment(given, env), own);
}

function liveRequest(given: Given, own: Own) {
  const { values, warnings } = given;
  if (!values.has('api-key')) {
    throw invalid(
      'verify asks the live service, which needs --api-key KEY or --api-key @FILE (or PRIVATEMODE_API_KEY); to verify a saved exchange instead, ' +
        'name its directory with --saved DIR, or its files with --evidence, --nonce and --manifest (see verify --help)',
    );
  }
  const manifestPath = values.get('manifest-path');
  if (manifestPath === '') throw invalid('--manifest-path wants a path, and got none');
  // The settings of the proxy, for `configOf`, without the manifest, which verify reads itself.
  const proxy = new Map(values);
  for (const name of [...OWN.map(({ name }): string => name), 'manifest-path']) proxy.delete(name);
  return { ...own, mode: 'live' as const, warnings, given: { ...given, values: proxy }, manifestPath };
}

/** `because`: the flag that makes the request offline. */
function offlineRequest({ values, warnings }: Given, flags: Own, because: string) {
  const stray = OF_SERVICE.find((name) => values.has(name));
  if (stray !== undefined) {
    const instead =
      stray === 'manifest-path' ? 'the file is named with --manifest here' : 'leave one of them out';
    throw invalid(`--${stray} is for the live service, but --${because} is for a saved exchange; ${instead}`);
  }
  const own = flags.saved === undefined ? flags : { ...flags, ...savedIn(flags.saved), ...written(flags) };
  const need = (name: 'evidence' | 'nonce' | 'manifest'): string => {
    const path = own[name];
    if (path !== undefined) return path;
    throw invalid(`a saved exchange needs --evidence, --nonce and --manifest: --${name} is missing`);
  };
  const { secretRequest: request, secretResponse: response } = own;
  if ((request === undefined) !== (response === undefined)) {
    throw invalid('give --secret-request and --secret-response together, or neither');
  }
  const secret = request === undefined || response === undefined ? undefined : { request, response };
  const files = { evidence: need('evidence'), nonce: need('nonce'), manifest: need('manifest'), secret };
  return { ...own, ...files, mode: 'offline' as const, warnings };
}

/** The flags that were given; they override the files of the --saved directory. */
const written = (flags: Own): Partial<Own> =>
  Object.fromEntries(Object.entries(flags).filter(([, value]) => value !== undefined));

function required(flag: string, text: string): string {
  if (text === '') throw invalid(`${flag} wants a value, and got none`);
  if (text.startsWith('~/')) throw invalid(`${flag} begins with ~: ${TILDE}`);
  return text;
}

/** A flag of the proxy that means something else here. */
const VERBOSE = { ...proxyFlag('verbose'), help: 'Print each check below its link of the chain of trust.' };

/** Flags of the proxy, with their help texts for verify. */
const SERVICE = Object.entries({
  'api-key': 'API key: a literal, or a file path prefixed with @. Required.',
  'api-endpoint': 'Endpoint of the remote API.',
  'manifest-path': 'Manifest file to verify the remote against. If unset, the newest one from the service.',
  'connect-timeout': 'Longest time to connect to a host, including TLS.',
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
    [
      'verify --api-key KEY [flags]',
      'verify --saved DIR [flags]',
      'verify --evidence FILE --nonce FILE --manifest FILE [flags]',
    ],
    [
      section('The live service', [...SERVICE, SAVE]),
      "The proxy's other flags are accepted too, so that you can reuse its command line.\n",
      section('A saved exchange (no network is used)', OFFLINE),
      section('Output', [...OUTPUT, VERBOSE, proxyFlag('help')]),
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
