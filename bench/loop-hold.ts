/**
 * Imported into a subject before its own program (`--import`): measures for how long it holds its event loop.
 * At SIGUSR2 it writes the longest hold since the last one, and which one hold of a thousand exceeds, in ms,
 * to the file that its own URL names.
 */
import { writeFileSync } from 'node:fs';
import { monitorEventLoopDelay } from 'node:perf_hooks';

const [file] = new URL(import.meta.url).searchParams.values();
// A timer that is due every ms: as late as it fires, so long nobody else was served.
const delays = monitorEventLoopDelay({ resolution: 1 });
delays.enable();
process.on('SIGUSR2', () => {
  writeFileSync(file as string, `${delays.max / 1e6} ${delays.percentile(99.9) / 1e6}\n`);
  delays.reset();
});
