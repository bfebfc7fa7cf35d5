/** The server's refusal of a request, in clear and marked so (docs/protocol/inference.md 5.6, 11). */
export class Rejection extends Error {
  override readonly name = 'Rejection';
  readonly status: number;

  constructor(status: number, message: string, options?: ErrorOptions) {
    super(message, options);
    this.status = status;
  }
}

/** Escapes `<`, `>` and `&`, as the server's JSON library does (docs/protocol/inference.md 11). */
const escapeMarkup = (json: string): string =>
  json.replace(/[<>&]/g, (character) => `\\u00${character.charCodeAt(0).toString(16)}`);

/** The OpenAI error shape with its empty type, without a line end. */
export const errorBody = (message: string): string =>
  escapeMarkup(JSON.stringify({ error: { message, type: '' } }));

/** Headers of an error that the server sends in clear. */
export const UNENCRYPTED_ERROR_HEADERS = {
  'Content-Type': 'application/json',
  'Privatemode-Encrypted': 'false',
  'X-Content-Type-Options': 'nosniff',
} as const;
