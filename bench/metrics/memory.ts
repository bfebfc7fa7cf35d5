import { setTimeout as delay } from 'node:timers/promises';
import { openStream, type RunningStream } from '../load.ts';
import type { Metric } from '../metric.ts';
import { residentBytes } from '../processes.ts';
import { shuffled, slope } from '../stats.ts';
import type { Subjects } from '../subjects.ts';

const PLATEAUS = [200, 400, 700, 1000];
/** Two collections when asked, so that what is read is what is held. */
const COLLECT = "data:text/javascript,process.on('SIGUSR2',()=>{gc();gc()})";

/** Bytes of resident memory per stream that has begun and is silent. */
async function bytesPerStream(subjects: Subjects, name: string): Promise<number> {
  const subject = await subjects.fresh(name, {
    execArgv: ['--expose-gc', `--import=${COLLECT}`],
  });
  const pid = subject.pid as number;
  const streams: RunningStream[] = [];
  const points: [number, number][] = [];
  try {
    for (const plateau of PLATEAUS) {
      while (streams.length < plateau) {
        const opened = await Promise.all(
          Array.from({ length: 50 }, () => openStream(subject.target, { events: 2, hold: true })),
        );
        await Promise.all(opened.map((stream) => stream.reached(2)));
        streams.push(...opened);
      }
      if (subjects.collects(name)) process.kill(pid, 'SIGUSR2');
      await delay(500);
      points.push([plateau, residentBytes(pid)]);
    }
  } finally {
    for (const { socket } of streams) socket.destroy();
    await subject.stop();
  }
  return slope(points);
}

export const memoryPerStream: Metric = {
  name: 'mem_per_stream',
  rows: [
    {
      id: 'mem_per_stream',
      title: 'Memory per idle stream, 200 to 1 000 of them',
      figure: '÷ passthrough',
      bar: { limit: 1.28, kind: 'at most' },
    },
  ],
  rounds: { full: 3, quick: 0 },
  async round(subjects) {
    const found: Record<string, number> = {};
    for (const name of shuffled(['passthrough', 'ours', ...subjects.entered]))
      found[name] = await bytesPerStream(subjects, name);
    return {
      figures: { mem_per_stream: found['ours']! / found['passthrough']! },
      values: Object.fromEntries(
        Object.entries(found).map(([name, bytes]) => [`${name}, KB/stream`, bytes / 1000]),
      ),
    };
  },
};
