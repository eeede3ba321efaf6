// Draws the live view on a canvas: three lanes, deadlines, slack, chunks under way. About 1 ms a frame, because on a
// laptop the browser shares its cores with the engine.
import { COLOURS, colourOf } from "./colours.js";
import { drawGhostNames, drawGhosts } from "./ghosts.js";
import { slackRange, slackY, tickStep, xOf } from "./places.js";
import { cross, diamond, disc, hourglass, line, triangle } from "./shapes.js";
import { drawStrip } from "./strip.js";
import { isHostStall, isLate } from "./tracks.js";
import { changes } from "./words.js";

/** Paints one frame. `view` is {from, to, now, margin, mark, note}: `mark` is what "now" is called. */
export function draw(g, box, seen, view, theme, names, selected) {
  g.clearRect(0, 0, box.width, box.height);
  g.font = theme.font;
  drawFrame(g, box, view, theme, names);
  if (view.note || !seen.spans.length) {
    drawNote(g, box, view.note || "Nothing ran in this window.", theme);
  }
  g.save();
  g.beginPath();
  g.rect(box.left, 0, box.right - box.left, box.height);
  g.clip();
  drawSpans(g, box, box.lanes, seen.spans, view, theme);
  if (seen.ghost) drawGhosts(g, box, seen.ghost, view, theme, drawSpans);
  drawMarks(g, box, seen.marks, view, theme);
  drawDeadlines(g, box, seen, view, theme);
  drawSlack(g, box, seen.chunks, view, theme);
  if (selected) drawSelection(g, box, selected, view, theme);
  g.restore();
  if (seen.ghost) drawGhostNames(g, box, theme);
  drawStrip(g, box, seen.live, view, theme);
}

function drawFrame(g, box, view, theme, names) {
  g.textBaseline = "middle";
  g.textAlign = "right";
  const rows = [...box.lanes, box.deadlines];
  rows.forEach((row, i) => {
    g.globalAlpha = 0.6;
    g.fillStyle = theme.lane;
    g.fillRect(box.left, row.y, box.right - box.left, row.h);
    g.globalAlpha = 1;
    g.fillStyle = theme.text;
    g.fillText(names[i], box.left - 8, row.y + row.h / 2);
  });
  g.strokeStyle = theme.line;
  g.lineWidth = 1;
  g.textBaseline = "alphabetic";
  g.textAlign = "center";
  const step = tickStep(view.to - view.from);
  const [first, last] = [view.from - view.now, view.to - view.now].map((t) => t / step);
  for (let i = Math.ceil(first); i <= last; i += 1) {
    const x = Math.round(xOf(box, view, view.now + i * step)) + 0.5;
    line(g, x, box.top, x, box.bottom);
    if (x > box.right - 24 && i !== 0) continue;
    g.fillStyle = i === 0 ? theme.text : theme.faint;
    const amount = Number((Math.abs(i) * step).toFixed(3));
    g.fillText(i === 0 ? (view.mark ?? "now") : `${i > 0 ? "+" : "−"}${amount} s`, x, box.bottom + 14);
  }
  g.strokeStyle = theme.text;
  const x = Math.round(xOf(box, view, view.now)) + 0.5;
  line(g, x, box.top, x, box.bottom);
}

function drawNote(g, box, text, theme) {
  g.textAlign = "center";
  g.textBaseline = "middle";
  g.fillStyle = theme.text;
  const row = box.lanes[1];
  g.fillText(text, (box.left + box.right) / 2, row.y + row.h / 2);
}

function drawSpans(g, box, rows, spans, view, theme) {
  const largest = [1, 1, 1];
  for (const s of spans) largest[s.lane] = Math.max(largest[s.lane], s.batch);
  g.textAlign = "center";
  g.textBaseline = "middle";
  for (const s of spans) {
    const row = rows[s.lane];
    const x = xOf(box, view, s.start_s);
    const w = Math.max(1, xOf(box, view, s.end_s) - x);
    const h = row.h * (s.kind === 0 ? 1 : 0.35 + (0.65 * s.batch) / largest[s.lane]);
    const y = row.y + row.h - h;
    g.fillStyle = colourOf(s);
    g.fillRect(x, y, w > 3 ? w - 0.7 : w, h);
    if (s.kind === 0) hatch(g, x, y, w, h, theme.paper);
    if (w > 22 && h > 12) {
      g.fillStyle = "#111";
      g.fillText(`×${s.batch}`, x + w / 2, y + h / 2);
    }
  }
}

function hatch(g, x, y, w, h, colour) {
  g.save();
  g.beginPath();
  g.rect(x, y, w, h);
  g.clip();
  g.strokeStyle = colour;
  g.globalAlpha = 0.55;
  for (let at = x - h; at < x + w; at += 5) line(g, at, y + h, at + h, y);
  g.restore();
}

function drawMarks(g, box, marks, view, theme) {
  g.save();
  g.strokeStyle = theme.text;
  g.fillStyle = theme.text;
  g.setLineDash([2, 3]);
  g.textAlign = "left";
  g.textBaseline = "alphabetic";
  // Newest first: where texts would overlap, what changed last is what the user looks for.
  let free = Infinity;
  for (const m of changes(marks).reverse()) {
    const x = Math.round(xOf(box, view, m.time_s)) + 0.5;
    line(g, x, 14, x, box.bottom);
    const width = g.measureText(m.text).width;
    const at = Math.min(x - 3, box.right - width);
    if (at + width > free) continue;
    g.fillText(m.text, at, 11);
    free = at - 8;
  }
  g.restore();
}

