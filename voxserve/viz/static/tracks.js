// The records of the live view: decodes binary deltas and keeps a window of them. No DOM, so that
// node can test it.

// Columns that are lengths of time; every other "_s" column is an engine time sent minus `t0`.
const LENGTHS = new Set(["audio_s", "slack_s", "stall_s"]);
const NOTED_S = 0.1; // a short delay is noted up to so long after it ended

/** Turns one float32 table (row-major) into objects with absolute times. */
export function decodeRows(buffer, columns, t0) {
  const values = new Float32Array(buffer);
  const isTime = columns.map((name) => name.endsWith("_s") && !LENGTHS.has(name));
  const rows = [];
  for (let at = 0; at + columns.length <= values.length; at += columns.length) {
    const row = {};
    columns.forEach((name, i) => {
      row[name] = isTime[i] ? values[at + i] + t0 : values[at + i];
    });
    rows.push(row);
  }
  return rows;
}

/** An ArrayBuffer of exactly the bytes of a DataView that may share a larger buffer. */
export function ownBytes(view) {
  return view.buffer.slice(view.byteOffset, view.byteOffset + view.byteLength);
}

/** The records of the last `keepS` seconds, in order of arrival. */
export class Tracks {
  constructor(schema, keepS) {
    this.schema = schema;
    this.keepS = keepS;
    this.clear();
  }

  clear() {
    this.spans = [];
    this.chunks = [];
    this.marks = []; // setting and overload changes: {time_s, text}
    this.delays = []; // of the serving thread: [when it ended, seconds]
    this.heard = []; // listener stalls: {time_s, gap_s}
    this.ghost = null; // what would have been: {name, words, spans, chunks, from, to, recorded}
    this.live = []; // the next chunk of every running request, now
    this.now = 0;
  }

  /** Adds one delta message and forgets what is too old to show. */
  add(message, buffers) {
    if (message.reset) this.clear();
    const { spans, chunks, live } = this.schema;
    // No spread: a whole window of a large machine has more records than a call has arguments.
    this.spans = this.spans.concat(decodeRows(ownBytes(buffers[0]), spans, message.t0));
    this.chunks = this.chunks.concat(decodeRows(ownBytes(buffers[1]), chunks, message.t0));
    this.live = decodeRows(ownBytes(buffers[2]), live, 0);
    this.marks.push(...message.marks);
    this.delays.push(...message.delays);
    this.heard.push(...message.heard);
    this.now = message.now;
    const oldest = this.now - this.keepS;
    this.spans = dropWhile(this.spans, (s) => s.end_s < oldest);
    this.chunks = dropWhile(this.chunks, (c) => lastTime(c) < oldest);
    this.marks = dropWhile(this.marks, (m) => m.time_s < oldest);
    this.heard = dropWhile(this.heard, (h) => h.time_s < oldest);
    this.delays = dropWhile(this.delays, ([time]) => time < oldest);
    for (const c of this.chunks) {
      // A delay is noted a moment after the chunks that it made late.
      if (c.stall_s > 0 && (c.busy_s === undefined || c.delivered_s > this.now - 1)) c.busy_s = busyBefore(c, this.delays);
    }
  }

  /** Takes in what would have been, and what was then; without records, there is no ghost. */
  haunt({ name, words, t0 }, buffers) {
    const tables = ([spans, chunks]) => ({
      spans: decodeRows(ownBytes(spans), this.schema.spans, t0),
      chunks: decodeRows(ownBytes(chunks), this.schema.chunks, t0),
    });
    const { spans, chunks } = tables(buffers);
    const from = spans.reduce((least, s) => Math.min(least, s.start_s), Infinity);
    const to = spans.reduce((most, s) => Math.max(most, s.end_s), -Infinity);
    const recorded = tables(buffers.slice(2));
    this.ghost = spans.length ? { name, words, spans, chunks, from, to, recorded } : null;
  }

