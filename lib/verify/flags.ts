/** The command line of `verify`: the proxy's flags and its own, what they ask for, and the help text. */
import { parseArgv } from '../config/argv.ts';
import { type Environment, withEnvironment } from '../config/environment.ts';
import { FLAGS, type Flag, type FlagName } from '../config/flags.ts';
import { described, renderFlag } from '../config/help.ts';
import { PrivatemodeError } from '../errors.ts';
import { CUSTOM_ROOTS_EXIT_CODE, OUTCOMES, USAGE_EXIT_CODE } from './outcome.ts';

const flag = <const Name extends string>(name: Name, value: string, help: string) =>
  ({ name, type: 'string', value, help }) as const;

/** Flags for the live service. */
const LIVE = [
  flag(
    'save',
    'DIR',
    'Store the exchange in this directory, with all that is needed to verify it again, offline, by anyone. No key or secret is stored.',
  ),
];

/** Flags for a saved exchange. */
const OFFLINE = [
  flag('evidence', 'FILE', 'Answer of the attestation call: {"AttestationDoc": base64}.'),
  flag('nonce', 'FILE', 'Body of that call: {"Nonce": base64 of 32 bytes}.'),
  flag('manifest', 'FILE', 'The expected manifest, byte for byte.'),
  flag(
    'secret-request',
    'FILE',
    'Body of the secret exchange: {"PublicKey": base64}. Together with --secret-response; without both, only the evidence is verified.',
  ),
  flag('secret-response', 'FILE', 'Its answer: {"EncapsulatedKey", "Signature", "MeshCert"}, each base64.'),
  flag(
    'collateral',
    'FILE',
    'What AMD or Intel say about the platform, as --save writes it. SEV-SNP evidence usually brings its own; TDX evidence never does.',
  ),
  flag(
    'roots',
    'DIR',
    'Trust the hardware roots in the .pem files of this directory instead of the built-in ones of AMD and Intel. For simulators and tests: says nothing about real hardware.',
  ),
  flag(
    'at',
    'TIME',
    'Moment to judge all dates by, as in 2026-12-01T00:00:00Z (default now). Evidence that was good then need not be good now; a moment in the future brings a warning.',
  ),
];

/** Flags for both. */
const OUTPUT: readonly Flag[] = [
  {
    name: 'accept-custom-roots',
    type: 'boolean',
    help: 'Exit with 0 for evidence that is accepted under roots other than those of AMD and Intel, as a simulator needs. Without it the exit code is 35.',
  },
  { name: 'json', type: 'boolean', help: 'Print the verdict as one JSON object (docs/verification.md).' },
];

/** Flags of the proxy that name the service; they have no meaning for files. */
const NAMES_SERVICE: readonly FlagName[] = [
  'api-endpoint',
  'api-key',
  'manifest-path',
  'cdn-base-url',
  'unsafe-trust-roots',
  'amd-kds-url',
  'intel-pcs-url',
];

interface Common {
  readonly json: boolean;
  readonly acceptCustomRoots: boolean;
  /** Sentences for stderr. */
  readonly warnings: readonly string[];
}

export type LiveRequest = Readonly<ReturnType<typeof liveRequest>>;
export type OfflineRequest = Readonly<ReturnType<typeof offlineRequest>>;

/** Reads the command line; any flag for a saved exchange makes it offline. Throws config_invalid. */
export function parseVerifyArgv(
  argv: readonly string[],
  env: Environment = {},
): { readonly mode: 'help' } | LiveRequest | OfflineRequest {
  const parsed = parseArgv(argv, [...FLAGS, ...LIVE, ...OFFLINE, ...OUTPUT]);
  const { values, warnings } = parsed;
  if (values.get('help') === 'true') return { mode: 'help' };
  for (const { name } of [...LIVE, ...OFFLINE]) {
    if (values.get(name) === '') throw invalid(`--${name} wants a value, and got none`);
  }
  const common = {
    json: values.get('json') === 'true',
    acceptCustomRoots: values.get('accept-custom-roots') === 'true',
    warnings,
  };
  const offline = OFFLINE.find(({ name }) => values.has(name));
  if (offline !== undefined) return offlineRequest(values, common, offline.name);
  // The proxy's environment counts for the live service only: a saved exchange is judged by what the command line names.
  const settings = withEnvironment(parsed, env);
  return liveRequest(settings.values, { ...common, warnings: settings.warnings });
}

function liveRequest(values: ReadonlyMap<string, string>, common: Common) {
  if (!values.has('api-key')) {
    throw invalid(
      'verify asks the live service, which takes --api-key KEY or --api-key @FILE (or PRIVATEMODE_API_KEY); to verify a saved exchange instead, ' +
        'name its files with --evidence, --nonce and --manifest (see verify --help)',
    );
  }
  const manifestPath = values.get('manifest-path');
  if (manifestPath === '') throw invalid('--manifest-path wants a path, and got none');
  const proxyFlags = new Set(FLAGS.map(({ name }) => name).filter((name) => name !== 'manifest-path'));
  const proxyGiven = [...values].filter(([name]) => proxyFlags.has(name));
  return {
    ...common,
    mode: 'live' as const,
    /** The proxy's part of the command line, as `parseConfig` takes it; without the manifest, which is read here. */
    proxyArgv: proxyGiven.map(([name, text]) => `--${name}=${text}`),
    manifestPath,
    save: values.get('save'),
  };
}

