/** What needs a person's attention: the table of what can be wrong, and the registry of what is wrong now. */
import type { Clock } from '../clock.ts';
import type { PrivatemodeError } from '../errors.ts';
import type { Logger } from './log.ts';

export type Severity = 'info' | 'warning' | 'critical';

interface ConditionRow {
  /**
   * The usual severity first. `critical`: the proxy refuses requests, gives wrong access or loses records.
   * `warning`: one of these may happen soon.
   */
  readonly severities: readonly [Severity, ...Severity[]];
  /** Messages of the log lines when the condition begins and when it ends. */
  readonly begins: string;
  readonly ends: string;
  /** Level of the first log line, set where something failed. Default: the level of the severity. */
  readonly level?: 'error';
  /** What is wrong and what follows from it, for docs/conditions.md. */
  readonly meaning: string;
  /** What to do, as one sentence or two. */
  readonly remedy: string;
}

const DAMAGED_FILE = 'Repair the file, or put the former one back; the proxy reads it again by itself.';
const WORKSPACE =
  'Make room on the disk of --workspace, or make it writable again; what waits is then written.';
const NONE_LEAVES =
  'no request leaves. Exception: if there is a secret that the service denies, one request at a time tries it';

/**
 * Every condition, in the order of the table in docs/conditions.md. The ids are stable: alerts match on them.
 */