  /** Whether what would have been reaches into [from, to]. */
  isHaunted(from, to) {
    return Boolean(this.ghost && this.ghost.to >= from && this.ghost.from <= to);
  }

  /** All that is kept, and what came with the ghost and is too old to be kept otherwise. */
  known() {
    if (!this.ghost) return this;
    const { spans, chunks } = this.ghost.recorded;
    const oldest = this.now - this.keepS;
    return {
      spans: spans.filter((s) => s.end_s < oldest).concat(this.spans),
      chunks: chunks.filter((c) => lastTime(c) < oldest).concat(this.chunks),
    };
  }

  /** Records that touch [from, to]. */
  within(from, to) {
    const { spans, chunks } = this.known();
    return {
      spans: spans.filter((s) => s.end_s >= from && s.start_s <= to),
      chunks: chunks.filter(
        (c) => within(c.deadline_s, from, to) || within(c.delivered_s, from, to),
      ),
      marks: this.marks.filter((m) => within(m.time_s, from, to)),
      heard: this.heard.filter((h) => within(h.time_s, from, to)),
      live: this.live,
      ghost: this.isHaunted(from, to) && {
        ...this.ghost,
        spans: this.ghost.spans.filter((s) => s.end_s >= from && s.start_s <= to),
        chunks: this.ghost.chunks.filter((c) => within(c.delivered_s, from, to)),
      },
    };
  }

  /** Share of [from, to] each lane was busy, in schema order. */
  busy(from, to) {
    const sums = this.schema.lanes.map(() => 0);
    for (const s of this.spans) {
      sums[s.lane] += Math.max(0, Math.min(s.end_s, to) - Math.max(s.start_s, from));
    }
    return sums.map((sum) => Math.min(1, sum / Math.max(1e-9, to - from)));
  }
}

function within(time, from, to) {
  return time >= from && time <= to;
}

/** When a chunk stops mattering: a deadline can lie well after the delivery. */
function lastTime(chunk) {
  return Math.max(chunk.delivered_s || 0, chunk.deadline_s || 0, chunk.ready_s);
}

function dropWhile(rows, isOld) {
  let first = 0;
  while (first < rows.length && isOld(rows[first])) first += 1;
  return first ? rows.slice(first) : rows;
}

/** Whether a chunk came after its deadline (a first chunk: after the TTFA target). */
export function isLate(chunk) {
  return chunk.delivered_s > chunk.deadline_s;
}

/** How long the serving thread was late while the audio before a chunk was played; see hosts.py. */
export function busyBefore(c, delays) {
  let found = 0;
  for (const [time, seconds] of delays) {
    const start = Math.max(c.deadline_s - c.audio_s, time - Math.max(seconds, NOTED_S));
    found += Math.max(0, Math.min(Math.min(c.delivered_s, time) - start, seconds));
  }
  return found;
}

/** Whether a stall is the host's: the kernel was busy for at least half of it. */
export function isHostStall(c) {
  return c.stall_s > 0 && c.busy_s >= c.stall_s / 2;
}

/** One sentence for screen readers. */
export function summary(tracks, windowS) {
  const from = tracks.now - windowS;
  const stalled = tracks.chunks.filter((c) => c.stall_s > 0 && c.delivered_s >= from);
  const ofHost = stalled.filter(isHostStall).length;
  const stalls = `${stalled.length} stalls in the last ${windowS} s${ofHost ? ` (${ofHost} by the host)` : ""}`;
  const busy = tracks.busy(from, tracks.now);
  const lanes = tracks.schema.lanes.map((name, i) => `${name} lane ${Math.round(100 * busy[i])} % busy`);
  const urgent = tracks.live.filter((c) => c.is_urgent).length;
  const live = `${tracks.live.length} chunks under way, ${urgent} urgent`;
  return `${stalls}, ${lanes.join(", ")}, ${live}`;
}
