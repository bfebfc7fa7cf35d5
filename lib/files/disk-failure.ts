/** Says why a file cannot be written: a sentence for each error code of the file system. */

const REASONS: Readonly<Record<string, (directory: string) => string>> = {
  ENOSPC: (directory) => `the disk of ${directory} is full`,
  EDQUOT: (directory) => `this user's share of the disk of ${directory} is used up`,
  EROFS: (directory) => `the disk of ${directory} is read-only`,
  EACCES: (directory) => `this user may not write to ${directory}`,
  ENOENT: (directory) => `${directory} is gone`,
  EIO: (directory) => `the disk of ${directory} is damaged`,
  ETIMEDOUT: (directory) => `the disk of ${directory} takes longer than 10 s`,
};

/**
 * The reason why a write below `directory` failed: the text of the table above for the code that the file
 * system threw, or, without one, the message that it threw.
 */
export function diskFailure(directory: string, error: Error): string {
  const { code = '' } = error as NodeJS.ErrnoException;
  const words = Object.hasOwn(REASONS, code) ? REASONS[code]?.(directory) : undefined;
  return words === undefined ? error.message : `${words} (${code})`;
}
