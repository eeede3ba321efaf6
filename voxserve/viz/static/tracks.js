// Pure maths of the live view: decodes binary deltas, keeps a window of records, finds what is
// under the pointer. No DOM, so that node can test it.

// Columns that are lengths of time; every other "_s" column is an engine time sent minus `t0`.
const LENGTHS = new Set(["audio_s", "slack_s", "stall_s"]);

const STRIP_S = [-0.5, 8]; // ends of the strip's axis
const WINDOWS_S = [0.25, 0.5, 1, 2, 4, 8, 15, 28]; // the keys + and - go through these

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
    this.heard.push(...message.heard);
    this.now = message.now;
    const oldest = this.now - this.keepS;
    this.spans = dropWhile(this.spans, (s) => s.end_s < oldest);
    this.chunks = dropWhile(this.chunks, (c) => lastTime(c) < oldest);
    this.marks = dropWhile(this.marks, (m) => m.time_s < oldest);
    this.heard = dropWhile(this.heard, (h) => h.time_s < oldest);
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

/** Where things are drawn, in CSS pixels; with ghosts each lane shares its row with its ghost. */
export function layoutOf(width, height, hasGhosts = false) {
  const left = 122;
  const right = width - 10;
  const top = 18; // room for the text of setting changes
  const strip = { y: height - 56, h: 38 }; // its own axis below it
  const bottom = strip.y - 22; // room for the time axis
  const slackHeight = Math.round((bottom - top) * 0.27);
  const lanesHeight = bottom - top - slackHeight - 10;
  const rowHeight = lanesHeight / (hasGhosts ? 5.5 : 4); // a row with its ghost counts 1.5
  const laneHeight = hasGhosts ? 1.5 * rowHeight : rowHeight;
  const lanes = [0, 1, 2].map((i) => ({ y: top + i * laneHeight + 2, h: rowHeight - 4 }));
  const ghosts = lanes.map((row) => ({ y: row.y + row.h + 1, h: hasGhosts ? rowHeight * 0.5 - 1 : 0 }));
  const deadlines = { y: top + 3 * laneHeight + 2, h: rowHeight - 4 };
  const slack = { y: bottom - slackHeight, h: slackHeight };
  return { width, height, left, right, top, bottom, lanes, ghosts, deadlines, slack, strip };
}

/** Linear map of times to pixels over [view.from, view.to]. */
export function xOf(box, view, time) {
  return box.left + ((time - view.from) / (view.to - view.from)) * (box.right - box.left);
}

/** The next longer window (by > 0) or the next shorter one, in seconds. */
export function zoomed(length, by) {
  const next = by > 0 ? WINDOWS_S.find((one) => one > length) : WINDOWS_S.findLast((one) => one < length);
  return next ?? length;
}

/** Distance of time marks, about ten in view. */
export function tickStep(length) {
  return [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5].find((step) => length / step <= 12) ?? 10;
}

/** The slack axis: what is visible, kept readable: top 0.3 to 4 s, floor at most as far below 0. */
export function slackRange(chunks) {
  let top = 0.3;
  let least = 0;
  for (const c of chunks) {
    if (c.slack_s > top) top = c.slack_s;
    if (c.slack_s < least) least = c.slack_s;
  }
  top = Math.min(4, top * 1.1);
  return { top, floor: Math.max(-top, Math.min(-0.1 * top, least * 1.1)) };
}

/** Pixel of a slack value on a square-root axis: what is near the margin matters most. */
export function slackY(box, { top, floor }, slack) {
  const clipped = Math.max(floor, Math.min(top, slack));
  const [high, low] = [root(top), root(floor)];
  return box.slack.y + (1 - (root(clipped) - low) / (high - low)) * box.slack.h;
}

function root(value) {
  return Math.sign(value) * Math.sqrt(Math.abs(value));
}

/** Pixel of a slack value on the strip: square-root, -0.5 to 8 s, so that the margin is visible. */
export function stripX(box, slack) {
  const [low, high] = [root(STRIP_S[0]), root(STRIP_S[1])];
  const at = root(Math.max(STRIP_S[0], Math.min(STRIP_S[1], slack)));
  return box.left + 6 + ((at - low) / (high - low)) * (box.right - box.left - 12);
}

