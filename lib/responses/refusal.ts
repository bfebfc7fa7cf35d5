/** Why a request cannot be translated: where in it, and what to do. */
import { PrivatemodeError } from '../errors.ts';
import { Span } from './value-reader.ts';

/** `code` of the error object, as the API names it. */
export type RefusalCode = 'unsupported_parameter' | 'invalid_value' | 'missing_required_parameter';

/** A 400 of the Responses API; `param` is the place in the request, as `input[3].content[0]`. */
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

export type JsonObject = Readonly<Record<string, unknown>>;

export const isObject = (value: unknown): value is JsonObject =>
  typeof value === 'object' && value !== null && !Array.isArray(value) && !(value instanceof Span);

/** Whether it is a string, also one that is not decoded. */
export const isString = (value: unknown): value is string | Span =>
  typeof value === 'string' || (value instanceof Span && value.kind === 'string');

/** Whether it is an object that is passed on as it came. */
export const isPassedOn = (value: unknown): value is Span => value instanceof Span && value.kind === 'object';

/** Whether a member counts: a null is as good as none. */
export const isSet = (value: unknown): boolean => value !== undefined && value !== null;

/** The value as an object; what the request says in its place is never quoted. */
export function objectAt(param: string, value: unknown): JsonObject {
  if (!isObject(value)) throw invalid(param, 'an object');
  return value;
}

export function stringAt(param: string, value: unknown): string | Span {
  if (!isString(value)) throw invalid(param, 'a string');
  return value;
}

/** A name, or a word that the API knows: no text of many bytes is one. */
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
