/** One chat completion, as an application asks a gateway for it. */

export interface AskedChat {
  /** Default: the model that answers with the content of the last message. */
  readonly model?: string;
  readonly content?: string;
  /** If unset, the request does not have the member. */
  readonly stream?: boolean;
  /** If unset, the request has no Authorization. */
  readonly token?: string;
}

/** Asks on a connection of its own. */
export const askChat = (
  { url }: { readonly url: string },
  { model = 'sim-echo', content = 'hello', stream, token }: AskedChat = {},
): Promise<Response> =>
  fetch(`${url}/v1/chat/completions`, {
    method: 'POST',
    headers: {
      'content-type': 'application/json',
      connection: 'close',
      ...(token !== undefined && { authorization: `Bearer ${token}` }),
    },
    body: JSON.stringify({ model, stream, messages: [{ role: 'user', content }] }),
  });