/** Places the running chunks: by slack from left to right, stacked where they would overlap. */
export function stripMarks(box, live) {
  const columns = new Map();
  const placed = [...live].sort((a, b) => a.request_id - b.request_id).map((row) => {
    const x = stripX(box, row.slack_s);
    const column = Math.round(x / 10);
    const level = columns.get(column) ?? 0;
    columns.set(column, level + 1);
    return { x, level, column, row };
  });
  for (const mark of placed) {
    const room = (box.strip.h - 12) / Math.max(1, columns.get(mark.column) - 1);
    mark.y = box.strip.y + box.strip.h - 6 - mark.level * Math.min(11, room);
  }
  return placed;
}

/** The span or chunk under a pixel, or null: {kind, row} with kind span, ghost, chunk, heard or live. */
export function hit(box, view, seen, x, y) {
  const inRow = (row) => y >= row.y && y <= row.y + row.h;
  const spanAt = (kind, spans, rows) => {
    const lane = rows.findIndex(inRow);
    const best = nearest(spans.filter((s) => s.lane === lane), (s) => {
      const [a, b] = [xOf(box, view, s.start_s), xOf(box, view, s.end_s)];
      return x < a ? a - x : Math.max(0, x - b);
    });
    return best && { kind, row: best };
  };
  if (box.lanes.some(inRow)) return spanAt("span", seen.spans, box.lanes);
  if (seen.ghost && box.ghosts.some(inRow)) return spanAt("ghost", seen.ghost.spans, box.ghosts);
  if (inRow(box.deadlines)) {
    const heard = nearest(seen.heard, (h) => Math.abs(xOf(box, view, h.time_s) - x));
    const best = nearest(seen.chunks, (c) => dueDistance(box, view, c, x));
    // A listener's stall is drawn low in the row, chunks above it.
    if (heard && (!best || y > box.deadlines.y + 0.6 * box.deadlines.h)) {
      return { kind: "heard", row: heard };
    }
    return best && { kind: "chunk", row: best };
  }
  if (y >= box.strip.y - 6) {
    const marks = stripMarks(box, seen.live);
    const best = nearest(marks, (mark) => Math.hypot(mark.x - x, mark.y - y));
    return best && { kind: "live", row: best.row };
  }
  if (y >= box.slack.y && y <= box.bottom) {
    const range = slackRange(seen.chunks);
    const best = nearest(seen.chunks, (c) =>
      Math.hypot(xOf(box, view, c.launched_s) - x, slackY(box, range, c.slack_s) - y),
    );
    return best && { kind: "chunk", row: best };
  }
  return null;
}

/** From a pixel to a chunk's deadline, or to the triangle that marks the end of its stall. */
function dueDistance(box, view, c, x) {
  const due = Math.abs(xOf(box, view, c.deadline_s) - x);
  // Where both are as near, the stall is what the user means.
  return c.stall_s > 0 ? Math.min(due, Math.abs(xOf(box, view, c.delivered_s) - x)) - 1 : due;
}

/** The row with the least distance, if that is within reach of a pointer (6 pixels). */
function nearest(rows, distance) {
  let best = null;
  let least = 6;
  for (const row of rows) {
    const d = distance(row);
    if (d <= least) [best, least] = [row, d];
  }
  return best;
}

/** One sentence for screen readers. */
export function summary(tracks, windowS) {
  const from = tracks.now - windowS;
  const stalls = tracks.chunks.filter((c) => c.stall_s > 0 && c.delivered_s >= from).length;
  const busy = tracks.busy(from, tracks.now);
  const lanes = tracks.schema.lanes.map((name, i) => `${name} lane ${Math.round(100 * busy[i])} % busy`);
  const urgent = tracks.live.filter((c) => c.is_urgent).length;
  const live = `${tracks.live.length} chunks under way, ${urgent} urgent`;
  return `${stalls} stalls in the last ${windowS} s, ${lanes.join(", ")}, ${live}`;
}
