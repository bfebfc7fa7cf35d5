import { chatBody } from '../fixtures.ts';
import { openStream } from '../load.ts';
import type { Metric } from '../metric.ts';
import { message, monotonicMs } from '../processes.ts';
import { median, shuffled } from '../stats.ts';
import type { Subjects } from '../subjects.ts';
import type { UpstreamNote } from '../upstream.ts';

const PLAN = { events: 1 };
const MB = 1_000_000;

type Uploaded = Extract<UpstreamNote, { type: 'uploaded' }>;

/** When a body of at least that many bytes is there; what came before this call does not count, however late it is told. */
async function arrival({ upstream }: Subjects, bytes: number): Promise<number> {
  const since = monotonicMs();
  const meant = (note: Uploaded): boolean => note.bytes >= bytes && note.at >= since;
  return (await message<Uploaded>(upstream, 'uploaded', meant)).at;
}

/** ms from the client's last byte to the upstream's, for a prompt of that many bytes. */
async function through(subjects: Subjects, name: string, bytes: number): Promise<number> {
  const { target } = await subjects.get(name);
  const arrived = arrival(subjects, bytes);
  const stream = await openStream(target, PLAN, chatBody(PLAN, bytes));
  const at = await arrived;
  await stream.finished;
  return at - (await stream.sentAt);
}

/** ms from the first byte sealed to the upstream's last, in a loop that does nothing else. */
async function bare(subjects: Subjects, bytes: number): Promise<number> {
  const arrived = arrival(subjects, bytes);
  const { from } = await subjects.limit<{ type: 'sent'; from: number }>({
    type: 'upload',
    bytes,
  });
  return (await arrived) - from;
}

const REPEATS = 3;

/** The shard key, which a shared salt asks for, ends at a million tokens of four bytes: larger prompts are refused. */
const SHARED_SALT_LIMIT = 4;

export function upload(megabytes: number): Metric {
  const alone = {
    id: `upload_${megabytes}_mb`,
    title: `${megabytes} MB prompt, last byte in to last byte out`,
    figure: '÷ bare seal and write',
    bar: { limit: 1.5, kind: 'at most' },
  } as const;
  const shared = {
    ...alone,
    id: `${alone.id}_shared_salt`,
    title: `${megabytes} MB prompt with a shared salt`,
    bar: { limit: 2.5, kind: 'at most' },
  } as const;
  const salted = megabytes < SHARED_SALT_LIMIT;
  const names = ['ours', 'bare', ...(salted ? ['ours, shared salt'] : [])];
  return {
    name: alone.id,
    rows: salted ? [alone, shared] : [alone],
    rounds: { full: 9, quick: salted ? 4 : 0 },
    async round(subjects) {
      const times: Record<string, number[]> = Object.fromEntries(names.map((name) => [name, []]));
      for (let i = 0; i < REPEATS; i++) {
        for (const name of shuffled(names)) {
          const bytes = megabytes * MB;
          const time = name === 'bare' ? bare(subjects, bytes) : through(subjects, name, bytes);
          times[name]!.push(await time);
        }
      }
      const values = names.map((name) => [`${name}, ms`, median(times[name]!)] as const);
      const over = (name: string): number => median(times[name]!) / median(times['bare']!);
      return {
        figures: { [alone.id]: over('ours'), ...(salted ? { [shared.id]: over('ours, shared salt') } : {}) },
        values: Object.fromEntries(values),
      };
    },
  };
}
