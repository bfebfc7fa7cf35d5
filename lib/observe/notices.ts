/**
 * What needs a person's attention. A condition, such as a file that cannot be used, holds or does not; its
 * notice says since when, why, and what to do. The log, `/status`, the metric and docs/conditions.md are
 * views of the notices.
 */
import type { Clock } from '../clock.ts';
import type { PrivatemodeError } from '../errors.ts';
import type { Standing, StateName } from '../session/standing.ts';
import type { Logger } from './log.ts';

/**
 * `critical`: requests fail, access is wrong, or records are lost. `warning`: one of these may happen soon.
 * `info` alerts nobody.
 */
export type Severity = 'info' | 'warning' | 'critical';

interface Row {
  readonly severity: Severity;
  /** What is wrong, as a clause: the message of the log line. */
  readonly title: string;
  /** What to do, as one sentence or two. */
  readonly remedy: string;
}

const warning = (title: string, remedy: string): Row => ({ severity: 'warning', title, remedy });
const critical = (title: string, remedy: string): Row => ({ severity: 'critical', title, remedy });

const DAMAGED_FILE = 'Repair the file, or put the former one back; the proxy reads it again by itself.';
const WORKSPACE =
  'Make room on the disk of --workspace, or make it writable again; what waits is then written.';
const LOG_NAMES = 'The log names what fails; the proxy tries again by itself';

/** Every condition, in the order of docs/conditions.md. The ids are stable: alerts match on them. */
const ROWS = {
  service_rejected: critical(
    'The service is rejected, twice in a row: no request leaves',
    'Find out what changed, and who says so: docs/manifests.md.',
  ),
  service_rejected_once: warning(
    'The service was rejected, and is asked again: no request leaves',
    'Wait for the next verdict, a few seconds later.',
  ),
  manifest_unusable: critical(
    'The manifest cannot be used: no request leaves',
    'Update privatemode-proxy to the latest version, or put another file in the place of --manifest-path.',
  ),
  key_refused: critical(
    'The service refuses the API key, so it cannot be verified',
    'Check the key of --api-key, or ask the service for a new one.',
  ),
  client_too_old: critical(
    'The service wants a newer client',
    'Update privatemode-proxy to the latest version.',
  ),
  service_unreachable: critical(
    'The verification of the service cannot be completed',
    `${LOG_NAMES}, or without --api-key with the key of the next client.`,
  ),
  renewal_fails: warning(
    'The renewal of the secret fails; requests are protected until it expires',
    `${LOG_NAMES}.`,
  ),
  service_failing: critical(
    'The service cannot be reached: requests fail',
    'Check the network and --api-endpoint, or wait for the service; the next answer of it ends this.',
  ),

  api_key_file_unusable: warning('The API key file cannot be used, the old key stays', DAMAGED_FILE),
  manifest_file_unusable: warning('The manifest file cannot be used, the old manifest stays', DAMAGED_FILE),
  own_key_rejected: warning(
    'The service rejects an API key of this proxy',
    'Check the key that the reason names, or ask the service for a new one; clients cannot repair this.',
  ),
  clients_file_unusable: critical(
    'The clients file cannot be used; what was known stays, so a removed client still has access',
    DAMAGED_FILE,
  ),
  client_key_unusable: warning('A key in the clients file cannot be used, the old key stays', DAMAGED_FILE),
  tls_pair_unusable: warning(
    'The new TLS certificate cannot be used, the old one stays',
    'Put a certificate and its own key into the two files; the proxy reads them again by itself.',
  ),
  tls_certificate_expiry: warning(
    'The TLS certificate expires within 14 days',
    'Put the renewed certificate into the file; the proxy reads it again by itself.',
  ),
  tls_certificate_expired: critical(
    'The TLS certificate has expired: clients cannot connect',
    'Put the renewed certificate into the file; the proxy reads it again by itself.',
  ),
  receipts_unwritten: warning('Receipts cannot be written, and wait in memory', WORKSPACE),
  receipts_lost: critical(
    'Receipts were lost within the last day',
    'The chain says how many. Make room on the disk of --workspace, so that no more are lost.',
  ),
  limits_store_away: critical(
    'The store of the limits cannot be used for now',
    'If it lasts, check the store of the limits (--limits-store): does it run, and does this machine reach it? The proxy reconnects by itself.',
  ),
  counts_waiting: warning(
    'The counts of the limits hold, but a restart would forget some',
    `${WORKSPACE} Give each gateway a workspace of its own.`,
  ),
} as const satisfies Readonly<Record<string, Row>>;

export type NoticeId = keyof typeof ROWS;
export const NOTICES: Readonly<Record<NoticeId, Row>> = ROWS;

/**
 * The reason names files, clients and models of the operator. So it appears only in `/status`, in views that
 * are made from it, and in the log.
 */
export interface Notice extends Row {
  readonly id: NoticeId;
  /** ms since 1970. */
  readonly since: number;
  readonly reason: string;
}

/**
 * What a source of conditions calls. Both are idempotent; neither throws. `of`: the file or client that the
 * condition is about, if there are several: it is over once it is over for each of them.
 */
