import { PrivatemodeError } from '../../errors.ts';

const MODEL_BYTES = 256;

/**
 * The model name, which leaves as a header. Throws missing_model where it is absent or empty, invalid_model
 * where it is no string, longer than 256 bytes of UTF-8, or holds control characters or lone surrogates.
 */
export function checkModelName(model: unknown): string {
  if (model === undefined || model === '') {
    throw new PrivatemodeError('missing_model', 'no model is named in the request');
  }
  if (typeof model !== 'string')
    throw new PrivatemodeError('invalid_model', 'the model is not a short string');
  // C1 controls are no header characters either, but travel as the UTF-8 bytes C2 80 to C2 9F, which are.
  if (/[\x00-\x1f\x7f]/.test(model) || !model.isWellFormed() || Buffer.byteLength(model) > MODEL_BYTES) {
    throw new PrivatemodeError('invalid_model', 'the model name is too long or holds control characters');
  }
  return model;
}
