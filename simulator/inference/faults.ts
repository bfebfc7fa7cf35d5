/**
 * The faults of the inference side, and how a request gets them. The name of its model can ask for them, as
 * in `sim-20x5+fault=flip_tag:3+fault-once=no_secret`; the client passes that name on unchanged. Or a test, a
 * flag or the control endpoint sets `inference` or `inference-once` to `flip_tag:3+gzip`. `once` means: by
 * name, not again for the retry of the same request; by switch, for the next request with a body.
 */
import type { IncomingMessage } from 'node:http';
import { PrivatemodeError } from '../../lib/errors.ts';
import { nearest } from '../../lib/text.ts';
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

export interface ArmedFault extends Intervention {
  /** Name and arguments, as the request or the switch gave them. */
  readonly asked: string;
}

const isFaultName = (name: string): name is InferenceFaultName => Object.hasOwn(INFERENCE_FAULTS, name);

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

function suggestion(name: string): string {
  const meant = nearest(name.replaceAll('-', '_'), Object.keys(INFERENCE_FAULTS));
  return meant === undefined ? '' : `: write ${meant}`;
}

/** `name` or `name:first,second`. Throws Rejection (400) for an unknown name. */
export function armFault(asked: string): ArmedFault {
  const [name = '', args = ''] = asked.split(/:(.*)/s, 2);
  if (!isFaultName(name)) throw new Rejection(400, `there is no fault named ${name}${suggestion(name)}`);
  return { asked, ...INFERENCE_FAULTS[name].arm(argumentsOf(args)) };
}

/** The model name without the faults that it asks for. */
export const baseModel = (model: string): string => model.split('+fault', 1)[0]!;

/**
 * The attempts of one request differ only in the attempt number at the end of their ids
 * (docs/protocol/inference.md 2).
 */
const withoutAttempt = (requestId: string): string => requestId.replace(/_\d+$/, '');

/** How many request ids to remember: enough for all requests whose retry may still come. */
const REMEMBERED_REQUESTS = 10_000;

const listed = (text: string | undefined): string[] =>
  text === undefined || text === '' ? [] : text.split('+');

/**
 * Makes the function that picks the faults of a request. It remembers the requests that have got their `once`
 * faults. The function throws Rejection for an unknown fault.
 */
export function createFaultPicker(
  faults: Faults,
): (request: IncomingMessage, endpoint: Endpoint) => ArmedFault[] {
  const served = new Set<string>();

  const isFirstAttempt = (request: IncomingMessage): boolean => {
    const id = withoutAttempt(String(request.headers[PROTOCOL_HEADERS.requestId]));
    if (served.has(id)) return false;
    served.add(id);
    if (served.size > REMEMBERED_REQUESTS) served.delete(served.values().next().value!);
    return true;
  };

  return (request, endpoint) => {
    const asked = listed(faults.get('inference'));
    // Most faults have no effect on the lists of models, and clients ask for these between other requests.
    if (endpoint.body !== 'none') {
      asked.push(...listed(faults.get('inference-once')));
      faults.delete('inference-once');
    }

    const model = String(request.headers[PROTOCOL_HEADERS.targetModel] ?? '');
    const once: string[] = [];
    for (const item of model.split('+').slice(1)) {
      if (item.startsWith('fault=')) asked.push(item.slice('fault='.length));
      if (item.startsWith('fault-once=')) once.push(item.slice('fault-once='.length));
    }
    if (once.length > 0 && isFirstAttempt(request)) asked.push(...once);
    return asked.map(armFault);
  };
}
