import { chatBody } from '../fixtures.ts';
import { openStream } from '../load.ts';
import type { Metric, Row } from '../metric.ts';
import { cpuMicroseconds, message, monotonicMs } from '../processes.ts';
import { median, shuffled } from '../stats.ts';
import type { Subjects } from '../subjects.ts';
import type { UpstreamNote } from '../upstream.ts';

const PLAN = { events: 1 };
const MB = 1_000_000;

type Uploaded = Extract<UpstreamNote, { type: 'uploaded' }>;

/**
 * When a body of at least that many bytes is there; what came before this call does not count, however late
 * it is told.
 */
async function arrival({ upstream }: Subjects, bytes: number): Promise<number> {
  const since = monotonicMs();
  const meant = (note: Uploaded): boolean => note.bytes >= bytes && note.at >= since;
  return (await message<Uploaded>(upstream, 'uploaded', meant)).at;
}

/**
 * ms from the client's last byte to the upstream's, for a prompt that leaves the client at once or at that
 * rate.
 */
async function through(subjects: Subjects, name: string, body: Buffer, rate?: number): Promise<number> {
  const { target } = await subjects.get(name);
  const arrived = arrival(subjects, body.length);
  const stream = await openStream(target, PLAN, body, rate);
  const at = await arrived;
  await stream.finished;
  return at - (await stream.sentAt);
}

/** ms from the first byte sealed to the upstream's last, in a loop that does nothing else. */
export async function bare(subjects: Subjects, bytes: number): Promise<number> {
  const arrived = arrival(subjects, bytes);
  const { from } = await subjects.limit<{ type: 'sent'; from: number }>({
    type: 'upload',
    bytes,
  });
  return (await arrived) - from;
}

/** Of each way in a round: one in three meets a collection, in the upstream if not here. */
const REPEATS = 7;
/** Bytes a second of a client that is not on this machine. */
const RATE = 10 * MB;

/**
 * The shard key, which a shared salt asks for, ends at a million tokens of four bytes: larger prompts are
 * refused.
 */
const SHARED_SALT_LIMIT = 4;

/** The same ways through what was entered, as far as it knows them. */
const besideOurs = (
  ways: readonly { readonly name: string; readonly rate?: number }[],
  { entered, builds }: Subjects,
): { readonly name: string; readonly rate?: number | undefined }[] =>
  entered.flatMap((other) =>
    ways
      .filter(({ name }) => builds.includes(other) || !name.endsWith('shared salt'))
      .map(({ name, rate }) => ({ name: name.replace('ours', other), rate })),
  );

export function upload(megabytes: number): Metric {
  const id = `upload_${megabytes}_mb`;
  const salted = megabytes < SHARED_SALT_LIMIT;
  const bytes = megabytes * MB;
  let body: Buffer | undefined;
  const rowFor = (suffix: string, title: string, limit: number): Row => ({
    id: `${id}${suffix}`,
    title: `${megabytes} MB prompt${title}`,
    figure: '÷ bare seal and write',
    bar: { limit, kind: 'at most' },
  });
  /** Each way with its row; `bare` is what they are held against. */
  const ways = [
    { name: 'ours', row: rowFor('', ', last byte in to last byte out', 1.5) },
    { name: 'ours, trickled', row: rowFor('_trickled', ' that arrives at 10 MB/s', 1.5), rate: RATE },
    ...(salted
      ? [{ name: 'ours, shared salt', row: rowFor('_shared_salt', ' with a shared salt', 2.5) }]
      : []),
  ];
  return {
    name: id,
    rows: ways.map(({ row }) => row),
    rounds: salted ? { full: 9, quick: 3 } : { full: 5, quick: 0 },
    async round(subjects) {
      body ??= chatBody(PLAN, bytes);
      const taken: Record<string, () => Promise<number>> = { bare: () => bare(subjects, bytes) };
      for (const { name, rate } of [...ways, ...besideOurs(ways, subjects)])
        taken[name] = () => through(subjects, name.replace(', trickled', ''), body as Buffer, rate);
      const times = Object.fromEntries(Object.keys(taken).map((name) => [name, [] as number[]]));
      const spent = Object.fromEntries(Object.keys(taken).map((name) => [name, [] as number[]]));
      for (let i = 0; i < REPEATS; i++) {
        for (const [name, take] of shuffled(Object.entries(taken))) {
          const pid = name === 'bare' ? undefined : (await subjects.get(name.replace(', trickled', ''))).pid;
          const before = pid && cpuMicroseconds(pid);
          times[name]!.push(await take());
          if (pid) spent[name]!.push((cpuMicroseconds(pid) - before!) / 1000);
        }
      }
      const middle = Object.entries(times).map(([name, found]) => [name, median(found)] as const);
      const cpu = Object.entries(spent).filter(([, found]) => found.length > 0);
      const of = Object.fromEntries(middle);
      return {
        figures: Object.fromEntries(ways.map(({ name, row }) => [row.id, of[name]! / of['bare']!])),
        values: Object.fromEntries([
          ...middle.map(([name, time]) => [`${name}, ms`, time]),
          ...cpu.map(([name, found]) => [`${name}, CPU ms`, median(found)]),
        ]),
      };
    },
  };
}
