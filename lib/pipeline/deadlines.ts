/** Wall-clock timers by name, of which each can be set anew; a timer that expires or is dropped is gone. */
export interface Deadlines {
  set(name: string, ms: number, expired: () => void): void;
  drop(name: string): void;
  clear(): void;
}

/** Not the timers of a socket: any traffic resets those, also bursts of informational answers (trap 10). */
export function createDeadlines(): Deadlines {
  const timers = new Map<string, NodeJS.Timeout>();
  return {
    set(name, ms, expired) {
      clearTimeout(timers.get(name));
      timers.set(name, setTimeout(expired, ms));
    },
    drop(name) {
      clearTimeout(timers.get(name));
      timers.delete(name);
    },
    clear() {
      for (const timer of timers.values()) clearTimeout(timer);
      timers.clear();
    },
  };
}
