// Outline of the audio received for the newest stream: what was played, chunk borders, play head.

const PEAK_S = 0.02;
const SHOWN_S = 12; // longer streams scroll

export class Wave {
  constructor() {
    this.stream = null;
    this.highlight = null; // {stream, chunk} the user points at in the timeline
    this.clear();
  }

  clear() {
    this.peaks = [];
    this.borders = []; // {chunk, from_s, to_s, late}
    this.received_s = 0;
    this.played_s = 0;
    this.playedAtMs = 0;
  }

  add(message, samples, rateHz) {
    if (message.stream !== this.stream) {
      this.stream = message.stream;
      this.clear();
    }
    const step = Math.round(PEAK_S * rateHz);
    for (let at = 0; at < samples.length; at += step) {
      let peak = 0;
      for (let i = at; i < Math.min(at + step, samples.length); i += 1) {
        peak = Math.max(peak, Math.abs(samples[i]));
      }
      this.peaks.push({ time_s: this.received_s + at / rateHz, peak });
    }
    const to_s = this.received_s + samples.length / rateHz;
    const { chunk, late } = message;
    this.borders.push({ chunk, late, from_s: this.received_s, to_s });
    this.received_s = to_s;
  }

  progress(streams) {
    const mine = streams.find((s) => s.stream === this.stream);
    // A stream that is gone from the report has been played to its end.
    this.played_s = mine ? mine.played_s : this.received_s;
  }

  draw(canvas) {
    const { clientWidth: width, clientHeight: height } = canvas;
    if (!width || !height) return;
    const ratio = globalThis.devicePixelRatio || 1;
    canvas.width = width * ratio;
    canvas.height = height * ratio;
    const g = canvas.getContext("2d");
    g.scale(ratio, ratio);
    const css = getComputedStyle(canvas);
    const text = css.getPropertyValue("--jp-ui-font-color1") || "#222";
    const faint = css.getPropertyValue("--jp-ui-font-color3") || "#999";
    const shown = Math.max(SHOWN_S, 0);
    const from = Math.max(0, this.received_s - shown);
    const x = (time) => ((time - from) / shown) * width;
    const middle = height / 2;
    for (const b of this.borders) {
      if (this.highlight && this.highlight.stream === this.stream && this.highlight.chunk === b.chunk) {
        g.fillStyle = "rgba(86, 180, 233, 0.35)";
        g.fillRect(x(b.from_s), 0, x(b.to_s) - x(b.from_s), height);
      }
      g.fillStyle = b.late ? "#D55E00" : faint;
      g.fillRect(x(b.from_s), 0, b.late ? 2 : 1, height);
    }
    for (const { time_s, peak } of this.peaks) {
      if (time_s < from) continue;
      const half = Math.max(0.5, peak * 1.4 * middle);
      g.fillStyle = time_s < this.played_s ? "#009E73" : faint;
      g.fillRect(x(time_s), middle - half, Math.max(1, x(from + PEAK_S) - 0.6), 2 * half);
    }
    if (this.received_s) {
      g.fillStyle = text;
      g.fillRect(x(this.played_s), 0, 2, height);
    }
  }
}
