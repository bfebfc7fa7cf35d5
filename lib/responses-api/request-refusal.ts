/**
 * The errors of a request that cannot be translated: each names the place in the request, and what to do. The
 * functions below check one value, and throw such an error.
 */
import { PrivatemodeError } from '../errors.ts';
import { Span } from './value-reader.ts';

/** `code` of the error object, as the API names it. */
export type RefusalCode = 'unsupported_parameter' | 'invalid_value' | 'missing_required_parameter';

/** A 400 of the Responses API. `param` is the place in the request, such as `input[3].content[0]`. */
export class RequestRefusal extends PrivatemodeError {
  constructor(code: RefusalCode, param: string, message: string, remedy: string) {
    super('not_supported', message, { remedy, api: { param, code } });
  }
}

export const unsupported = (param: string, message: string, remedy: string) =>
  new RequestRefusal('unsupported_parameter', param, message, remedy);

/** `expected` completes the sentence "Send …". */
export const invalid = (param: string, expected: string) =>
  new RequestRefusal(
    'invalid_value',
    param,
    `${param} has a value that cannot be translated`,
    `Send ${expected}.`,
  );

export type PlainObject = Readonly<Record<string, unknown>>;

export const isObject = (value: unknown): value is PlainObject =>
  typeof value === 'object' && value !== null && !Array.isArray(value) && !(value instanceof Span);

/** Whether the value is a string, decoded or as a Span. */
export const isString = (value: unknown): value is string | Span =>
  typeof value === 'string' || (value instanceof Span && value.kind === 'string');

/** Whether the value is an object that is passed on as it came. */
export const isPassedOn = (value: unknown): value is Span => value instanceof Span && value.kind === 'object';

/** Whether a member counts as set: null counts as absent. */
export const isSet = (value: unknown): boolean => value !== undefined && value !== null;

/** Returns the value as an object. Throws a RequestRefusal for any other value, and never quotes it. */
export function objectAt(param: string, value: unknown): PlainObject {
  if (!isObject(value)) throw invalid(param, 'an object');
  return value;
}

export function stringAt(param: string, value: unknown): string | Span {
  if (!isString(value)) throw invalid(param, 'a string');
  return value;
}

/**
 * Returns the value as a name, or as a word that the API knows. Throws a RequestRefusal for anything else,
 * also for a string too long to be decoded.
 */
export function wordAt(param: string, value: unknown): string {
  if (typeof value !== 'string') throw invalid(param, isString(value) ? 'a shorter string' : 'a string');
  return value;
}

export function passedOnAt(param: string, value: unknown): Span {
  if (!isPassedOn(value)) throw invalid(param, 'an object');
  return value;
}

export function listAt(param: string, value: unknown): readonly unknown[] {
  if (!Array.isArray(value)) throw invalid(param, 'an array');
  return value;
}
