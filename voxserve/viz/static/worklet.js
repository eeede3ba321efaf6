// The mixer on the browser's audio thread, which neither the page nor the kernel can hold up.
import { Mixer } from "./mixer.js";

const STATUS_EVERY_S = 0.1;

class VoxservePlayer extends AudioWorkletProcessor {
  constructor() {
    super();
    this.mixer = new Mixer(sampleRate);
    this.reported = 0;
    this.port.onmessage = (event) => this.mixer.handle(event.data);
  }

  process(_inputs, outputs) {
    const out = outputs[0][0];
    const events = this.mixer.render(out, currentTime);
    if (events.length || currentTime - this.reported >= STATUS_EVERY_S) {
      this.reported = currentTime;
      this.port.postMessage({ events, streams: this.mixer.status() });
    }
    return true;
  }
}

registerProcessor("voxserve-player", VoxservePlayer);
