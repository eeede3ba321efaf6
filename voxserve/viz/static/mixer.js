// Plays streams of PCM out of queues and counts what a listener notices. No DOM and no audio API:
// the worklet, the fallback without a worklet, and node's tests all run this.

/** One stream: waits for its prebuffer, plays, and says when it ran dry. */
class Voice {
  constructor() {
    this.queue = [];
    this.offset = 0; // samples of queue[0] already played
    this.buffered = 0; // samples
    this.played = 0; // samples
    this.underruns = 0;
    this.silent_s = 0; // all gaps together
    this.isPlaying = false;
    this.hasEnded = false; // nothing follows what is queued
    this.dryAt = null; // audio clock time it ran dry
    this.gain = 1;
    this.tap = [];
  }

  push(samples) {
    this.queue.push(samples);
    this.buffered += samples.length;
  }

  /** Adds up to out.length samples into `out`; returns how many. */
  read(out, keepTap) {
    let at = 0;
    while (at < out.length && this.queue.length) {
      const head = this.queue[0];
      const count = Math.min(out.length - at, head.length - this.offset);
      for (let i = 0; i < count; i += 1) out[at + i] += this.gain * head[this.offset + i];
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
}

/** All streams of a player, summed. */
export class Mixer {
  constructor(rateHz) {
    this.rateHz = rateHz;
    this.voices = new Map();
    this.prebuffer_s = 0.1;
    this.keepTap = false;
    this.gains = new Map(); // kept apart: a gain can be set before its stream starts
  }

  /** A message from the page: set, pcm, end, stop. */
  handle(message) {
    const { type, stream } = message;
    if (type === "set") {
      this.prebuffer_s = message.prebuffer_s ?? this.prebuffer_s;
      this.keepTap = message.tap ?? this.keepTap;
    } else if (type === "gain") {
      this.gains.set(stream, message.gain);
      if (this.voices.has(stream)) this.voices.get(stream).gain = message.gain;
    } else if (type === "pcm") {
      this.voice(stream).push(message.samples);
      if (message.end) this.voice(stream).hasEnded = true;
    } else if (type === "end" && this.voices.has(stream)) {
      this.voices.get(stream).hasEnded = true;
    } else if (type === "stop") {
      this.voices.delete(stream);
    }
  }

  voice(stream) {
    if (!this.voices.has(stream)) {
      const voice = new Voice();
      voice.gain = this.gains.get(stream) ?? 1;
      this.voices.set(stream, voice);
    }
    return this.voices.get(stream);
  }

  /** Fills `out`, which is played at audio clock time `time_s`; returns what happened. */
  render(out, time_s) {
    out.fill(0);
    const events = [];
    for (const [stream, voice] of this.voices) {
      for (const event of this.play(voice, out, time_s)) events.push({ stream, ...event });
      if (voice.isDone) this.voices.delete(stream);
    }
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
      const count = voice.read(out, this.keepTap);
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

  status() {
    return [...this.voices].map(([stream, voice]) => ({
      stream,
      buffered_s: voice.buffered / this.rateHz,
      played_s: voice.played / this.rateHz,
      underruns: voice.underruns,
      silent_s: voice.silent_s,
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
