import { FLAGS, type FlagName } from '../config/flags.ts';
import { described, renderFlag } from '../config/help.ts';
import { VERIFY_FLAGS } from './flags.ts';
import { CUSTOM_ROOTS_EXIT_CODE, OUTCOMES, USAGE_EXIT_CODE } from './outcome.ts';

/** Flags of the proxy that matter here, in the words that fit here. */
const SERVICE: readonly (readonly [name: FlagName, help: string])[] = [
  ['api-key', 'API key: a literal, or a file path prefixed with @. Required.'],
  ['api-endpoint', 'Endpoint of the remote API.'],
  [
    'manifest-path',
    'Manifest file to verify the remote against. If unset, the newest one that the service publishes.',
  ],
  ['connect-timeout', 'Time to reach a host, TLS included.'],
];

/** The text of `verify --help`, for a terminal of 100 columns. */
export function renderVerifyHelp(): string {
  const service = SERVICE.map(([name, help]) => {
    const flag = FLAGS.find((row) => row.name === name);
    return flag === undefined ? '' : renderFlag({ ...flag, help });
  });
  const own = (wanted: 'live' | 'offline' | undefined): string =>
    VERIFY_FLAGS.filter(({ mode }) => mode === wanted)
      .map(renderFlag)
      .join('');
  const help = FLAGS.filter(({ name }) => name === 'help').map(renderFlag);
  const rows: readonly (readonly [code: number, outcome: string, meaning: string])[] = [
    ...Object.entries(OUTCOMES).map(([outcome, row]) => [row.exitCode, outcome, row.meaning] as const),
    [
      CUSTOM_ROOTS_EXIT_CODE,
      'accepted',
      "under roots that are not the vendors', without --accept-custom-roots",
    ],
  ];
  const codes = rows
    .toSorted(([a], [b]) => a - b)
    .map(([code, outcome, meaning]) => described(`  ${String(code).padStart(2)}  ${outcome}`, `${meaning}.`));
  return `Verifies by its hardware evidence that a remote inference service is what its manifest says, and
prints every check with its outcome. Nothing is sent but the key, a nonce and a fresh public key.

Usage:
  privatemode-proxy verify --api-key KEY [flags]
  privatemode-proxy verify --evidence FILE --nonce FILE --manifest FILE [flags]

The live service:
${service.join('')}${own('live')}
The proxy's other flags are taken too, so that its command line can be used as it is.

A saved exchange (no network is used):
${own('offline')}
Output:
${own(undefined)}${help.join('')}
Exit codes:
${codes.join('')}${described(`   ${USAGE_EXIT_CODE}  no outcome`, 'a flag is wrong, or the exchange could not be saved; "Error: …" says why.')}
Environment:
${described('  PRIVATEMODE_API_KEY, PRIVATEMODE_PROXY_FLAG, SSL_CERT_FILE, https_proxy', 'As for the proxy.')}${described('  NO_COLOR', 'No colours, also on a terminal.')}`;
}
