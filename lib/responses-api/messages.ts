/** The conversation of a request, in the order in which a chat completion takes it. */
import { asApplication, type ChatContent, contentAt, joined, textAt } from './content.ts';
import type { Placed } from './request-refusal.ts';
import { originAt, type ToolOrigin, type Tools } from './tools.ts';

/** A turn of the assistant. One message has its texts and calls, and each call's result has a message. */
class Turn {
  readonly reasoning: string[] = [];
  readonly texts: ChatContent[] = [];
  readonly calls: object[] = [];
  readonly results: object[] = [];

  /** Adds a later turn that turned out to be a part of this turn. */
  join(later: Turn): void {
    for (const list of ['reasoning', 'texts', 'calls', 'results'] as const)
      this[list].push(...(later[list] as never[]));
  }

  messages(): object[] {
    const thought = this.reasoning.join('\n');
    const isSilent = this.texts.length === 0 && this.calls.length > 0;
    const message = {
      role: 'assistant',
      ...(this.reasoning.length > 0 && { reasoning: thought, reasoning_content: thought }),
      ...(!isSilent && { content: joined(this.texts) }),
      ...(this.calls.length > 0 && { tool_calls: this.calls }),
    };
    return [message, ...this.results];
  }
}

/**
 * Turns items, which are added in their order, into messages. In a chat completion the results of calls must
 * directly follow the one message that has the calls, but items come in other orders. So what the assistant
 * says or calls until the last result of a turn joins that turn. What others say before that result moves
 * behind the results. The leading instructions become one message.
 */
export class Messages {
  readonly tools: Tools;
  /** Texts of the instructions that stand before everything else. */
  readonly instructions: string[] = [];
  readonly #entries: (Turn | object)[] = [];
  /** For each call without a result, by the call's id: the index of the call's turn in `#entries`. */
  readonly #waiting = new Map<string, number>();
  #reasoning: string[] = []; // belongs to the next text or call of the assistant

  constructor(tools: Tools) {
    this.tools = tools;
  }

  /** All messages of the chat request. */
  list(): object[] {
    const leading = this.instructions.length > 0;
    const system = leading ? [{ role: 'system', content: this.instructions.join('\n\n') }] : [];
    const others = this.#entries.map((entry) => (entry instanceof Turn ? entry.messages() : entry));
    return [...system, ...others.flat()];
  }

  message(item: Placed): void {
    const role = item.at('role');
    const content = item.at('content');
    const isLeading = this.#entries.length === 0 && this.#reasoning.length === 0;
    if (role.value === 'user') this.#add({ role: 'user', content: contentAt(content) });
    else if (role.value === 'assistant') this.#say(contentAt(content));
    else if (role.value !== 'system' && role.value !== 'developer') {
      throw role.invalid('"user", "assistant", "system" or "developer"');
    } else if (isLeading) this.instructions.push(textAt(content));
    else this.#add({ role: 'user', content: asApplication(contentAt(content)) });
  }

  /** Adds reasoning to a turn whose calls wait for results. Without such a turn, adds it to the next one. */
  reason(text: string): void {
    const turn = this.#open();
    if (turn !== undefined && turn.calls.length > 0) turn.reasoning.push(text);
    else this.#reasoning.push(text);
  }

  call(item: Placed, kind: ToolOrigin['kind'], args: string): void {
    const id = item.at('call_id').word;
    const name = this.tools.nameOf(kind === 'tool_search' ? item : item.at('name'), originAt(item, kind));
    this.#goOn(this.#open()).calls.push({ id, type: 'function', function: { name, arguments: args } });
    this.#waiting.set(id, this.#entries.length - 1);
  }

  /** Adds the result of a call. A result without a call, and a second result, stay where they stand. */
  output(item: Placed, content: ChatContent): void {
    const id = item.at('call_id').word;
    const message = { role: 'tool', tool_call_id: id, content };
    const at = this.#waiting.get(id);
    if (at === undefined) {
      this.#add(message);
      return;
    }
    const turn = this.#entries[at] as Turn;
    for (const entry of this.#entries.splice(at + 1)) {
      if (entry instanceof Turn) turn.join(entry);
      else this.#entries.push(entry);
    }
    turn.reasoning.push(...this.#reasoning.splice(0));
    turn.results.push(message);
    this.#waiting.delete(id);
    for (const [other, place] of this.#waiting) this.#waiting.set(other, Math.min(place, at));
  }

  #add(message: object): void {
    this.#entries.push(message);
    this.#reasoning = [];
  }

  /** The last entry, if it is a turn without results. */
  #open(): Turn | undefined {
    const last = this.#entries.at(-1);
    return last instanceof Turn && last.results.length === 0 ? last : undefined;
  }

  /** Adds a text of the assistant. Two texts without a call stay two messages; an empty text adds nothing. */
  #say(content: ChatContent): void {
    const isEmpty = content.length === 0;
    const open = this.#open();
    const joins = isEmpty || open?.texts.length === 0 || open?.calls.length !== 0;
    const turn = this.#goOn(joins ? open : undefined);
    if (!isEmpty) turn.texts.push(content);
  }

  /** Returns the turn to which the assistant adds, with the pending reasoning. The default is a new turn. */
  #goOn(open?: Turn): Turn {
    const turn = open ?? new Turn();
    if (open === undefined) this.#entries.push(turn);
    turn.reasoning.push(...this.#reasoning.splice(0));
    return turn;
  }
}
