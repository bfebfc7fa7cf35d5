/** Multipart forms as clients send them, and as the service reads them. */

export interface FormPart {
  readonly name: string;
  readonly filename?: string;
  readonly contentType?: string;
  readonly body: Buffer;
}

export const formBody = (boundary: string, parts: readonly FormPart[]): Buffer =>
  Buffer.concat([
    ...parts.flatMap(({ name, filename, contentType, body }) => [
      Buffer.from(
        `--${boundary}\r\nContent-Disposition: form-data; name="${name}"` +
          `${filename === undefined ? '' : `; filename="${filename}"`}\r\n` +
          `${contentType === undefined ? '' : `Content-Type: ${contentType}\r\n`}\r\n`,
      ),
      body,
      Buffer.from('\r\n'),
    ]),
    Buffer.from(`--${boundary}--\r\n`),
  ]);

/** Parts of a form by the letter of RFC 2046: headers as text, body as bytes. */
export function literalParts(
  boundary: string,
  form: Buffer,
): { readonly head: string; readonly body: Buffer }[] {
  const text = form.toString('latin1');
  return text
    .split(`--${boundary}\r\n`)
    .slice(1)
    .map((part) => {
      const [head, ...rest] = part.replace(new RegExp(`\r\n(--${boundary}--\r\n)?$`), '').split('\r\n\r\n');
      return { head: head!, body: Buffer.from(rest.join('\r\n\r\n'), 'latin1') };
    });
}