/** `because`: the flag that asks for this kind of verification. */
function offlineRequest(values: ReadonlyMap<string, string>, common: Common, because: string) {
  const get = (name: (typeof OFFLINE)[number]['name']): string | undefined => values.get(name);
  const stray = ['save', ...NAMES_SERVICE].find((name) => values.has(name));
  if (stray !== undefined) {
    const instead = stray === 'manifest-path' ? '; the file is named with --manifest here' : '';
    throw invalid(`--${stray} is for the live service, and --${because} is for a saved exchange${instead}`);
  }
  const need = (name: 'evidence' | 'nonce' | 'manifest'): string => {
    const path = get(name);
    if (path === undefined) {
      throw invalid(`a saved exchange needs --evidence, --nonce and --manifest: --${name} is missing`);
    }
    return path;
  };
  const [request, response] = [get('secret-request'), get('secret-response')];
  if ((request === undefined) !== (response === undefined)) {
    throw invalid('--secret-request and --secret-response are only of use together');
  }
  const at = get('at');
  return {
    ...common,
    mode: 'offline' as const,
    evidence: need('evidence'),
    nonce: need('nonce'),
    manifest: need('manifest'),
    secret: request === undefined || response === undefined ? undefined : { request, response },
    collateral: get('collateral'),
    roots: get('roots'),
    /** Undefined: now. */
    at: at === undefined ? undefined : parseMoment(at),
  };
}

/** Reads RFC 3339 with a zone; cuts off fractions beyond milliseconds. Throws config_invalid. */
function parseMoment(text: string): Date {
  const parts = /^(\d{4}-\d\d-\d\d)[Tt](\d\d:\d\d:\d\d)(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)$/.exec(text);
  const [, day = '', time = '', fraction = '', zone = ''] = parts ?? [];
  const date = new Date(`${day}T${time}${fraction.slice(0, 4)}${zone.toUpperCase()}`);
  if (parts === null || Number.isNaN(date.getTime()) || !isCalendarDay(day)) {
    throw invalid(
      `--at wants a moment such as 2026-12-01T00:00:00Z, not ${JSON.stringify(text.slice(0, 80))}`,
    );
  }
  return date;
}

/** Whether the day exists: Date makes 2 March of 30 February. */
function isCalendarDay(day: string): boolean {
  const midnight = new Date(`${day}T00:00:00Z`);
  return !Number.isNaN(midnight.getTime()) && midnight.toISOString().startsWith(day);
}

const invalid = (message: string): PrivatemodeError => new PrivatemodeError('config_invalid', message);

/** Help texts of the proxy's flags that matter here. */
const SERVICE: Readonly<Partial<Record<FlagName, string>>> = {
  'api-key': 'API key: a literal, or a file path prefixed with @. Required.',
  'api-endpoint': 'Endpoint of the remote API.',
  'manifest-path':
    'Manifest file to verify the remote against. If unset, the newest one that the service publishes.',
  'connect-timeout': 'Time to reach a host, TLS included.',
};

/** The text of `verify --help`, for a terminal of 100 columns. */
export function renderVerifyHelp(): string {
  const flags = (rows: readonly Flag[]): string => rows.map(renderFlag).join('');
  const proxyFlag = (wanted: string, change: Partial<Flag> = {}): string =>
    flags(FLAGS.filter(({ name }) => name === wanted).map((row) => ({ ...row, ...change })));
  const service = Object.entries(SERVICE).map(([name, help]) => proxyFlag(name, { help }));
  const foreign = "under roots that are not the vendors', without --accept-custom-roots";
  const codes = [
    ...Object.entries(OUTCOMES).map(([outcome, row]) => [row.exitCode, outcome, row.meaning] as const),
    [CUSTOM_ROOTS_EXIT_CODE, 'accepted', foreign] as const,
  ]
    .sort(([a], [b]) => a - b)
    .map(([code, outcome, meaning]) => described(`  ${String(code).padStart(2)}  ${outcome}`, `${meaning}.`));
  return `Verifies by its hardware evidence that a remote inference service is what its manifest says, and
prints every check with its outcome. Nothing is sent but the key, a nonce and a fresh public key.

Usage:
  privatemode-proxy verify --api-key KEY [flags]
  privatemode-proxy verify --evidence FILE --nonce FILE --manifest FILE [flags]

The live service:
${service.join('')}${flags(LIVE)}
The proxy's other flags are taken too, so that its command line can be used as it is.

A saved exchange (no network is used):
${flags(OFFLINE)}
Output:
${flags(OUTPUT)}${proxyFlag('help')}
Exit codes:
${codes.join('')}${described(`   ${USAGE_EXIT_CODE}  no outcome`, 'a flag is wrong, or the exchange could not be saved; "Error: …" says why.')}
Environment:
${described('  PRIVATEMODE_API_KEY, PRIVATEMODE_PROXY_FLAG, SSL_CERT_FILE, https_proxy', 'As for the proxy.')}${described('  NO_COLOR', 'No colours, also on a terminal.')}`;
}
