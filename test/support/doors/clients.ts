/** Clients of the gateway, as its configuration makes them. */
import type { Client } from '../../../lib/access/authenticate-client.ts';
import type { Limits } from '../../../lib/access/clients-file.ts';

const NONE: Limits = { requestsPerMinute: undefined, tokensPerDay: undefined, maxConcurrent: undefined };

export interface ClientMembers extends Partial<Omit<Client, 'limits'>> {
  readonly limits?: Partial<Limits>;
}

/** A client that may do everything and has no token, no key and no salt, except what is given. */
export const clientOf = ({ limits, ...members }: ClientMembers = {}): Client => ({
  ...{ name: 'ann', tokens: [], expires: undefined, models: undefined, endpoints: undefined },
  ...{ apiKey: undefined, sharedSalt: undefined, mixSalt: undefined },
  limits: { ...NONE, ...limits },
  ...members,
});
