/**
 * The faults of the inference side, and how a request gets them. The name of its model can ask for them, as
 * in `sim-20x5+fault=flip_tag:3+fault-once=no_secret`; the client passes that name on unchanged. Or a test, a
 * flag or the control endpoint sets `inference` or `inference-once` to `flip_tag:3+gzip`. `once` means: by
 * name, not again for the retry of the same request; by switch, for the next request with a body.
 */
import type { IncomingMessage } from 'node:http';
import { PrivatemodeError } from '../../lib/errors.ts';
import type { Faults } from '../faults.ts';
import type { Endpoint } from './endpoints.ts';
import { DELIVERY_FAULTS } from './faults/delivery.ts';
import { EVENT_FAULTS } from './faults/events.ts';
import { argumentsOf, type FaultRow, type Intervention } from './faults/intervention.ts';
import { MESSAGE_FAULTS } from './faults/messages.ts';
import { RESPONSE_FAULTS } from './faults/responses.ts';
import { Rejection } from './rejection.ts';
import { PROTOCOL_HEADERS } from './wire-rules.ts';

/** Every fault by name. */
export const INFERENCE_FAULTS = {
  ...RESPONSE_FAULTS,
  ...MESSAGE_FAULTS,
  ...EVENT_FAULTS,
  ...DELIVERY_FAULTS,
} satisfies Record<string, FaultRow>;

export type InferenceFaultName = keyof typeof INFERENCE_FAULTS;

export interface ArmedFault extends Intervention, Pick<FaultRow, 'streams'> {
  /** Name and arguments, as the request or the switch gave them. */
  readonly asked: string;
}

/** Throws config_invalid if a text such as `flip_tag:3+gzip` names an unknown fault or a wrong argument. */
export function checkFaults(text: string): void {
  for (const asked of listed(text)) {
    try {
      armFault(asked);
    } catch (thrown) {
      if (!(thrown instanceof Rejection)) throw thrown;
      throw new PrivatemodeError('config_invalid', `fault ${asked}: ${thrown.message}; --help lists all`);
    }
  }
}

/** `name` or `name:first,second`. Throws Rejection (400) for an unknown name or a wrong argument. */
export function armFault(asked: string): ArmedFault {
  const [name = '', args = ''] = asked.split(/:(.*)/s, 2);
  if (!Object.hasOwn(INFERENCE_FAULTS, name)) throw new Rejection(400, `there is no fault named ${name}`);
  const { arm, streams } = INFERENCE_FAULTS[name as InferenceFaultName] as FaultRow;
  return { asked, ...(streams && { streams }), ...arm(argumentsOf(args)) };
}

/** The model name without the faults that it asks for. */
export const baseModel = (model: string): string => model.split('+fault', 1)[0]!;

const listed = (text = ''): string[] => (text === '' ? [] : text.split('+'));

/** Remembers the texts that it is asked about, the last `limit` of them, and tells whether one is new. */
export function remembering(limit: number): (text: string) => boolean {
  const seen = new Set<string>();
  return (text) => {
    if (seen.has(text)) return false;
    seen.add(text);
    if (seen.size > limit) seen.delete(seen.values().next().value!);
    return true;
  };
}

/** Makes the function that picks the faults of a request. It throws Rejection for an unknown fault. */
export function createFaultPicker(
  faults: Faults,
): (request: IncomingMessage, endpoint: Endpoint) => ArmedFault[] {
  const isFirst = remembering(10_000); // enough for all requests whose retry may still come

  return (request, endpoint) => {
    const asked = listed(faults.get('inference'));
    // Most faults have no effect on the lists of models, and clients ask for these between other requests.
    if (endpoint.body !== 'none') {
      asked.push(...listed(faults.get('inference-once')));
      faults.delete('inference-once');
    }
    const [, ...named] = String(request.headers[PROTOCOL_HEADERS.targetModel] ?? '').split('+');
    const those = (prefix: string): string[] =>
      named.filter((item) => item.startsWith(prefix)).map((item) => item.slice(prefix.length));
    const once = those('fault-once=');
    // Attempts of one request differ only in the number at the end of their ids.
    const id = String(request.headers[PROTOCOL_HEADERS.requestId]).replace(/_\d+$/, '');
    asked.push(...those('fault='), ...(once.length > 0 && isFirst(id) ? once : []));
    return asked.map(armFault);
  };
}
