/** A remote for session tests: what each call does is the test's choice, the HPKE exchange is real. */
import assert from 'node:assert/strict';
import type { Check } from '../../../lib/attestation/check.ts';
import type { EvidenceVerdict, VerifyInput } from '../../../lib/attestation/verify-evidence.ts';
import { type ErrorCode, PrivatemodeError } from '../../../lib/errors.ts';
import type { ManifestRecord } from '../../../lib/manifest-log.ts';
import type { ControlApi, ManifestSource } from '../../../lib/session/control-api.ts';
import type { SessionEvent } from '../../../lib/session/epoch.ts';
import { SUITE } from '../../../lib/session/secret-exchange.ts';
import {
  type AttestedSession,
  createSession,
  type Epoch,
  type SessionDeps,
} from '../../../lib/session/session.ts';
import { createFakeClock } from './fake-clock.ts';

export const MINUTE = 60_000;
export const WAIT = { timeoutMs: 30_000 };

/** For assert.rejects: one of our errors with this code, and these words in its message. */
export const withCode =
  (code: ErrorCode, words = /./) =>
  (error: unknown): true => {
    assert.ok(error instanceof PrivatemodeError, String(error));
    assert.equal(error.code, code, error.message);
    assert.match(error.message, words);
    return true;
  };

export const bytes = (text: string): Uint8Array => new Uint8Array(Buffer.from(text));
const text = (data: Uint8Array): string => Buffer.from(data).toString();

const check = (outcome: Check['outcome'], code?: ErrorCode): Check => ({
  id: 'some.check',
  outcome,
  expected: 'what is right',
  found: 'what is there',
  source: 'attestation.md 8',
  ...(code === undefined ? {} : { code }),
});

export interface FakeRemote {
  /** Called before each call is answered; throws to fail it, waits to hold it up. */
  onAttest: (apiKey: string) => void | Promise<void>;
  onSecret: (apiKey: string) => void | Promise<void>;
  onManifest: () => void | Promise<void>;
  onRecord: () => void | Promise<void>;
  /** Called before evidence is judged, with the code that it fails with. */
  onVerify: (code: ErrorCode | undefined) => void | Promise<void>;
  /** What the deployment runs under, and what the CDN (or the file) says. */
  deployed: string;
  published: string;
  /** Overrides the comparison of the two. */
  verdictCode: ErrorCode | undefined;
  secretAccepted: boolean;
  /** In order: `manifest`, `attest KEY`, `verify MANIFEST`, `secret KEY`, `record MANIFEST`. */
  readonly calls: string[];
  readonly nonces: string[];
  distrusted: number;
}

export const fails =
  (code: ErrorCode, words = `${code} on purpose`) =>
  (): never => {
    throw new PrivatemodeError(code, words);
  };

/** A session whose `acquire` gives a promise also if the epoch is there. */
export interface TestSession extends AttestedSession {
  acquire(options: Parameters<AttestedSession['acquire']>[0]): Promise<Epoch>;
}

export const inPromises = (session: AttestedSession): TestSession => ({
  ...session,
  acquire: async (options) => session.acquire(options),
});

export function sessionScene(
  options: Partial<Pick<SessionDeps, 'host' | 'onDemand' | 'random' | 'recordExchange' | 'shares'>> & {
    /** By default `key`; undefined: clients bring their own. */
    apiKey?: string | undefined;
    kind?: ManifestSource['kind'];
    prepare?: Partial<FakeRemote>;
  } = {},
) {
  const clock = createFakeClock();
  const events: SessionEvent[] = [];
  const permanent: PrivatemodeError[] = [];
  const nothing = (): void => {};
  const remote: FakeRemote = {
    onAttest: nothing,
    onSecret: nothing,
    onManifest: nothing,
    onRecord: nothing,
    onVerify: nothing,
    deployed: 'A',
    published: 'A',
    verdictCode: undefined,
    secretAccepted: true,
    calls: [],
    nonces: [],
    distrusted: 0,
  };
  Object.assign(remote, options.prepare);
  const control: ControlApi = {
    async attest(apiKey, nonce, signal) {
      remote.calls.push(`attest ${apiKey}`);
      remote.nonces.push(Buffer.from(nonce).toString('hex'));
      await abortable(remote.onAttest(apiKey), signal);
      return bytes(remote.deployed);
    },
    async secret(apiKey, publicKey, signal) {
      remote.calls.push(`secret ${apiKey}`);
      await abortable(remote.onSecret(apiKey), signal);
      const recipient = await SUITE.DeserializePublicKey(publicKey);
      const { encapsulatedSecret } = await SUITE.SendExport(recipient, new Uint8Array(0), 32);
      return { encapsulatedKey: encapsulatedSecret, signature: bytes('sig'), meshCert: bytes('cert') };
    },
  };
  const session = inPromises(
    createSession({
      random: () => 0,
      ...options,
      control,
      clock,
      roots: { snp: {}, tdx: undefined },
      collateral: {
        forVerdict: () => ({ distrust: async () => void remote.distrusted++ }),
      } as never,
      async verify(input) {
        const verdict = verdictOf(remote, input);
        await remote.onVerify(verdict.failure?.code);
        return verdict;
      },
      judgeSecret: async () => [check(remote.secretAccepted ? 'pass' : 'fail')],
      manifests: {
        kind: options.kind ?? 'managed',
        async newest(signal) {
          remote.calls.push('manifest');
          await abortable(remote.onManifest(), signal);
          return bytes(remote.published);
        },
      },
      manifestLog: fakeLog(remote),
      observe: (event) => events.push(event),
      onPermanent: (error) => permanent.push(error),
    }),
  );
  session.updateConfiguredKey('apiKey' in options ? options.apiKey : 'key');
  /** How many calls there were of this kind. */
  const count = (kind: string): number => remote.calls.filter((call) => call.startsWith(kind)).length;
  return { remote, clock, events, permanent, session, count };
}

export type SessionScene = ReturnType<typeof sessionScene>;

function abortable(work: void | Promise<void>, signal: AbortSignal | undefined): Promise<void> {
  const aborted = new Promise<never>((_, reject) => {
    signal?.addEventListener('abort', () => reject(signal.reason), { once: true });
  });
  return Promise.race([Promise.resolve(work), aborted]);
}

function verdictOf(remote: FakeRemote, { manifest, document, nonce, now }: VerifyInput): EvidenceVerdict {
  remote.calls.push(`verify ${text(manifest)}`);
  const mismatch = text(manifest) === text(document) ? undefined : ('manifest_mismatch' as const);
  const code = nonce.length === 32 ? (remote.verdictCode ?? mismatch) : 'internal';
  const checks = [check(code === undefined ? 'pass' : 'fail', code)];
  return {
    outcome: code === undefined ? 'accepted' : 'rejected',
    tee: 'snp',
    manifestSha256: Buffer.from(`sha of ${text(manifest)}`).toString('hex'),
    at: now,
    checks,
    failure: code === undefined ? undefined : checks[0],
    meshCaPem: code === undefined ? 'mesh CA' : undefined,
  };
}

function fakeLog(remote: FakeRemote): SessionDeps['manifestLog'] {
  let last: string | undefined;
  return {
    async record(manifest): Promise<ManifestRecord> {
      await remote.onRecord();
      const appended = last !== text(manifest);
      last = text(manifest);
      remote.calls.push(`record ${last}`);
      return { appended, path: 'manifests/1.json' };
    },
  };
}
