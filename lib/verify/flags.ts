/** The command line of `verify`: the proxy's flags, and its own. */

import { type FlagRow, parseArgv } from '../config/argv.ts';
import { type Environment, withEnvironment } from '../config/environment.ts';
import { FLAGS, type FlagName } from '../config/flags.ts';
import { PrivatemodeError } from '../errors.ts';

interface VerifyFlag extends FlagRow {
  /** Which kind of verification it is for; undefined: both. */
  readonly mode?: 'live' | 'offline';
}

const ROWS = [
  {
    name: 'save',
    type: 'string',
    value: 'DIR',
    mode: 'live',
    help: 'Store the exchange in this directory, with all that is needed to verify it again, offline, by anyone. No key or secret is stored.',
  },
  {
    name: 'evidence',
    type: 'string',
    value: 'FILE',
    mode: 'offline',
    help: 'Answer of the attestation call: {"AttestationDoc": base64}.',
  },
  {
    name: 'nonce',
    type: 'string',
    value: 'FILE',
    mode: 'offline',
    help: 'Body of that call: {"Nonce": base64 of 32 bytes}.',
  },
  {
    name: 'manifest',
    type: 'string',
    value: 'FILE',
    mode: 'offline',
    help: 'The expected manifest, byte for byte.',
  },
  {
    name: 'secret-request',
    type: 'string',
    value: 'FILE',
    mode: 'offline',
    help: 'Body of the secret exchange: {"PublicKey": base64}. Together with --secret-response; without both, only the evidence is verified.',
  },
  {
    name: 'secret-response',
    type: 'string',
    value: 'FILE',
    mode: 'offline',
    help: 'Its answer: {"EncapsulatedKey", "Signature", "MeshCert"}, each base64.',
  },
  {
    name: 'collateral',
    type: 'string',
    value: 'FILE',
    mode: 'offline',
    help: 'What AMD or Intel say about the platform, as --save writes it. SEV-SNP evidence usually brings its own; TDX evidence never does.',
  },
  {
    name: 'roots',
    type: 'string',
    value: 'DIR',
    mode: 'offline',
    help: 'Trust the hardware roots in the .pem files of this directory instead of the built-in ones of AMD and Intel. For simulators and tests: says nothing about real hardware.',
  },
  {
    name: 'at',
    type: 'string',
    value: 'TIME',
    mode: 'offline',
    help: 'Moment to judge all dates by, as in 2026-12-01T00:00:00Z (default now). Evidence that was good then need not be good now; a moment in the future brings a warning.',
  },
  {
    name: 'accept-custom-roots',
    type: 'boolean',
    help: 'Exit with 0 for evidence that is accepted under roots other than those of AMD and Intel, as a simulator needs. Without it the exit code is 35.',
  },
  { name: 'json', type: 'boolean', help: 'Print the verdict as one JSON object (docs/verification.md).' },
] as const satisfies readonly VerifyFlag[];

export const VERIFY_FLAGS: readonly VerifyFlag[] = ROWS;
type VerifyFlagName = (typeof ROWS)[number]['name'];

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

export interface LiveRequest extends Common {
  readonly mode: 'live';
  /** The proxy's part of the command line, as `parseConfig` takes it; without the manifest, which is read here. */
  readonly proxyArgv: readonly string[];
  readonly manifestPath: string | undefined;
  readonly save: string | undefined;
}

export interface OfflineRequest extends Common {
  readonly mode: 'offline';
  readonly evidence: string;
  readonly nonce: string;
  readonly manifest: string;
  readonly secret: { readonly request: string; readonly response: string } | undefined;
  readonly collateral: string | undefined;
  readonly roots: string | undefined;
  /** Undefined: now. */
  readonly at: Date | undefined;
}

export type VerifyRequest = { readonly mode: 'help' } | LiveRequest | OfflineRequest;

/** What is asked for. Throws config_invalid. */
export function parseVerifyArgv(argv: readonly string[], env: Environment = {}): VerifyRequest {
  const parsed = parseArgv(argv, [...FLAGS, ...VERIFY_FLAGS]);
  const { values, warnings } = parsed;
  if (values.get('help') === 'true') return { mode: 'help' };
  for (const { name, type } of VERIFY_FLAGS) {
    if (type === 'string' && values.get(name) === '') throw invalid(`--${name} wants a value, and got none`);
  }
  const common = {
    json: values.get('json') === 'true',
    acceptCustomRoots: values.get('accept-custom-roots') === 'true',
    warnings,
  };
  const offline = VERIFY_FLAGS.find(({ name, mode }) => mode === 'offline' && values.has(name));
  if (offline !== undefined) return offlineRequest(values, common, `--${offline.name}`);
  // Files are judged by what the command line names; for the live service the proxy's environment counts too.
  const settings = withEnvironment(parsed, env);
  return liveRequest(settings.values, { ...common, warnings: settings.warnings });
}

type Values = ReadonlyMap<string, string>;

function liveRequest(values: Values, common: Common): LiveRequest {
  if (!values.has('api-key')) {
    throw invalid(
      'verify asks the live service, which takes --api-key KEY or --api-key @FILE (or PRIVATEMODE_API_KEY); to verify a saved exchange instead, ' +
        'name its files with --evidence, --nonce and --manifest (see verify --help)',
    );
  }
  const manifestPath = values.get('manifest-path');
  if (manifestPath === '') throw invalid('--manifest-path wants a path, and got none');
  const proxyFlags = new Set(FLAGS.map(({ name }) => name).filter((name) => name !== 'manifest-path'));
  return {
    ...common,
    mode: 'live',
    proxyArgv: [...values]
      .filter(([name]) => proxyFlags.has(name))
      .map(([name, text]) => `--${name}=${text}`),
    manifestPath,
    save: values.get('save'),
  };
}

function offlineRequest(values: Values, common: Common, because: string): OfflineRequest {
  const get = (name: VerifyFlagName): string | undefined => values.get(name);
  const stray = ['save', ...NAMES_SERVICE].find((name) => values.has(name));
  if (stray !== undefined) {
    const instead = stray === 'manifest-path' ? '; the file is named with --manifest here' : '';
    throw invalid(`--${stray} is for the live service, and ${because} is for a saved exchange${instead}`);
  }
  const need = (name: VerifyFlagName): string => {
    const text = get(name);
    if (text === undefined)
      throw invalid(`a saved exchange needs --evidence, --nonce and --manifest: --${name} is missing`);
    return text;
  };
  const [request, response] = [get('secret-request'), get('secret-response')];
  if ((request === undefined) !== (response === undefined)) {
    throw invalid('--secret-request and --secret-response are only of use together');
  }
  const at = get('at');
  return {
    ...common,
    mode: 'offline',
    evidence: need('evidence'),
    nonce: need('nonce'),
    manifest: need('manifest'),
    secret: request === undefined || response === undefined ? undefined : { request, response },
    collateral: get('collateral'),
    roots: get('roots'),
    at: at === undefined ? undefined : parseMoment(at),
  };
}

/** RFC 3339, with a zone; fractions beyond milliseconds are cut off. Throws config_invalid. */
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

/** Date makes 2 March of 30 February. */
function isCalendarDay(day: string): boolean {
  const midnight = new Date(`${day}T00:00:00Z`);
  return !Number.isNaN(midnight.getTime()) && midnight.toISOString().startsWith(day);
}

const invalid = (words: string): PrivatemodeError => new PrivatemodeError('config_invalid', words);