export const CONDITIONS = {
  service_rejected: {
    severities: ['critical', 'warning'],
    begins: 'The service is rejected',
    ends: 'The service is no longer rejected',
    meaning:
      'A check of the service failed: no request leaves. Warning after the first rejection, critical once a second one has confirmed it.',
    remedy: 'Find out what changed, and who says so: docs/manifests.md.',
  },
  manifest_unusable: {
    severities: ['critical'],
    begins: 'The manifest cannot be used',
    ends: 'The manifest can be used again',
    meaning:
      'This version does not understand the manifest, or the manifest breaks a rule: no request leaves.',
    remedy:
      'Update privatemode-proxy to the latest version, or put another file in the place of --manifest-path.',
  },
  key_refused: {
    severities: ['critical'],
    begins: 'The service refuses the API key, so it cannot be verified',
    ends: 'The service accepts the API key',
    meaning: `The service answers an attestation with 401, and no secret is good: ${NONE_LEAVES}.`,
    remedy: 'Check the key of --api-key, or ask the service for a new one.',
  },
  client_too_old: {
    severities: ['critical'],
    begins: 'The service wants a newer client',
    ends: 'The service no longer asks for a newer client',
    meaning: `The service answers an attestation with the version that it wants at least, and no secret is good: ${NONE_LEAVES}.`,
    remedy: 'Update privatemode-proxy to the latest version.',
  },
  service_unreachable: {
    severities: ['critical'],
    begins: 'The verification of the service cannot be completed',
    ends: 'The service can be verified again',
    meaning: `The service, its manifest or the certificates of AMD or Intel cannot be had, or the manifest cannot be logged, and no secret is good: ${NONE_LEAVES}.`,
    remedy:
      'The log names what fails; the proxy tries again by itself, or without --api-key with the key of the next client.',
  },
  renewal_fails: {
    severities: ['warning'],
    begins: 'The renewal of the secret fails',
    ends: 'The renewal of the secret does not fail any more',
    meaning: 'Requests are protected until the secret expires. Then none leaves, unless a renewal succeeds.',
    remedy: 'The log names what fails; the proxy tries again by itself.',
  },

  api_key_file_unusable: {
    severities: ['warning'],
    level: 'error',
    begins: 'The API key file cannot be used, the old key stays',
    ends: 'The API key file can be used again',
    meaning: 'The file of `--api-key @FILE` cannot be read or holds no key. The old key is used.',
    remedy: DAMAGED_FILE,
  },
  manifest_file_unusable: {
    severities: ['warning'],
    level: 'error',
    begins: 'The manifest file cannot be used, the old manifest stays',
    ends: 'The manifest file can be used again',
    meaning: 'The file of `--manifest-path` cannot be read or holds no valid manifest. The old one is used.',
    remedy: DAMAGED_FILE,
  },
  own_key_rejected: {
    severities: ['warning'],
    begins: 'The service rejects an API key of this proxy',
    ends: 'No API key of this proxy is known to be rejected any more',
    meaning:
      'The service answered requests with 401 that had the key of `--api-key`, or the `apiKey` of a client.',
    remedy:
      'Check the key that the message names, or ask the service for a new one; clients cannot repair this.',
  },
  clients_file_unusable: {
    severities: ['critical'],
    begins: 'The clients file cannot be used; what was known stays',
    ends: 'The clients file can be used again',
    meaning: 'The file of `--clients` cannot be used. A client that was removed from it still has access.',
    remedy: DAMAGED_FILE,
  },
  client_key_unusable: {
    severities: ['warning'],
    level: 'error',
    begins: 'A key in the clients file cannot be used; the old key stays',
    ends: 'The keys in the clients file can be used again',
    meaning: "The file of a client's `apiKey` cannot be used. Its old key is used.",
    remedy: DAMAGED_FILE,
  },
  tls_pair_unusable: {
    severities: ['warning'],
    level: 'error',
    begins: 'The new TLS certificate cannot be used, the old one stays',
    ends: 'The TLS certificate and its key can be used again',
    meaning:
      'Certificate and key of `--tls-cert-path` and `--tls-key-path` cannot be used. The old ones are used.',
    remedy: 'Put a certificate and its own key into the two files; the proxy reads them again by itself.',
  },
  tls_certificate_expiry: {
    severities: ['warning', 'critical'],
    begins: 'The TLS certificate must be renewed',
    ends: 'The TLS certificate is valid for more than 14 days again',
    meaning:
      'The certificate of `--tls-cert-path` expires within 14 days, or has expired (critical): clients cannot connect.',
    remedy: 'Put the renewed certificate into the file; the proxy reads it again by itself.',
  },
  receipts_unwritten: {
    severities: ['warning', 'critical'],
    level: 'error',
    begins: 'Receipts cannot be written',
    ends: 'Receipts are written again',
    meaning:
      'The disk refuses receipts, or has not taken any for 10 s. Up to 10,000 wait in memory. Critical, for a day, once more were lost: the chain says how many.',
    remedy: WORKSPACE,
  },
  limits_store_away: {
    severities: ['critical'],
    begins: 'The store of the limits cannot be used for now',
    ends: 'The store of the limits can be used again',
    meaning:
      'The store of `--limits-store` cannot be used. Clients with limits get 503, or are not counted (`--limits-store-failure open`).',
    remedy:
      'If it lasts, check the store of the limits (--limits-store): does it run, and does this machine reach it? The proxy reconnects by itself.',
  },
  counts_waiting: {
    severities: ['warning'],
    level: 'error',
    begins: 'A restart would forget counts of the limits',
    ends: 'The counts of the limits survive a restart again',
    meaning:
      'The disk does not take the counts of the limits, or another gateway writes to the same workspace, or the file was damaged at the start. The limits hold, but a restart would forget some counts.',
    remedy: `${WORKSPACE} Give each gateway a workspace of its own.`,
  },
  proxy_open: {
    severities: ['warning', 'info'],
    begins: 'Other machines can use this proxy in plain text',
    ends: 'Other machines cannot use this proxy in plain text',
    meaning:
      'The port for applications is open to other machines without TLS, and has a key or `--clients`. Info in a container, whose network decides who reaches it.',
    remedy:
      'Set --listen-address=127.0.0.1, in a socket unit ListenStream=127.0.0.1:8080, or --tls-cert-path and --tls-key-path; --clients says who may use the proxy.',
  },
  admin_open: {
    severities: ['warning', 'info'],
    begins: 'Other machines can read the status page and the metrics',
    ends: 'Other machines cannot read the status page and the metrics',
    meaning:
      "The listener of `--admin-address`, which asks for no key and shows everybody's traffic, is open to other machines. Info in a container.",
    remedy: 'Set --admin-address to 127.0.0.1 with its port, or let a firewall admit Prometheus alone.',
  },
  runtime_outdated: {
    severities: ['info'],
    begins: 'The Node that runs this proxy should be replaced',
    ends: 'The Node that runs this proxy is recent enough',
    meaning:
      'The program runs on a release of Node that lacks a security fix of something that this proxy uses, or on a line of Node that it is not tested with. The message names each fix.',
    remedy:
      'Install the npm package on the newest Node of its line from nodejs.org (docs/install.md#npm). The executable, the image and a checkout bring their own Node, the same one until a release names a newer one: SECURITY.md says what to do with them.',
  },
} as const satisfies Readonly<Record<string, ConditionRow>>;

export type ConditionId = keyof typeof CONDITIONS;
const row = (id: ConditionId): ConditionRow => CONDITIONS[id];

/**
 * One condition, as `/status` shows it. Its message names files, clients and models of the operator. So the
 * message appears only in `/status`, in views that are made from it, and in the log.
 */
export interface Condition {
  readonly id: ConditionId;
  readonly severity: Severity;
  /** ms since 1970. */
  readonly since: number;
  readonly message: string;
  readonly remedy: string;
}