export interface NoticeSink {
  /** `reason`: what has happened, for a person, without what to do. */
  set(id: NoticeId, reason: string, of?: string): void;
  clear(id: NoticeId, of?: string): void;
}

/** Keeps a notice while a followed file cannot be used: what watches the file calls these functions. */
export const whileUnusable = (notices: NoticeSink, id: NoticeId) => ({
  failed: ({ message }: PrivatemodeError): void => notices.set(id, message),
  usable: (): void => notices.clear(id),
});

/** The state of the session → its condition (docs/states.md). A state that is missing here needs nobody. */
const OF_STATE: Readonly<Partial<Record<StateName, NoticeId>>> = {
  'not-renewable': 'renewal_fails',
  'manifest-not-understood': 'manifest_unusable',
  rejected: 'service_rejected',
  'rejected-once': 'service_rejected_once',
  'key-refused': 'key_refused',
  'client-too-old': 'client_too_old',
  unreachable: 'service_unreachable',
};

/** What a standing gives notice of, if anything. The error knows better than the row what to do. */
export function noticeOf({ state, meaning, error }: Standing): Omit<Notice, 'since'> | undefined {
  const id = OF_STATE[state];
  if (id === undefined) return undefined;
  const reason = error === undefined ? meaning : `${error.code}: ${error.message}`;
  return { id, ...NOTICES[id], reason, remedy: error?.remedy ?? NOTICES[id].remedy };
}

export type Notices = ReturnType<typeof createNotices>;

const RANKS: readonly Severity[] = ['critical', 'warning', 'info'];
const LEVELS = { info: 'info', warning: 'warn', critical: 'error' } as const;
/** Reasons of one condition that are shown; further ones are only counted. */
const MOST_REASONS = 3;

/**
 * The list of what holds now: the notice of the session's state, and those that were set. It logs a condition
 * when it begins or gets another reason, and when it is over. `standing` is asked at each look and each list.
 */
export function createNotices({
  log,
  clock,
  standing,
}: {
  readonly log: Logger;
  readonly clock: Pick<Clock, 'now'>;
  readonly standing?: () => Standing;
}) {
  const held = new Map<NoticeId, { readonly since: number; readonly reasons: Map<string, string> }>();
  let last: StateName | undefined;
  let ofState: Notice | undefined;
  /** What the log says of the state, until it says that it is over. */
  let told: NoticeId | undefined;

  function begins({ id, severity, title, reason, remedy }: Omit<Notice, 'since'>): void {
    log[LEVELS[severity]]({ condition: id, reason, remedy }, title);
  }

  const isOver = (id: NoticeId): void => log.info({ condition: id }, `Over: ${NOTICES[id].title}`);

  function set(id: NoticeId, reason: string, of = ''): void {
    const { since, reasons } = held.get(id) ?? { since: clock.now(), reasons: new Map<string, string>() };
    const isKnown = [...reasons.values()].includes(reason);
    held.set(id, { since, reasons: reasons.set(of, reason) });
    if (!isKnown) begins({ id, ...NOTICES[id], reason });
  }

  function clear(id: NoticeId, of = ''): void {
    const reasons = held.get(id)?.reasons;
    if (reasons?.delete(of) !== true || reasons.size > 0) return;
    held.delete(id);
    isOver(id);
  }

  /** Logs how the state of the session has changed, if it has. */
  function look(): void {
    const now = standing?.();
    // What held until the end is not over because the proxy is. `starting` after another state: the evidence
    // was accepted, or the secret denied. Wait for what follows.
    if (now === undefined || now.state === 'ended' || (now.state === 'starting' && last !== undefined))
      return;
    const next = noticeOf(now);
    if (next !== undefined) {
      const isSame = next.id === ofState?.id;
      if (!isSame || next.reason !== ofState?.reason) begins(next);
      ofState = { ...next, since: isSame ? (ofState as Notice).since : clock.now() };
      told = next.id;
    } else {
      ofState = undefined;
      // Only a verified state shows that a condition is over.
      if (now.verified && told !== undefined) {
        isOver(told);
        told = undefined;
      } else if (!now.verified && last !== undefined && last !== now.state)
        log.info({ component: 'session', state: now.state }, `${now.title}. ${now.meaning}`);
    }
    last = now.state;
  }

  return {
    set,
    clear,
    look,
    /** The worst first; among equally bad ones the oldest first. */
    list(): readonly Notice[] {
      look();
      const others = Array.from(held, ([id, { since, reasons }]) => ({
        id,
        ...NOTICES[id],
        since,
        reason: joined([...new Set(reasons.values())]),
      }));
      const rank = ({ severity }: Notice): number => RANKS.indexOf(severity);
      return [...(ofState === undefined ? [] : [ofState]), ...others].sort(
        (a, b) => rank(a) - rank(b) || a.since - b.since,
      );
    },
  };
}

function joined(reasons: readonly string[]): string {
  const more = reasons.length - MOST_REASONS;
  return `${reasons.slice(0, MOST_REASONS).join('; ')}${more > 0 ? `; and ${more} more` : ''}`;
}
