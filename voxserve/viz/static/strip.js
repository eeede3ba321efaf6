// The strip below the lanes: every running request's next chunk by its slack now, against the
// urgency margin. Shape and colour tell its class, filling tells how far it is.
import { COLOURS } from "./colours.js";
import { stripMarks, stripX } from "./places.js";
import { diamond, disc, line } from "./shapes.js";
import { requestName, seconds } from "./words.js";

const TICKS_S = [-0.5, 0, 0.2, 0.5, 1, 2, 4, 8];
const STAGES = ["being generated", "ready, waits for a codec lane", "being decoded"];

export function drawStrip(g, box, live, view, theme) {
  const { y, h } = box.strip;
  const zero = stripX(box, 0);
  const margin = stripX(box, view.margin);
  g.globalAlpha = 0.6;
  g.fillStyle = theme.lane;
  g.fillRect(box.left, y, box.right - box.left, h);
  g.globalAlpha = 0.16;
  g.fillStyle = COLOURS.stall;
  g.fillRect(box.left, y, zero - box.left, h);
  g.fillStyle = COLOURS.urgent;
  g.fillRect(zero, y, margin - zero, h);
  g.globalAlpha = 1;
  g.strokeStyle = theme.text;
  line(g, zero, y, zero, y + h);
  g.save();
  g.setLineDash([5, 4]);
  g.strokeStyle = COLOURS.urgent;
  line(g, margin, y, margin, y + h);
  g.restore();
  drawScale(g, box, live, theme);
  for (const mark of stripMarks(box, live)) drawMark(g, mark);
  g.textBaseline = "top";
  g.textAlign = "left";
  drawLabel(g, "will be late", box.left + 4, y + 3, theme);
  if (margin - zero > 44) drawLabel(g, "urgent", zero + 4, y + 3, theme);
  drawLabel(g, `margin ${Math.round(view.margin * 1000)} ms`, margin + 4, y + 3, theme);
}

/** Over the marks, with an outline that keeps it readable there. */
function drawLabel(g, text, x, y, theme) {
  g.save();
  g.lineWidth = 3;
  g.lineJoin = "round";
  g.strokeStyle = theme.paper;
  g.strokeText(text, x, y);
  g.fillStyle = theme.text;
  g.fillText(text, x, y);
  g.restore();
}

function drawMark(g, { x, y, row }) {
  const solid = row.stage > 0;
  const late = row.slack_s < 0 ? COLOURS.stall : null; // no triangle: that is a stall
  if (row.is_urgent) diamond(g, x, y, 5, late ?? COLOURS.urgent, solid);
  else disc(g, x, y, 3.6, late ?? COLOURS.codec, solid);
  if (row.stage === 2) disc(g, x, y, 1.3, "#fff");
}

function drawScale(g, box, live, theme) {
  const { y, h } = box.strip;
  g.font = theme.font;
  g.fillStyle = theme.text;
  g.textAlign = "right";
  g.textBaseline = "middle";
  g.fillText("slack now", box.left - 8, y + h / 2 - 7);
  g.fillStyle = theme.faint;
  g.fillText(`${live.length} running`, box.left - 8, y + h / 2 + 7);
  g.textBaseline = "alphabetic";
  TICKS_S.forEach((value, i) => {
    g.textAlign = i === TICKS_S.length - 1 ? "right" : i ? "center" : "left";
    const x = i === TICKS_S.length - 1 ? box.right : i ? stripX(box, value) : box.left;
    g.fillText(value ? `${String(value).replace("-", "−")} s` : "0", x, y + h + 13);
  });
}

/** A running chunk in words, for the pointer. */
export function liveText(row, spoken = {}) {
  const urgent = row.is_urgent ? "urgent" : "background";
  const late = row.slack_s < 0 ? "will be late" : "slack";
  return [
    `<b>${requestName(row.request_id, spoken)}, chunk ${row.index}</b>`,
    `${STAGES[row.stage]}, ${urgent}`,
    row.slack_s < 0 ? `${late} by ${seconds(-row.slack_s)}` : `${late} ${seconds(row.slack_s)}`,
  ];
}
