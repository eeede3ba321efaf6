// One audio context: the worklet where the page is a secure context, else the same mixer on the
// page's thread, feeding scheduled buffer sources.
import { Held } from "./held.js";
import { Mixer } from "./mixer.js";

const BLOCK_S = 0.1; // fallback: audio per buffer source
const AHEAD_S = 0.3; // fallback: how far ahead they are scheduled
const START_MS = 3000; // a gesture starts sound at once; after so long it never will

export class Sound {
  /** `onReport({events, streams})` is called ten times a second while anything plays. */
  constructor(rateHz, workletSource, onReport, onState) {
    this.rateHz = rateHz;
    this.onReport = onReport;
    this.onState = onState;
    this.isRefused = false; // a gesture did not start it
    this.held = new Held(rateHz); // messages for the mixer while suspended
    this.context = new AudioContext({ sampleRate: rateHz });
    this.context.onstatechange = () => {
      this.isRefused = false;
      this.flush();
      onState();
    };
    this.ready = this.open(workletSource);
  }

  get isRunning() {
    return this.context.state === "running";
  }

  get mode() {
    return this.node ? "worklet" : "buffer sources";
  }

  async open(workletSource) {
    try {
      await this.startWorklet(workletSource);
    } catch {
      this.startFallback(); // no secure context, or a page that forbids scripts from blobs
    }
    this.isOpen = true;
    this.flush();
  }

  async startWorklet(source) {
    const url = URL.createObjectURL(new Blob([source], { type: "text/javascript" }));
    try {
      await this.context.audioWorklet.addModule(url);
    } finally {
      URL.revokeObjectURL(url);
    }
    const options = { numberOfInputs: 0, outputChannelCount: [1] };
    this.node = new AudioWorkletNode(this.context, "voxserve-player", options);
    this.node.port.onmessage = (event) => this.report(event.data);
    this.node.connect(this.context.destination);
  }

  /** Resumes after a user's gesture; browsers refuse sound before one. */
  async enable() {
    clearTimeout(this.starting);
    this.starting = setTimeout(() => {
      this.isRefused = !this.isRunning;
      if (this.isRefused) this.onState();
    }, START_MS);
    await this.context.resume();
    this.flush();
  }

  send(message) {
    if (!this.isOpen || !this.isRunning) return this.held.add(message);
    const transfer = message.samples ? [message.samples.buffer] : [];
    if (this.node) this.node.port.postMessage(message, transfer);
    else this.mixer.handle(message);
  }

  flush() {
    if (this.isOpen && this.isRunning) this.held.take().forEach((message) => this.send(message));
  }

  report(data) {
    if (data.events.length || data.streams.length) this.onReport(data);
  }

  startFallback() {
    this.mixer = new Mixer(this.rateHz);
    let next = 0;
    this.timer = setInterval(() => {
      if (!this.isRunning) return;
      const now = this.context.currentTime;
      next = Math.max(next, now + 0.02);
      const events = [];
      while (next < now + AHEAD_S) {
        const block = this.context.createBuffer(1, BLOCK_S * this.rateHz, this.rateHz);
        events.push(...this.mixer.render(block.getChannelData(0), next));
        const source = this.context.createBufferSource();
        source.buffer = block;
        source.connect(this.context.destination);
        source.start(next);
        next += BLOCK_S;
      }
      this.report({ events, streams: this.mixer.status() });
    }, 50);
  }

  close() {
    clearInterval(this.timer);
    clearTimeout(this.starting);
    this.context.onstatechange = null;
    if (this.context.state !== "closed") this.context.close();
  }
}
