// Plays streams of PCM out of queues and counts what a listener notices. No DOM and no audio API:
// the worklet, the fallback without a worklet, and node's tests all run this.

const FADE_S = 0.01; // a mute or solo pressed while it speaks must not click
const ATTACK = 16; // samples over which the sum is turned down when it would clip
const RELEASE_S = 0.2;

/** One stream: waits for its prebuffer, plays, and says when it ran dry. */
class Voice {
  constructor(gain) {
    this.queue = [];
    this.offset = 0; // samples of queue[0] already played
    this.buffered = 0; // samples
    this.played = 0; // samples
    this.underruns = 0;
    this.silent_s = 0; // all gaps together
    this.isPlaying = false;
    this.hasEnded = false; // nothing follows what is queued
    this.dryAt = null; // audio clock time it ran dry
    this.gain = gain;
    this.wantedGain = gain;
    this.tap = [];
  }

  push(samples) {
    this.queue.push(samples);
    this.buffered += samples.length;
  }

  /** Adds up to out.length samples into `out`; returns how many. */
  read(out, keepTap, fadeStep) {
    let at = 0;
    while (at < out.length && this.queue.length) {
      const head = this.queue[0];
      const count = Math.min(out.length - at, head.length - this.offset);
      for (let i = 0; i < count; i += 1) {
        if (this.gain !== this.wantedGain) this.fade(fadeStep);
        out[at + i] += this.gain * head[this.offset + i];
      }
      if (keepTap) this.tap.push(out.slice(at, at + count));
      at += count;
      this.offset += count;
      if (this.offset === head.length) {
        this.queue.shift();
        this.offset = 0;
      }
    }
    this.buffered -= at;
    this.played += at;
    return at;
  }

  fade(step) {
    const left = this.wantedGain - this.gain;
    this.gain = Math.abs(left) <= step ? this.wantedGain : this.gain + Math.sign(left) * step;
  }
}

/** All streams of a player, summed. */
export class Mixer {
  constructor(rateHz) {
    this.rateHz = rateHz;
    this.voices = new Map();
    this.over = new Set(); // streams played to the end or stopped: nothing more is taken for them
    this.prebuffer_s = 0.1;
    this.keepTap = false;
    this.gains = new Map(); // kept apart: a gain can be set before its stream starts
    this.level = 1;
  }

  /** A message from the page: set, gain, pcm, end, stop. */
  handle(message) {
    const { type, stream } = message;
    if (type === "set") {
      this.prebuffer_s = message.prebuffer_s ?? this.prebuffer_s;
      this.keepTap = message.tap ?? this.keepTap;
    } else if (type === "gain") {
      this.gains.set(stream, message.gain);
      if (this.voices.has(stream)) this.voices.get(stream).wantedGain = message.gain;
    } else if (type === "stop") {
      this.voices.delete(stream);
      this.over.add(stream);
    } else if (!this.over.has(stream)) {
      const voice = this.voice(stream);
      if (type === "pcm") voice.push(message.samples);
      if (type === "end" || message.end) voice.hasEnded = true;
    }
  }

  voice(stream) {
    if (!this.voices.has(stream)) this.voices.set(stream, new Voice(this.gains.get(stream) ?? 1));
    return this.voices.get(stream);
  }

  /** Fills `out`, which is played at audio clock time `time_s`; returns what happened. */
  render(out, time_s) {
    out.fill(0);
    const events = [];
    for (const [stream, voice] of this.voices) {
      for (const event of this.play(voice, out, time_s)) events.push({ stream, ...event });
      if (!voice.isDone) continue;
      this.voices.delete(stream);
      this.over.add(stream);
    }
    this.limit(out);
    return events;
  }

  play(voice, out, time_s) {
    const events = [];
    const isFilled = voice.buffered >= this.prebuffer_s * this.rateHz || voice.hasEnded;
    if (!voice.isPlaying && voice.buffered > 0 && isFilled) {
      voice.isPlaying = true;
      const gap_s = voice.dryAt === null ? 0 : time_s - voice.dryAt;
      voice.silent_s += gap_s;
      events.push({ kind: voice.dryAt === null ? "start" : "resume", gap_s });
      voice.dryAt = null;
    }
    if (voice.isPlaying) {
      const count = voice.read(out, this.keepTap, 1 / (FADE_S * this.rateHz));
      if (count < out.length && !voice.hasEnded) {
        voice.isPlaying = false;
        voice.underruns += 1;
        voice.dryAt = time_s + count / this.rateHz;
        events.push({ kind: "underrun", at_s: voice.played / this.rateHz });
      }
    }
    if (voice.hasEnded && voice.buffered === 0) {
      voice.isDone = true;
      const { underruns, silent_s } = voice;
      const played = voice.played;
      events.push({ kind: "done", played, underruns, silent_s, tap: joined(voice.tap) });
    }
    return events;
  }

  /** Several voices can add up to more than full scale: turns the sum down while they do. */
  limit(out) {
    let peak = 1;
    for (const value of out) peak = Math.max(peak, Math.abs(value));
    const before = this.level;
    const isLoud = 1 / peak < before;
    this.level = isLoud ? 1 / peak : Math.min(1 / peak, before + out.length / (RELEASE_S * this.rateHz));
    if (before === 1 && this.level === 1) return; // one voice alone is played bit by bit
    const ramp = isLoud ? ATTACK : out.length;
    for (let i = 0; i < out.length; i += 1) {
      const level = before + (this.level - before) * Math.min(1, i / ramp);
      out[i] = Math.max(-1, Math.min(1, level * out[i]));
    }
  }

  status() {
    return [...this.voices].map(([stream, voice]) => ({
      stream,
      buffered_s: voice.buffered / this.rateHz,
      played_s: voice.played / this.rateHz,
      underruns: voice.underruns,
      silent_s: voice.silent_s,
      is_playing: voice.isPlaying,
    }));
  }
}

function joined(parts) {
  const all = new Float32Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return all;
}

/** Little-endian int16 to float32 in [-1, 1): exact, so what is played can be compared. */
export function floats(view) {
  const out = new Float32Array(view.byteLength >> 1);
  for (let i = 0; i < out.length; i += 1) out[i] = view.getInt16(2 * i, true) / 32768;
  return out;
}
