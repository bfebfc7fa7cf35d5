/**
 * The faults of the inference side. A request asks for them by the name of its model,
 * `sim-20x5+fault=flip_tag:3+fault-once=no_secret`, which reaches the server as it is; or a test, a flag or
 * the control endpoint sets `inference` / `inference-once` to `flip_tag:3+gzip`. `once` means: not again for
 * the retry of the same request (by name), or not for the next request (by switch).
 */
import type { IncomingMessage } from 'node:http';
import { PrivatemodeError } from '../../lib/errors.ts';
import type { Faults } from '../faults.ts';
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
  /** As asked for: name and arguments. */
  readonly asked: string;
}

const isFaultName = (name: string): name is InferenceFaultName => Object.hasOwn(INFERENCE_FAULTS, name);

/** Throws config_invalid where a text such as `flip_tag:3+gzip` names a fault that does not exist. */
export function checkFaults(text: string): void {
  for (const asked of listed(text)) {
    const [name = ''] = asked.split(':', 1);
    if (!isFaultName(name))
      throw new PrivatemodeError(
        'config_invalid',
        `there is no fault of inference named ${name}; --help lists them`,
      );
  }
}

/** `name` or `name:first,second`. Throws Rejection (400) for an unknown name. */
export function armFault(asked: string): ArmedFault {
  const [name = '', args = ''] = asked.split(/:(.*)/s, 2);
  if (!isFaultName(name)) throw new Rejection(400, `there is no fault named ${name}`);
  return { asked, ...INFERENCE_FAULTS[name].arm(argumentsOf(args)) };
}

/** The model name without the faults it asks for. */
export const baseModel = (model: string): string => model.split('+fault', 1)[0]!;

/** Retries of one request differ in the attempt at the end of their id (docs/protocol/inference.md 2). */
const withoutAttempt = (requestId: string): string => requestId.replace(/_\d+$/, '');

/** Enough to remember every request whose retry may still come. */
const REMEMBERED_REQUESTS = 10_000;

const listed = (text: string | undefined): string[] =>
  text === undefined || text === '' ? [] : text.split('+');

/**
 * Picks the faults of a request, and remembers which were due once. Throws Rejection for one that does not
 * exist.
 */
export function createFaultPicker(faults: Faults): (request: IncomingMessage) => ArmedFault[] {
  const served = new Set<string>();

  const isFirstAttempt = (request: IncomingMessage): boolean => {
    const id = withoutAttempt(String(request.headers[PROTOCOL_HEADERS.requestId]));
    if (served.has(id)) return false;
    served.add(id);
    if (served.size > REMEMBERED_REQUESTS) served.delete(served.values().next().value!);
    return true;
  };

  return (request) => {
    const asked = [...listed(faults.get('inference')), ...listed(faults.get('inference-once'))];
    faults.delete('inference-once');

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
