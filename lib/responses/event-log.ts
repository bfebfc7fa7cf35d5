/** Events of a stream as they go out, numbered without gaps. */
export class EventLog {
  #out = '';
  #sequence = 0;

  /** The one place where events are made. `members` is JSON text without the braces. */
  write(type: string, members: string): void {
    this.#out += `event: ${type}\ndata: {"type":"${type}","sequence_number":${this.#sequence},${members}}\n\n`;
    this.#sequence += 1;
  }

  event(type: string, members: object): void {
    this.write(type, JSON.stringify(members).slice(1, -1));
  }

  /** A line that means nothing, and keeps the connection alive. */
  comment(): void {
    this.#out += ':\n\n';
  }

  /** The text since the last time. */
  take(): string {
    const text = this.#out;
    this.#out = '';
    return text;
  }

  /** Does what writes events; if it throws, none of them was written. */
  atOnce(writes: () => void): void {
    const [out, sequence] = [this.#out, this.#sequence];
    try {
      writes();
    } catch (thrown) {
      this.#out = out;
      this.#sequence = sequence;
      throw thrown;
    }
  }
}
