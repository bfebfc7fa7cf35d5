/**
 * Follows the service's lists of models: aliases are offered beside them, and conditions say which models are
 * missing in them.
 */
import { type AliasTable, createModelAliases } from '../api/model-aliases.ts';
import { idsIn, isPlainName, watchModels } from '../api/model-watch.ts';
import { newRequestId } from '../api/request-id.ts';
import { type Clock, every } from '../clock.ts';
import { asPrivatemodeError } from '../errors.ts';
import { requestHeaders } from '../http-rules/headers.ts';
import { urlHost } from '../network/addresses.ts';
import { createControlCall } from '../network/control-call.ts';
import type { Outbound } from '../network/outbound.ts';
import type { ConditionSink } from '../observe/conditions.ts';
import type { GatewayDeps } from './deps.ts';

interface Settings {
  readonly modelAlias: AliasTable;
  readonly apiEndpoint: { readonly host: string; readonly port: number };
  readonly connectTimeout: number;
  readonly protocolVersion?: string | undefined;
}

export interface ModelListsDeps {
  readonly outbound: Pick<Outbound, 'dispatcher'>;
  readonly clock: Clock;
  readonly log: GatewayDeps['log'];
  readonly conditions: ConditionSink;
  /**
   * The configured key while the service is verified and the gateway serves; undefined: the proxy asks for no
   * list.
   */
  readonly key: () => string | undefined;
}

const WITHOUT_MODEL =
  'The service lists no model of the name that an alias stands for; requests for it will fail. Correct --model-alias';
const MOST_SHOWN = 20;

const shown = (listed: ReadonlySet<string>): string =>
  [...listed].filter(isPlainName).slice(0, MOST_SHOWN).join(', ');

/**
 * Asks for lists only with the configured key: at the start with --model-alias, and every hour. Nothing
 * authenticates a list.
 */
export function createModelLists(settings: Settings, deps: ModelListsDeps) {
  const { log, conditions, key, clock } = deps;
  const { modelAlias } = settings;
  const ids = { alias: 'alias_without_model', request: 'model_gone' } as const;
  const models = watchModels({
    aliased: new Set(modelAlias.values()),
    gone: (use, of) => conditions.set(ids[use], `the model ${JSON.stringify(of)} is missing`, { of }),
    back: (use, of) => conditions.clear(ids[use], { of }),
  });
  let isFirst = true;
  const heard = (body: Uint8Array): void => {
    const listed = idsIn(body);
    if (listed === undefined) return;
    for (const [alias, model] of isFirst && listed.size > 0 ? modelAlias : []) {
      if (!listed.has(model)) log.warn({ alias, model, listed: shown(listed) }, WITHOUT_MODEL);
    }
    isFirst = false;
    models.listed(listed);
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
    // If the service cannot be reached, other parts report it.
    if (own !== undefined) await listModels(settings, deps, own).then(aliases?.listed ?? heard, () => {});
  };
  const stopLooking = every(clock, clock.times.modelListInterval, () => void look());
  return {
    /** Other names for models; undefined without --model-alias. */
    aliases,
    /**
     * Asks the service once which models it has, because these win over aliases. Without a configured key,
     * the lists that pass say which models it has.
     */
    sessionChanged(): void {
      const own = key();
      if (own !== undefined) void aliases?.ask(() => listModels(settings, deps, own));
    },
    /** The metrics, extended: they also note the models of answered requests. */
    watching: (metrics: GatewayDeps['metrics']): GatewayDeps['metrics'] => ({
      ...metrics,
      observe(observation) {
        const { outcome, stats } = observation;
        if (outcome === 'answered' && stats.model !== undefined) models.used(stats.model);
        metrics.observe(observation);
      },
    }),
    close: stopLooking,
  };
}

/** The body of the service's list of models. Rejects with the codes of the network. */
async function listModels(
  { apiEndpoint: { host, port }, connectTimeout, protocolVersion }: Settings,
  { outbound, clock }: Pick<ModelListsDeps, 'outbound' | 'clock'>,
  key: string,
): Promise<Uint8Array> {
  const { body } = await createControlCall(
    outbound.dispatcher,
    clock,
  )({
    method: 'GET',
    url: `https://${urlHost(host)}:${port}/v1/models`,
    headers: requestHeaders({
      rawHeaders: [],
      host: undefined,
      authorization: `Bearer ${key}`,
      protocolVersion,
      requestId: newRequestId('proxy'),
    }),
    maxBytes: 1024 * 1024,
    timeout: connectTimeout,
  });
  return body;
}
