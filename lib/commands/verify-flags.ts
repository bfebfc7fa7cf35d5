/**
 * The command line of `verify`: the flags (those of the proxy and its own), the request that the flags
 * describe, and the help text.
 */
import { NONCE_BYTES } from '../attestation/document-checks.ts';
import { type Environment, withEnvironment } from '../config/environment.ts';
import { FLAGS } from '../config/flags.ts';
import { helpPage, section } from '../config/help.ts';
import { BOOLEAN, type Given, setting, text, type ValuesOf, valuesOf } from '../config/setting.ts';
import { invalid, parseMoment, parsePath, wants } from '../config/values.ts';
import { CUSTOM_ROOTS_EXIT_CODE, OUTCOMES } from '../verdict/verdict.ts';

const OWN = [
  setting('save', text('FILE', parsePath), {
    help: 'Store the exchange in this new file, the record, with all that is needed to verify it again, offline, by anyone. No key or secret is stored.',
  }),
  setting('nonce', text('BASE64', parseNonce), {
    help: 'The 32 bytes to send to the live service in place of random ones, from whoever wants to see that the answer is new.',
  }),
  setting('saved', text('FILE', parsePath), {
    bare: 'a service is given with --api-endpoint HOST:PORT, and a record with --saved FILE',
    help: 'Verify this record, which --save or --receipts has written, and use no network.',
  }),
  setting('at', text('TIME', parseMoment), {
    help: 'With --saved: time at which to judge all dates, as in 2026-12-01T00:00:00Z (default: the time that the record states). A time in the future prints a warning.',
  }),
  setting('receipts-dir', text('DIR', parsePath), {
    help: 'With --saved: judge all dates by the time that a signed receipt in this directory states for the record.',
  }),
  setting('accept-custom-roots', BOOLEAN, {
    help: 'Exit with 0 if evidence is accepted under roots other than those of AMD and Intel, as a simulator needs. Without this flag the exit code is 35.',
  }),
  setting('json', BOOLEAN, { help: 'Print the verdict as one JSON object.' }),
  setting('verbose', BOOLEAN, { help: 'Print each check below its link of the chain of trust.' }),
] as const;

/** All flags of the proxy are included, so that the proxy's command line can be used as it is. */
export const VERIFY_FLAGS = [...FLAGS, ...OWN];

/** Flags that name the service or save its responses; they have no meaning for a record. */
const OF_SERVICE = [
  ...['save', 'nonce', 'api-endpoint', 'api-key', 'manifest-path', 'cdn-base-url'],
  ...['unsafe-trust-roots', 'amd-kds-url', 'intel-pcs-url'],
];

/** `given`: the settings of the proxy without the manifest, which `verify` reads itself. */
export type LiveRequest = ValuesOf<(typeof OWN)[number]> &
  Readonly<{ mode: 'live'; given: Given; manifestPath: string | undefined }>;
export type SavedRequest = ValuesOf<(typeof OWN)[number]> & Readonly<{ mode: 'record'; saved: string }>;

/** Reads the request from a command line. Throws config_invalid. */
export function verifyRequest(given: Given, env: Environment = {}): LiveRequest | SavedRequest {
  const own = valuesOf(OWN, given);
  const { saved } = own;
  const [time, another] = ['at', 'receipts-dir'].filter((name) => given.values.has(name));
  if (saved === undefined) {
    if (time !== undefined) throw invalid(`--${time} is for a record: name it with --saved FILE`);
    const service = withEnvironment(given, env); // the variables of the proxy do not count for a record
    const values = new Map(service.values);
    if (!values.has('api-key'))
      throw invalid(
        'verify asks the live service, which needs --api-key KEY or --api-key @FILE (or PRIVATEMODE_API_KEY); to verify a record instead, name it with --saved FILE (see verify --help)',
      );
    const path = values.get('manifest-path');
    const manifestPath = path === undefined ? path : parsePath('--manifest-path', path);
    for (const name of [...OWN.map(({ name }): string => name), 'manifest-path']) values.delete(name);
    return { ...own, mode: 'live', given: { ...service, values }, manifestPath };
  }
  if (another !== undefined) throw invalid('--at and --receipts-dir both name a time; leave one of them out');
  const stray = OF_SERVICE.find((name) => given.values.has(name));
  if (stray !== undefined)
    throw invalid(`--${stray} is for the live service, but --saved is for a record; leave one of them out`);
  return { ...own, mode: 'record', saved };
}

function parseNonce(flag: string, text: string): Uint8Array {
  const bytes = Buffer.from(text, 'base64');
  if (bytes.length === NONCE_BYTES && bytes.toString('base64') === text) return new Uint8Array(bytes);
  throw wants(flag, `${NONCE_BYTES} bytes in base64, as openssl rand -base64 32 prints them`, text);
}

/** The text of `verify --help`, not wrapped yet. */
export function renderVerifyHelp(): string {
  const ofProxy = (...names: readonly string[]) => FLAGS.filter(({ name }) => names.includes(name));
  return helpPage(
    `Verifies by hardware evidence that a remote inference service is what its manifest says, and says
what each link of its chain of trust establishes. Sends only the key, a nonce and a fresh public key.`,
    ['verify --api-key KEY [flags]', 'verify --saved FILE [flags]'],
    [
      section('The live service', [
        ...ofProxy('api-key', 'api-endpoint', 'manifest-path', 'protocol-version'),
        ...OWN.slice(0, 2),
      ]),
      `Here the key is needed, and no manifest is logged. The proxy's other flags are accepted too, so that
you can reuse its command line.\n`,
      section('A record (no network is used)', OWN.slice(2, 5)),
      section('Output', [...OWN.slice(5), ...ofProxy('help')]),
      section('Exit codes', [
        ...Object.entries(OUTCOMES).map(
          ([outcome, { exitCode, meaning }]) =>
            [`  ${String(exitCode).padStart(2)}  ${outcome}`, `${meaning}.`] as const,
        ),
        [
          `  ${CUSTOM_ROOTS_EXIT_CODE}  accepted`,
          'under roots that are not those of AMD and Intel, without --accept-custom-roots.',
        ],
        ['   1  no outcome', 'a flag is wrong, or the exchange could not be saved; "Error: …" says why.'],
      ]),
      section('Environment', [
        ['  PRIVATEMODE_API_KEY, PRIVATEMODE_PROXY_FLAG, SSL_CERT_FILE, https_proxy', 'As for the proxy.'],
        ['  NO_COLOR', 'Print no colours, even on a terminal.'],
      ]),
    ],
  );
}
