/** What the gateway does with the service's lists of models: aliases beside them, and conditions for models that are missing in them. */
import { type AliasTable, createModelAliases } from '../api/model-aliases.ts';
import { idsIn, watchModels } from '../api/model-watch.ts';
import { newRequestId } from '../api/request-id.ts';
import { asPrivatemodeError } from '../errors.ts';
import { requestHeaders } from '../exchange/headers.ts';
import { urlHost } from '../network/addresses.ts';
import { createHttpCall } from '../network/http-call.ts';
import type { Outbound } from '../network/outbound.ts';
import type { ConditionSink } from '../observe/conditions.ts';
import type { GatewayDeps } from './deps.ts';

/** ms between two looks of our own; lists that clients ask for, with --model-alias, are looked at as they pass. */
const INTERVAL = 3_600_000;

interface Settings {
  readonly modelAlias: AliasTable;
  readonly apiEndpoint: { readonly host: string; readonly port: number };
  readonly connectTimeout: number;
  readonly protocolVersion?: string | undefined;
}

export interface ModelListsDeps {
  readonly outbound: Pick<Outbound, 'dispatcher'>;
  readonly log: GatewayDeps['log'];
  readonly conditions: ConditionSink;
  /** The configured key while the service is verified and the gateway serves; undefined: nothing is asked. */
  readonly key: () => string | undefined;
}

/** Asks for lists only with a key of our own: at the start with --model-alias, and every hour. Nothing of a list is authenticated. */
export function createModelLists(settings: Settings, { outbound, log, conditions, key }: ModelListsDeps) {
  const { modelAlias } = settings;
  const ids = { alias: 'alias_without_model', request: 'model_gone' } as const;
  const models = watchModels({
    aliased: new Set(modelAlias.values()),
    gone: (use, of) => conditions.set(ids[use], `the model ${JSON.stringify(of)} is missing`, { of }),
    back: (use, of) => conditions.clear(ids[use], { of }),
  });
  const heard = (body: Uint8Array): void => {
    const listed = idsIn(body);
    if (listed !== undefined) models.listed(listed);
  };
  const aliases =
    modelAlias.size === 0
      ? undefined
      : createModelAliases(modelAlias, {
          onList: heard,
          onReal: (alias) =>
            log.warn({ alias }, 'The service has a model of the name of an alias; requests for it go there'),
          onUnknown(thrown) {
            const { message: reason } = asPrivatemodeError(thrown);
            log.warn({ reason }, 'Which models the service has is not known; aliases win over them for now');
          },
        });
  const look = async (): Promise<void> => {
    const own = key();
    // A service that is away says so elsewhere.
    if (own !== undefined) await listModels(settings, outbound, own).then(heard, () => {});
  };
  const timer = setInterval(look, INTERVAL).unref();
  return {
    /** Other names for models; undefined without --model-alias. */
    aliases,
    /** Models of the service win over aliases. Without a key of its own, lists that pass tell which it has. */
    sessionChanged(): void {
      const own = key();
      if (own !== undefined) void aliases?.ask(() => listModels(settings, outbound, own));
    },
    /** The metrics, with which the models of answered requests are noted. */
    watching: (metrics: GatewayDeps['metrics']): GatewayDeps['metrics'] => ({
      ...metrics,
      observe(observation) {
        const { outcome, stats } = observation;
        if (outcome === 'answered' && stats.model !== undefined) models.used(stats.model);
        metrics.observe(observation);
      },
    }),
    close: (): void => clearInterval(timer),
  };
}

/** The body of the service's list of models. Rejects with the codes of the network. */
async function listModels(
  { apiEndpoint: { host, port }, connectTimeout, protocolVersion }: Settings,
  { dispatcher }: Pick<Outbound, 'dispatcher'>,
  key: string,
): Promise<Uint8Array> {
  const { body } = await createHttpCall(dispatcher)({
    method: 'GET',
    url: `https://${urlHost(host)}:${port}/v1/models`,
    headers: requestHeaders({
      ...{ rawHeaders: [], host: undefined, authorization: `Bearer ${key}`, protocolVersion },
      requestId: newRequestId('proxy'),
    }),
    maxBytes: 1024 * 1024,
    timeout: connectTimeout,
  });
  return body;
}
