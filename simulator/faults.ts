/** Every fault of the simulator, as one table. A new one is a row here, and read where it acts. */
import { PrivatemodeError } from '../lib/errors.ts';

/** `count`: happens so many times. `number`, `text`: a value that stays until it is cleared. */
type FaultKind = 'flag' | 'count' | 'number' | 'text';

const row = <K extends FaultKind>(kind: K, help: string) => ({ kind, help });

export const FAULTS = {
  // The CDN (docs/protocol/inference.md 1).
  'manifest-status': row('number', 'the CDN answers the manifest with this HTTP status'),
  'manifest-page': row('flag', 'the CDN answers the manifest with an error page and status 200'),
  'manifest-hang': row('flag', 'the CDN accepts the request and never answers'),
  'manifest-stale': row('flag', 'the CDN goes on with the manifest that it served last'),
  'manifest-reset': row('count', 'the CDN resets the connection, this many times'),
  // POST /privatemode/v1/attest and /secret (docs/protocol/attestation.md 1).
  'attest-status': row('number', 'attestation is answered with this HTTP status'),
  'attest-hang': row('flag', 'attestation is never answered'),
  'attest-reset': row('count', 'attestation is answered by a connection reset, this many times'),
  'secret-status': row('number', 'the secret exchange is answered with this HTTP status'),
  'secret-hang': row('flag', 'the secret exchange is never answered'),
  'secret-reset': row('count', 'the secret exchange is answered by a connection reset, this many times'),
  // Certificate collateral of AMD and Intel (docs/protocol/attestation.md 7, 10).
  'collateral-status': row('number', 'collateral is answered with this HTTP status'),
  'collateral-hang': row('flag', 'collateral is never answered'),
  'collateral-reset': row('count', 'collateral is answered by a connection reset, this many times'),
  // Evidence that must be refused (docs/protocol/attestation.md 7, 8, 19).
  'evidence-stale-nonce': row('flag', 'evidence answers another nonce than the one sent'),
  'evidence-debug': row('flag', 'the guest policy allows debugging'),
  'evidence-signature': row('flag', 'one bit of the report signature is flipped'),
  'evidence-mesh-ca': row('flag', 'the document carries a mesh CA that the evidence does not cover'),
  'evidence-low-tcb': row('flag', 'the platform runs firmware below the minimum TCB'),
  'evidence-chip': row('flag', 'the platform is not among the allowed chips'),
  'evidence-history': row('flag', 'the manifest history has a second element'),
  'evidence-revoked': row('flag', 'the vendor has revoked the intermediate certificate'),
  'evidence-no-crl': row('flag', 'the SEV-SNP document carries no certificate revocation list'),
  'evidence-no-vcek': row('flag', 'the SEV-SNP document carries no endorsement key certificate'),
  // Secret exchanges that must be refused (docs/protocol/attestation.md 12, 13).
  'secret-signature': row('flag', 'the secret exchange is signed over another message'),
  'secret-foreign-ca': row('flag', 'the secret service certificate comes from another mesh CA'),
  'secret-workload': row('flag', 'an inference workload answers in place of the secret service'),
  'secret-expired-certificate': row('flag', 'the secret service certificate has expired'),
  'minimum-version': row(
    'text',
    'clients that announce less than this version, as v1.46.0, are refused (400)',
  ),
  // The inference endpoints: names and arguments as in inference/faults.ts, `flip_tag:3+gzip`.
  inference: row('text', 'these faults (below), for every inference request: flip_tag:3+gzip'),
  'inference-once': row('text', 'these faults, for the next inference request with a body'),
} as const;

export type FaultName = keyof typeof FAULTS;

type ValueOf<Kind extends FaultKind> = Kind extends 'flag' ? boolean : Kind extends 'text' ? string : number;
export type FaultValue<Name extends FaultName> = ValueOf<(typeof FAULTS)[Name]['kind']>;
export type CountFault = {
  [N in FaultName]: (typeof FAULTS)[N]['kind'] extends 'count' ? N : never;
}[FaultName];

/** What the text of each kind may be, how to say so, and its value. */
const KINDS = {
  flag: { form: /^(true|false|)$/, wanted: 'true or false', read: (text: string) => text !== 'false' },
  count: { form: /^\d{1,15}$/, wanted: 'a count', read: Number },
  number: { form: /^\d{1,15}$/, wanted: 'a number', read: Number },
  text: { form: /^/, wanted: 'a text', read: String },
} as const;
const VERSION = { ...KINDS.text, form: /^v\d+\.\d+\.\d+$/, wanted: 'a version as v1.46.0' };

/** The faults in force. A simulator has one such object; tests, flags and the control endpoint change it. */
export type Faults = ReturnType<typeof createFaults>;

/** `checkText` throws config_invalid for a text that names unknown faults of inference. */
export function createFaults(checkText?: (text: string) => void) {
  const values = new Map<FaultName, boolean | number | string>();

  const put = (name: FaultName, value: boolean | number | string): void => {
    if (value === false || (FAULTS[name].kind === 'count' && value === 0)) values.delete(name);
    else values.set(name, value);
  };

  return {
    /** The value in force; undefined if the fault is off. */
    get: <Name extends FaultName>(name: Name) => values.get(name) as FaultValue<Name> | undefined,
    set: <Name extends FaultName>(name: Name, value: FaultValue<Name>): void => put(name, value),
    /** Sets a fault from text (`--fault name=value`) or JSON. Throws config_invalid for a name or value. */
    parse(name: string, value: unknown): void {
      if (!Object.hasOwn(FAULTS, name))
        throw new PrivatemodeError('config_invalid', `there is no fault named ${name}; --help lists them`);
      const known = name as FaultName;
      const { form, wanted, read } = known === 'minimum-version' ? VERSION : KINDS[FAULTS[known].kind];
      const text = String(value);
      if (!form.test(text)) {
        const words = `fault ${name} takes ${wanted}, not ${JSON.stringify(value)}`;
        throw new PrivatemodeError('config_invalid', words);
      }
      if (name.startsWith('inference')) checkText?.(text);
      put(known, read(text));
    },
    /** True this many times after `set(name, n)`. */
    take(name: CountFault): boolean {
      const left = values.get(name);
      if (typeof left !== 'number') return false;
      put(name, left - 1);
      return true;
    },
    delete: (name: FaultName): void => void values.delete(name),
    clear: (): void => values.clear(),
    entries: (): Record<string, boolean | number | string> => Object.fromEntries(values),
  };
}
