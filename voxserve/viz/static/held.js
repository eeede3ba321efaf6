// What arrives while the browser does not allow sound yet. No DOM, so that node can test it.

const LIMIT_S = 30;

/** Messages in order. Past half a minute the oldest sound goes: the rest stays whole. */
export class Held {
  constructor(rateHz) {
    this.rateHz = rateHz;
    this.messages = [];
    this.seconds = 0;
    this.skipped_s = 0;
  }

  add(message) {
    if (message.type === "stop") {
      this.messages = this.messages.filter((m) => m.stream !== message.stream);
      this.seconds = this.messages.reduce((sum, m) => sum + this.lengthOf(m), 0);
    }
    this.messages.push(message);
    this.seconds += this.lengthOf(message);
    while (this.seconds > LIMIT_S) this.skip();
  }

  /** Never a hole: what is left of each stream follows on. */
  skip() {
    const at = this.messages.findIndex((m) => m.samples);
    const message = this.messages[at];
    const end = message.end ? [{ type: "end", stream: message.stream }] : [];
    this.messages.splice(at, 1, ...end);
    this.seconds -= this.lengthOf(message);
    this.skipped_s += this.lengthOf(message);
  }

  take() {
    const { messages } = this;
    this.messages = [];
    this.seconds = 0;
    this.skipped_s = 0;
    return messages;
  }

  lengthOf(message) {
    return message.samples ? message.samples.length / this.rateHz : 0;
  }
}
