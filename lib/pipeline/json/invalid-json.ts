import { PrivatemodeError } from '../../errors.ts';

/** `position` in bytes from the first of the body; nothing of the body is quoted. */
export const invalidJson = (position: number, words = 'unexpected byte'): PrivatemodeError =>
  new PrivatemodeError('invalid_json', `the body is not valid JSON: ${words} at offset ${position}`);
