// Outline of one stream's audio: what was played, chunk borders, stalls, play head.
import { COLOURS } from "./colours.js";
import { hourglass, triangle } from "./shapes.js";

const PEAK_S = 0.02;
const SHOWN_S = 8; // longer streams scroll
const MARK = 5; // half the size of a stall's triangle, pixels

export class Wave {
  constructor() {
    this.peaks = [];
    this.chunks = []; // {index, from_s, to_s, stall_s}
    this.hostStalls = []; // indexes of chunks that the host made late
    this.dry = []; // seconds of audio at which the listener had nothing to play
    this.received_s = 0;
    this.played_s = 0;
  }

  /** Takes in a message's samples; `chunks` says [index, samples, stall_s] of each in it. */
  add(chunks, samples, rateHz) {
    const step = Math.round(PEAK_S * rateHz);
    for (let at = 0; at < samples.length; at += step) {
      let peak = 0;
      for (let i = at; i < Math.min(at + step, samples.length); i += 1) {
        peak = Math.max(peak, Math.abs(samples[i]));
      }
      this.peaks.push({ time_s: this.received_s + at / rateHz, peak });
    }
    let from_s = this.received_s;
    for (const [index, count, stall_s] of chunks) {
      const to_s = from_s + count / rateHz;
      this.chunks.push({ index, from_s, to_s, stall_s });
      from_s = to_s;
    }
    this.received_s += samples.length / rateHz;
  }

  /** How many chunks came too late because of [the server, the host]. */
  get stalls() {
    const late = this.chunks.filter((c) => c.stall_s > 0);
    const ofHost = late.filter((c) => this.hostStalls.includes(c.index)).length;
    return [late.length - ofHost, ofHost];
  }

  /** `chunk`: index the user points at in the timeline, or null. */
  draw(canvas, chunk) {
    const { clientWidth: width, clientHeight: height } = canvas;
    if (!width || !height) return;
    const ratio = globalThis.devicePixelRatio || 1;
    if (canvas.width !== Math.round(width * ratio)) canvas.width = Math.round(width * ratio);
    if (canvas.height !== Math.round(height * ratio)) canvas.height = Math.round(height * ratio);
    const g = canvas.getContext("2d");
    g.setTransform(ratio, 0, 0, ratio, 0, 0);
    g.clearRect(0, 0, width, height);
    const css = getComputedStyle(canvas);
    const text = css.getPropertyValue("--jp-ui-font-color1") || "#222";
    const faint = css.getPropertyValue("--jp-ui-font-color3") || "#999";
    const from = Math.max(0, this.received_s - SHOWN_S);
    const x = (time) => ((time - from) / SHOWN_S) * width;
    for (const c of this.chunks) {
      if (c.index === chunk) {
        g.fillStyle = "rgba(86, 180, 233, 0.35)";
        g.fillRect(x(c.from_s), 0, x(c.to_s) - x(c.from_s), height);
      }
      g.fillStyle = faint;
      g.globalAlpha = 0.6;
      g.fillRect(x(c.from_s), 0, 1, height);
      g.globalAlpha = 1;
    }
    this.drawPeaks(g, x, from, height, faint);
    for (const c of this.chunks) {
      if (!c.stall_s) continue;
      if (this.hostStalls.includes(c.index)) hourglass(g, x(c.from_s), MARK + 1, MARK, text);
      else triangle(g, x(c.from_s), MARK + 1, MARK, COLOURS.stall, true);
    }
    for (const at_s of this.dry) triangle(g, x(at_s), height - MARK - 1, MARK, COLOURS.heard, false);
    if (this.received_s) {
      g.fillStyle = text;
      g.fillRect(x(this.played_s), 0, 2, height);
    }
  }

  drawPeaks(g, x, from, height, faint) {
    const middle = height / 2;
    const bar = Math.max(1, x(from + PEAK_S) - 0.6);
    for (const { time_s, peak } of this.peaks) {
      if (time_s < from) continue;
      const half = Math.max(0.5, Math.min(1, peak * 1.4) * (middle - 1));
      g.fillStyle = time_s < this.played_s ? COLOURS.codec : faint;
      g.fillRect(x(time_s), middle - half, bar, 2 * half);
    }
  }
}