export interface ConditionOptions {
  /**
   * The file or client that the condition is about, if there are several. The condition ends once it has
   * ended for each of them.
   */
  readonly of?: string | undefined;
  /** Default: the first severity of the row. */
  readonly severity?: Severity | undefined;
  /** Set by a source that knows the cause better than the row does. Default: the remedy of the row. */
  readonly remedy?: string | undefined;
  /**
   * ms after which the condition ends by itself, unless it is set again. For events, since nobody sees the
   * end of an event.
   */
  readonly lasts?: number | undefined;
  /** Further fields of the log line. */
  readonly fields?: Readonly<Record<string, string | number>> | undefined;
}

/** The functions that a source of conditions calls. Both are idempotent; neither throws. */
export interface ConditionSink {
  /** Begins or updates a condition. `message` tells a person what is wrong, but not what to do. */
  set(id: ConditionId, message: string, options?: ConditionOptions): void;
  /** Ends a condition; if `of` is given, only for that file or client. */
  clear(id: ConditionId, options?: Pick<ConditionOptions, 'of' | 'fields'>): void;
}

/** Keeps a condition while a followed file cannot be used: what watches the file calls these functions. */
export const whileUnusable = (conditions: ConditionSink, id: ConditionId) => ({
  failed: ({ message }: PrivatemodeError): void => conditions.set(id, message),
  usable: (): void => conditions.clear(id),
});

export type Conditions = ReturnType<typeof createConditions>;

interface Entry {
  readonly message: string;
  readonly severity: Severity;
  readonly remedy: string;
  readonly since: number;
  /** Cancels the timer that ends it, if there is one. */
  readonly cancel: (() => void) | undefined;
}

const RANKS: readonly Severity[] = ['critical', 'warning', 'info'];
const rank = ({ severity }: Pick<Entry, 'severity'>): number => RANKS.indexOf(severity);
const LEVELS = { info: 'info', warning: 'warn', critical: 'error' } as const;
/** Messages of one condition that are shown; further ones are only counted. */
const MOST_MESSAGES = 3;

/**
 * The registry of the conditions that hold now. It logs a condition when it begins, when another cause joins
 * or the condition becomes worse, and when it ends.
 */
export function createConditions({
  log,
  clock,
}: {
  readonly log: Logger;
  readonly clock: Pick<Clock, 'now' | 'after'>;
}) {
  const held = new Map<ConditionId, Map<string, Entry>>();

  function set(id: ConditionId, message: string, options: ConditionOptions = {}): void {
    const { of = '', severity = row(id).severities[0], remedy = row(id).remedy, lasts, fields } = options;
    const entries = held.get(id) ?? new Map<string, Entry>();
    held.set(id, entries);
    const before = entries.get(of);
    before?.cancel?.();
    const isKnown = [...entries.values()].some(
      (entry) => entry.message === message && rank(entry) <= rank({ severity }),
    );
    const cancel = lasts === undefined ? undefined : clock.after(lasts, () => clear(id, { of }));
    entries.set(of, { message, severity, remedy, since: before?.since ?? clock.now(), cancel });
    if (isKnown && fields === undefined) return;
    const { level = LEVELS[severity], begins } = row(id);
    log[level]({ condition: id, reason: message, remedy, ...fields }, begins);
  }

  /** Removes the entry for `of`. Returns whether the condition has ended with it. */
  function drop(id: ConditionId, of: string): boolean {
    const entries = held.get(id);
    entries?.get(of)?.cancel?.();
    if (entries?.delete(of) !== true || entries.size > 0) return false;
    return held.delete(id);
  }

  function clear(id: ConditionId, { of = '', fields }: Pick<ConditionOptions, 'of' | 'fields'> = {}): void {
    if (drop(id, of)) log.info({ condition: id, ...fields }, row(id).ends);
  }

  return {
    set,
    clear,
    /** Ends a condition without a log line, because nothing was repaired. */
    drop: (id: ConditionId): void => void drop(id, ''),
    /** The worst first; among equally bad ones the oldest first. */
    list: (): readonly Condition[] =>
      Array.from(held, ([id, entries]) => joined(id, [...entries.values()])).sort(
        (a, b) => rank(a) - rank(b) || a.since - b.since,
      ),
    /** Ends the timers. */
    close(): void {
      for (const entries of held.values()) for (const { cancel } of entries.values()) cancel?.();
    },
  };
}

/** Joins all causes into one condition: it is as bad as the worst cause and as old as the oldest. */
function joined(id: ConditionId, entries: readonly Entry[]): Condition {
  const causes = entries.toSorted((a, b) => rank(a) - rank(b));
  const [worst] = causes as [Entry];
  const messages = [...new Set(causes.map(({ message }) => message))];
  const more = messages.length - MOST_MESSAGES;
  return {
    id,
    severity: worst.severity,
    since: Math.min(...entries.map(({ since }) => since)),
    message: `${row(id).begins}: ${messages.slice(0, MOST_MESSAGES).join('; ')}${more > 0 ? `; and ${more} more` : ''}`,
    remedy: worst.remedy,
  };
}
