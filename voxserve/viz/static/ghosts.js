// What would have been: translucent lanes under the real ones, and their stalls as open triangles.
import { COLOURS } from "./colours.js";
import { triangle } from "./shapes.js";
import { xOf } from "./places.js";

/** Draws the spans and stalls of `ghost` that lie in view; `drawSpans` paints rows of spans. */
export function drawGhosts(g, box, ghost, view, theme, drawSpans) {
  g.save();
  g.globalAlpha = 0.35;
  g.fillStyle = theme.lane;
  for (const row of box.ghosts) g.fillRect(box.left, row.y, box.right - box.left, row.h);
  g.globalAlpha = 0.5;
  drawSpans(g, box, box.ghosts, ghost.spans, view, theme);
  g.globalAlpha = 0.9;
  const y = box.deadlines.y + box.deadlines.h - 5;
  for (const c of ghost.chunks) {
    if (c.stall_s > 0) triangle(g, xOf(box, view, c.delivered_s), y, 4, COLOURS.stall, false);
  }
  g.restore();
}

/** Names the ghosts' rows in the gutter. */
export function drawGhostNames(g, box, theme) {
  g.font = theme.font;
  g.textAlign = "right";
  g.textBaseline = "middle";
  g.fillStyle = theme.faint;
  for (const row of box.ghosts) g.fillText("↳ what if", box.left - 8, row.y + row.h / 2);
}
