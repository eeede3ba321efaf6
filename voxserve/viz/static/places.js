// Where things are in the live view, and what is under the pointer. No DOM, so that node can test it.

const STRIP_S = [-0.5, 8]; // ends of the strip's axis
const WINDOWS_S = [0.25, 0.5, 1, 2, 4, 8, 15, 28]; // the keys + and - go through these

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
