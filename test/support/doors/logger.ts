import { createLogger, type Logger } from '../../../lib/observe/log.ts';

/** A logger at level debug whose lines can be read back, each as the object it is in JSON. */
export function recordingLogger(): { readonly log: Logger; readonly lines: Record<string, unknown>[] } {
  const lines: Record<string, unknown>[] = [];
  const output = { write: (line: string) => lines.push(JSON.parse(line)) };
  return { log: createLogger({ format: 'json', level: 20, output }), lines };
}
