/**
 * What needs a person's attention. A condition, such as an unusable file, either holds or does not hold.
 * While a condition holds, its notice says since when, why, and what to do. The log, `/status`, the metric
 * and docs/operating.md are views of the notices.
 */
import type { Clock } from '../clock.ts';
import type { PrivatemodeError } from '../errors.ts';
import { STANDINGS, type Standing, type StateName } from '../session/standing.ts';
import type { Logger } from './log.ts';

/**
 * `critical`: requests fail, access is wrong, or records are lost. `warning`: requests may soon fail, access
 * may become wrong, or records may be lost.
 */
export type Severity = 'warning' | 'critical';

interface Row {
  readonly severity: Severity;
  /** What is wrong, in one clause. The clause is the message of the log line. */
  readonly title: string;
  /** What to do, in one or two sentences. */
  readonly remedy: string;
  /** The state of the session in which this condition holds. */
  readonly state?: StateName;
}

const warning = (title: string, remedy: string): Row => ({ severity: 'warning', title, remedy });
const critical = (title: string, remedy: string): Row => ({ severity: 'critical', title, remedy });
const ofState = (severity: Severity, state: StateName): Row => ({
  severity,
  title: STANDINGS[state].title,
  remedy: 'See its reason.',
  state,
});

const DAMAGED_FILE = 'Repair the file, or put the former one back; the proxy reads it again by itself.';
const RENEW = 'Put the renewed certificate into the file; the proxy reads it again by itself.';
const WORKSPACE =
  'Make room on the disk of --workspace, or make it writable again; what waits is then written.';

/** Every condition, in the order of docs/operating.md. The ids are stable, because alerts match on them. */
const ROWS = {
  service_rejected: ofState('critical', 'rejected'),
  service_rejected_once: ofState('critical', 'rejected-once'),
  manifest_unusable: ofState('critical', 'manifest-not-understood'),
  key_refused: ofState('critical', 'key-refused'),
  client_too_old: ofState('critical', 'client-too-old'),
  service_unreachable: ofState('critical', 'unreachable'),
  renewal_fails: ofState('warning', 'not-renewable'),
  service_failing: critical(
    'The service cannot be reached',
    'Check the network and --api-endpoint, or wait for the service; the next answer of it ends this.',
  ),

  api_key_file_unusable: warning('The API key file cannot be used, the old key stays', DAMAGED_FILE),
  manifest_file_unusable: warning('The manifest file cannot be used, the old manifest stays', DAMAGED_FILE),
  own_key_rejected: critical(
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
  tls_certificate_expiry: warning('The TLS certificate expires within 14 days', RENEW),
  tls_certificate_expired: critical('The TLS certificate has expired: clients cannot connect', RENEW),
  receipts_unwritten: warning(
    'Receipts cannot be written, and wait in memory: a restart loses them',
    WORKSPACE,
  ),
  receipts_lost: critical(
    'Receipts were lost within the last day',
    'The chain says how many. Make room on the disk of --workspace, so that no more are lost.',
  ),
  limits_store_away: critical(
    'The store of the limits cannot be used for now',
    'If it lasts, check the store of the limits (--limits-store): does it run, does this machine reach it, and may its user write? The proxy reconnects by itself; another URL needs a restart.',
  ),
  counts_waiting: warning(
    'The counts of the limits hold, but a restart would forget some',
    `${WORKSPACE} Give each gateway a workspace of its own.`,
  ),
} satisfies Readonly<Record<string, Row>>;

export type NoticeId = keyof typeof ROWS;
export const NOTICES: Readonly<Record<NoticeId, Row>> = ROWS;

/**
 * A condition that holds. The reason names files, clients and models of the operator. So the reason appears
 * only in the log, in `/status` and in views made from `/status`.
 */
export interface Notice extends Row {
  readonly id: NoticeId;
  /** When the condition began, in ms since 1970. */
  readonly since: number;
  readonly reason: string;
}

/** The functions by which other modules begin and end conditions. */
export type NoticeSink = Pick<Notices, 'set' | 'clear'>;

/** Makes the callbacks for the watcher of a file: a notice holds while the file cannot be used. */
export const whileUnusable = (notices: NoticeSink, id: NoticeId) => ({
  failed: ({ message }: PrivatemodeError): void => notices.set(id, message),
  usable: (): void => notices.clear(id),
});

/** Makes the notice of a state with an error: from the row that names the state, and the error's remedy. */
function noticeOf({ state, error }: Standing): Omit<Notice, 'since'> | undefined {
  const [id, row] = Object.entries(NOTICES).find(([, { state: named }]) => named === state) ?? [];
  if (row === undefined || error === undefined) return undefined;
  return { ...row, id: id as NoticeId, reason: `${error.code}: ${error.message}`, remedy: error.remedy };
}

export type Notices = ReturnType<typeof createNotices>;

const LEVELS = { warning: 'warn', critical: 'error' } as const;

/**
 * Keeps the notices that hold now: the notice of the session's state, and those that `set` began. A condition
 * is logged when it begins, when its reason changes, and when it is over. Each call of `look` or `list` asks
 * `standing` for the state of the session.
 */
export function createNotices(log: Logger, clock: Pick<Clock, 'now'>, standing?: () => Standing) {
  const held = new Map<NoticeId, { readonly since: number; readonly reasons: Map<string, string> }>();
  let last: StateName | undefined;
  /** The notice of a session's state that the log reported last, and has not reported as over. */
  let told: Notice | undefined;

  const begins = ({ id, severity, title, reason, remedy }: Omit<Notice, 'since'>): void =>
    log[LEVELS[severity]]({ condition: id, reason, remedy }, title);
  const isOver = (id: NoticeId): void => log.info({ condition: id }, `Over: ${NOTICES[id].title}`);

  /**
   * Begins a condition. A repeated call of `set` or `clear` changes nothing. `reason`: what has happened, in
   * words for a person, without the remedy. `of`: the file or client, if a condition can concern several. The
   * condition is over only when it is over for each file or client.
   */
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

  /** Logs a change of the session's state, if there was one. Returns the notice of the state. */
  function look(): Notice | undefined {
    const now = standing?.();
    // The state `ended` logs nothing, because the end of the proxy ends no condition. The state `starting`
    // after another one means that the evidence was accepted or the secret denied: the log waits for the next
    // state.
    if (now === undefined || now.state === 'ended' || (now.state === 'starting' && last !== undefined))
      return undefined;
    const before = last;
    last = now.state;
    const next = noticeOf(now);
    if (next !== undefined) {
      if (now.state !== before || next.reason !== told?.reason) begins(next);
      told = { ...next, since: next.id === told?.id ? told.since : clock.now() };
      return told;
    }
    if (now.verified && told !== undefined) {
      isOver(told.id); // only a verified state shows that the condition is over
      told = undefined;
    } else if (!now.verified && before !== undefined && now.state !== before)
      log.info({ component: 'session', state: now.state }, `${now.title}. ${now.meaning}`);
    return undefined;
  }

  return {
    set,
    clear,
    look,
    /** Lists the critical notices first, and older notices before younger ones. */
    list(): readonly Notice[] {
      const others = Array.from(held, ([id, { since, reasons }]) => ({
        id,
        ...NOTICES[id],
        since,
        reason: [...new Set(reasons.values())].join('; '),
      }));
      const isCritical = ({ severity }: Notice): number => Number(severity === 'critical');
      return [look() ?? [], others].flat().sort((a, b) => isCritical(b) - isCritical(a) || a.since - b.since);
    },
  };
}
