/** Writes the events of a Responses stream, numbered without gaps. */
export class EventLog {
  /** Events written so far; also the number of the next one. */
  events = 0;
  #out = '';

  /** `members`: those after the type and the number, as JSON text without the braces. */
  write(type: string, members: string): void {
    const rest = members && `,${members}`;
    this.#out += `event: ${type}\ndata: {"type":"${type}","sequence_number":${this.events}${rest}}\n\n`;
    this.events += 1;
  }

  event(type: string, members: object): void {
    this.write(type, JSON.stringify(members).slice(1, -1));
  }

  /** Returns the bytes written since the last take. */
  take(before: string): Uint8Array {
    const text = before + this.#out;
    this.#out = '';
    return Buffer.from(text);
  }

  /** Runs `writes`. If it throws, none of the events that it wrote remains. */
  atOnce(writes: () => void): void {
    const [out, events] = [this.#out, this.events];
    try {
      writes();
    } catch (thrown) {
      this.#out = out;
      this.events = events;
      throw thrown;
    }
  }
}