function drawDeadlines(g, box, seen, view, theme) {
  const { y, h } = box.deadlines;
  // The silence itself first, from deadline to delivery, so that markers stay readable over it.
  g.fillStyle = COLOURS.stall;
  g.globalAlpha = 0.25;
  for (const c of seen.chunks) {
    if (!isLate(c)) continue;
    const x = xOf(box, view, c.deadline_s);
    g.fillRect(x, y + h - 7, xOf(box, view, c.delivered_s) - x, 7);
  }
  g.globalAlpha = 1;
  // Many met deadlines become a density; the missed ones stay opaque on top.
  const faint = Math.min(1, 120 / seen.chunks.length);
  for (const c of seen.chunks) if (!isLate(c)) drawMet(g, c, xOf(box, view, c.deadline_s), y, h, theme, faint);
  for (const c of seen.chunks) if (isLate(c)) drawMissed(g, c, box, view, y + h / 2 - 3, theme);
  for (const s of seen.heard) {
    triangle(g, xOf(box, view, s.time_s), y + h - 5, 6, COLOURS.heard, false);
  }
  g.lineWidth = 1;
}

function drawMet(g, c, x, y, h, theme, faint) {
  g.globalAlpha = faint;
  g.strokeStyle = theme.text;
  line(g, x, y + h * 0.2, x, y + h * 0.7);
  if (c.index === 0) disc(g, x, y + h / 2 - 3, 3.5, theme.text);
  g.globalAlpha = 1;
}

function drawMissed(g, c, box, view, middle, theme) {
  g.strokeStyle = COLOURS.stall;
  g.lineWidth = 2;
  cross(g, xOf(box, view, c.deadline_s), middle, 4);
  g.lineWidth = 1;
  const x = xOf(box, view, c.delivered_s);
  if (isHostStall(c)) hourglass(g, x, middle, 6, theme.text);
  else if (c.stall_s > 0) triangle(g, x, middle, 6, COLOURS.stall, true);
}

function drawSlack(g, box, chunks, view, theme) {
  const range = slackRange(chunks);
  const zero = slackY(box, range, 0);
  g.fillStyle = COLOURS.stall;
  g.globalAlpha = 0.1;
  g.fillRect(box.left, zero, box.right - box.left, box.slack.y + box.slack.h - zero);
  g.globalAlpha = 1;
  g.strokeStyle = theme.text;
  line(g, box.left, zero, box.right, zero);
  g.save();
  g.setLineDash([5, 4]);
  g.strokeStyle = COLOURS.urgent;
  const margin = slackY(box, range, view.margin);
  line(g, box.left, margin, box.right, margin);
  g.restore();
  const isDense = chunks.length > 200;
  g.globalAlpha = isDense ? 0.5 : 1;
  for (const c of chunks) {
    if (!Number.isFinite(c.slack_s)) continue;
    const x = xOf(box, view, c.launched_s);
    const y = slackY(box, range, c.slack_s);
    const late = c.slack_s < 0 ? COLOURS.stall : null; // no triangle: not every late chunk is a stall
    if (c.urgency === 0) diamond(g, x, y, isDense ? 3 : 5, late ?? COLOURS.urgent);
    else disc(g, x, y, isDense && !late ? 1.6 : 3.2, late ?? COLOURS.codec);
  }
  g.globalAlpha = 1;
}

/** Scale of the slack panel, and the margin's name on a ground that keeps it readable. */
export function drawSlackScale(g, box, chunks, view, theme) {
  const range = slackRange(chunks);
  g.font = theme.font;
  g.textAlign = "right";
  g.textBaseline = "middle";
  g.fillStyle = theme.faint;
  for (const [value, text] of [[range.top, `${range.top.toFixed(1)} s`], [0, "0"]]) {
    g.fillText(text, box.left - 8, Math.max(box.slack.y + 6, slackY(box, range, value)));
  }
  g.fillStyle = theme.text;
  g.fillText("slack", box.left - 46, box.slack.y + 6);
  const text = `urgency margin ${Math.round(view.margin * 1000)} ms`;
  const y = slackY(box, range, view.margin);
  g.textAlign = "left";
  g.globalAlpha = 0.85;
  g.fillStyle = theme.paper;
  g.fillRect(box.left + 2, y - 14, g.measureText(text).width + 4, 13);
  g.globalAlpha = 1;
  g.fillStyle = theme.text;
  g.fillText(text, box.left + 4, y - 7);
}

/** A chunk's life as one line above the lanes: ready, launched, delivered, due. */
function drawSelection(g, box, c, view, theme) {
  const from = xOf(box, view, c.ready_s);
  const to = xOf(box, view, Math.max(c.delivered_s, c.deadline_s || 0));
  g.strokeStyle = theme.text;
  g.lineWidth = 2;
  g.strokeRect(from, box.top - 1, to - from, box.deadlines.y + box.deadlines.h - box.top + 2);
  g.lineWidth = 1;
  for (const time of [c.launched_s, c.delivered_s]) {
    const x = xOf(box, view, time);
    line(g, x, box.top, x, box.deadlines.y + box.deadlines.h);
  }
}
