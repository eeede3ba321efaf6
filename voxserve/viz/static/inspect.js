// The frozen view as a Plotly figure: every bar and chunk can be hovered and zoomed. Plotly comes
// from the kernel once a page, so nothing is fetched from the internet or saved in the notebook.
import { COLOURS, colourOf } from "./colours.js";
import { tell } from "./page.js";
import { slackRange } from "./places.js";
import { isHostStall, isLate } from "./tracks.js";
import { changes, requestName, seconds } from "./words.js";

const CLEAR = "rgba(0,0,0,0)";
const GHOST = "↳ ";
const SLICES = 200; // of the SM occupancy
const PATIENCE_MS = 30000;

/** Resolves to Plotly, or rejects where the page forbids eval or the kernel does not answer. */
export function loadPlotly(model) {
  globalThis.__voxservePlotly ??= new Promise((resolve, reject) => {
    let isAnswered = false;
    const onMessage = async (message, buffers) => {
      if (message.type !== "plotly") return;
      isAnswered = true;
      model.off("msg:custom", onMessage);
      try {
        const zipped = new Blob([buffers[0]]).stream();
        const plain = zipped.pipeThrough(new DecompressionStream("gzip"));
        const source = await new Response(plain).text();
        const module = { exports: {} };
        new Function("module", "exports", "define", source)(module, module.exports, undefined);
        resolve(module.exports.newPlot ? module.exports : globalThis.Plotly);
      } catch (error) {
        reject(error);
      }
    };
    model.on("msg:custom", onMessage);
    tell(model, { type: "need-plotly" });
    setTimeout(() => {
      model.off("msg:custom", onMessage);
      if (!isAnswered) globalThis.__voxservePlotly = undefined; // another kernel may answer
      reject(new Error("the kernel did not send Plotly"));
    }, PATIENCE_MS);
  });
  return globalThis.__voxservePlotly;
}

/** Traces and layout of what `seen` holds, in seconds before `view.now`. */
export function figureOf(seen, view, theme, schema, names, spoken) {
  const at = (time) => time - view.now;
  return {
    data: [
      ...(seen.ghost ? ghostTraces(seen.ghost, at, schema, names, theme) : []),
      ...spanTraces(seen.spans, at, schema, names, theme),
      ...chunkTraces(seen, at, schema, names, spoken, theme),
      ...slackTraces(seen.chunks, view, at),
      occupancyTrace(seen.spans, view, at),
    ],
    layout: plotLayout(seen, view, at, theme, names),
  };
}

function spanTraces(spans, at, schema, names, { paper }) {
  const groups = new Map();
  const largest = [1, 1, 1];
  for (const s of spans) {
    const name = s.kind === 2 ? `codec ${schema.lanes[s.lane]}` : schema.kinds[s.kind];
    if (!groups.has(name)) groups.set(name, []);
    groups.get(name).push(s);
    largest[s.lane] = Math.max(largest[s.lane], s.batch);
  }
  // The larger the batch, the higher its bar; prefills fill their row.
  const height = (s) => 0.85 * (s.kind === 0 ? 1 : 0.35 + (0.65 * s.batch) / largest[s.lane]);
  return [...groups].map(([name, rows]) => ({
    type: "bar",
    orientation: "h",
    name,
    base: rows.map((s) => at(s.start_s)),
    x: rows.map((s) => s.end_s - s.start_s),
    y: rows.map((s) => names[s.lane]),
    width: rows.map(height),
    text: rows.map((s) => spanText(s, schema).join("<br>")),
    textposition: "none",
    hovertemplate: "%{text}<extra></extra>",
    marker: {
      color: colourOf(rows[0]),
      line: { width: 0 },
      pattern: { shape: rows[0].kind === 0 ? "/" : "", fillmode: "overlay", fgcolor: paper, solidity: 0.15, size: 5 },
    },
  }));
}

/** Rows of their own, each under the lane it would have been. */
function ghostTraces(ghost, at, schema, names, theme) {
  const rows = names.map((name) => GHOST + name);
  return spanTraces(ghost.spans, at, schema, rows, theme).map((trace) => ({
    ...trace,
    name: `${trace.name}, what if ${ghost.name}`,
    opacity: 0.5,
  }));
}

export function spanText(s, schema) {
  const unit = s.kind === 0 ? "tokens" : "rows";
  const where = s.sms ? `${s.sms} ${s.sms === 1 ? "SM (thread)" : "SMs (threads)"}` : "whole device";
  return [
    `<b>${schema.kinds[s.kind]}</b> of ${s.batch} (bucket ${s.bucket} ${unit}), ${where}`,
    `ran ${seconds(s.end_s - s.start_s)}, queued ${seconds(s.start_s - s.queued_s)} before`,
  ];
}

export function chunkText(c, schema, spoken = {}) {
  const due = Number.isFinite(c.deadline_s);
  const spare = c.deadline_s - c.delivered_s;
  const promoted = Number.isFinite(c.promoted_s) ? ", promoted while it waited" : "";
  const last = c.is_last ? ", last" : "";
  const host = isHostStall(c) ? `: the notebook kernel was busy for ${seconds(c.busy_s)}` : "";
  return [
    `<b>${requestName(c.request_id, spoken)}, chunk ${c.index}</b> (${c.num_frames} frames${last})`,
    `${schema.urgencies[c.urgency]}: ${schema.reasons[c.reason]}${promoted}`,
    `waited ${seconds(c.launched_s - Math.max(c.ready_s, c.head_s))}, decoded in ${seconds(c.delivered_s - c.launched_s)}`,
    due ? (spare >= 0 ? `in time by ${seconds(spare)}` : `late by ${seconds(-spare)}${host}`) : "nobody listens",
  ];
}

function chunkTraces(seen, at, schema, names, spoken, theme) {
  const late = seen.chunks.filter(isLate);
  const points = (name, rows, time, symbol, color, text, width = 2) => ({
    type: "scatter",
    mode: "markers",
    name,
    x: rows.map(time),
    y: rows.map(() => names[3]),
    text: rows.map(text),
    hovertemplate: "%{text}<extra></extra>",
    marker: { symbol, color, size: 10, line: { width, color }, opacity: width > 1 ? 1 : 0.5 },
  });
  const told = (c) => chunkText(c, schema, spoken).join("<br>");
  const due = (c) => at(c.deadline_s);
  const met = seen.chunks.filter((c) => c.delivered_s <= c.deadline_s);
  const ofHost = late.filter(isHostStall);
  const stalls = late.filter((c) => c.stall_s > 0 && !isHostStall(c));
  return [
    points("deadline met", met, due, "line-ns", "#888", told, 1),
    points("deadline missed", late, due, "x-thin", COLOURS.stall, told),
    points("server stall", stalls, (c) => at(c.delivered_s), "triangle-down", COLOURS.stall, told),
    points("host stall", ofHost, (c) => at(c.delivered_s), "hourglass", theme.text, told),
    points("listener stall", seen.heard, (h) => at(h.time_s), "triangle-down-open", COLOURS.heard,
      (h) => `<b>${requestName(h.stream, spoken)}</b><br>the browser ran dry for ${seconds(h.gap_s)}`),
  ].filter((trace) => trace.x.length);
}

function slackTraces(chunks, view, at) {
  const trace = (name, rows, symbol, color) => ({
    type: "scatter",
    mode: "markers",
    name: `slack, ${name}`,
    x: rows.map((c) => at(c.launched_s)),
    y: rows.map((c) => c.slack_s),
    yaxis: "y2",
    marker: { symbol, color, size: chunks.length > 200 ? 4 : 8 },
    hovertemplate: "slack %{y:.3f} s<extra></extra>",
  });
  const margin = {
    type: "scatter",
    mode: "lines",
    name: "urgency margin",
    x: [at(view.from), at(view.to)],
    y: [view.margin, view.margin],
    yaxis: "y2",
    line: { dash: "dash", color: COLOURS.urgent },
  };
  return [
    trace("urgent", chunks.filter((c) => c.urgency === 0), "diamond", COLOURS.urgent),
    trace("background", chunks.filter((c) => c.urgency === 1), "circle", COLOURS.codec),
    margin,
  ];
}

/** Share of the SMs (on a CPU: threads) that ran something, in slices of the window. */
function occupancyTrace(spans, view, at) {
  const slice = (view.now - view.from) / SLICES;
  const split = new Map(spans.filter((s) => s.sms).map((s) => [s.lane, s.sms]));
  const total = [...split.values()].reduce((a, b) => a + b, 0) || 1;
  const busy = new Array(SLICES).fill(0);
  for (const s of spans) {
    const first = Math.max(0, Math.floor((s.start_s - view.from) / slice));
    for (let i = first; i < SLICES && view.from + i * slice < s.end_s; i += 1) {
      const from = view.from + i * slice;
      busy[i] += (Math.min(s.end_s, from + slice) - Math.max(s.start_s, from)) * (s.sms || total);
    }
  }
  return {
    type: "scatter",
    mode: "lines",
    name: "SMs busy",
    x: busy.map((_, i) => at(view.from + i * slice)),
    y: busy.map((sum) => Math.min(100, (100 * sum) / (total * slice))),
    yaxis: "y3",
    line: { color: COLOURS.prefill, width: 1, shape: "hv" },
    fill: "tozeroy",
    hovertemplate: "%{y:.0f} % of the SMs busy<extra></extra>",
  };
}

function plotLayout(seen, view, at, theme, names) {
  const { top, floor } = slackRange(seen.chunks);
  const pad = 0.08 * (top - floor); // whole marks at both ends
  const isLane = (i) => i < names.length - 1;
  const rows = names.flatMap((name, i) => (seen.ghost && isLane(i) ? [name, GHOST + name] : [name])).reverse();
  const axis = { gridcolor: theme.line, zerolinecolor: theme.line, linecolor: theme.line };
  const marks = changes(seen.marks);
  return {
    barmode: "overlay",
    bargap: 0.15,
    margin: { l: 122, r: 34, t: 30, b: 34 },
    paper_bgcolor: CLEAR,
    plot_bgcolor: CLEAR,
    font: { color: theme.text, size: 11 },
    showlegend: false, // the key above the view says the same
    hoverlabel: { align: "left" },
    modebar: { orientation: "v", bgcolor: CLEAR, color: theme.faint, activecolor: theme.text }, // beside the axes
    xaxis: { ...axis, anchor: "y3", range: [at(view.from), at(view.to)], title: { text: "seconds from the pause", standoff: 2, font: { size: 11 } } },
    yaxis: { ...axis, domain: [0.44, 1], type: "category", categoryorder: "array", categoryarray: rows, range: [-0.5, rows.length - 0.5] },
    yaxis2: { ...axis, domain: [0.19, 0.4], range: [floor - pad, top + pad], nticks: 4 },
    yaxis3: { ...axis, domain: [0, 0.13], range: [0, 105], tickvals: [0, 50, 100] },
    shapes: marks.map((m) => ({
      type: "line", x0: at(m.time_s), x1: at(m.time_s), y0: 0, y1: 1, yref: "paper",
      line: { dash: "dot", color: theme.text, width: 1 },
    })),
    annotations: [
      ...marks.map((m, i) => ({
        x: at(m.time_s), y: 1, yref: "paper", text: m.text, showarrow: false, yanchor: "bottom",
        xanchor: m.time_s > (view.from + view.to) / 2 ? "right" : "left",
        yshift: 12 * (i % 2), // two lines, so that neighbours stay readable
      })),
      ...emptyWords(seen, view, names).map(([yref, y, text]) => ({
        xref: "paper", x: 0.5, yref, y, text, showarrow: false, font: { color: theme.faint },
      })),
      ...[["y2 domain", "slack, s"], ["y3 domain", "SMs, %"]].map(([yref, text]) => ({
        xref: "paper", x: 0, xshift: -34, xanchor: "right", yref, y: 0.5, text, showarrow: false,
      })),
    ],
  };
}

/** Why a row or a panel has nothing in it: [axis, place, words] of each. */
export function emptyWords({ spans, chunks, heard }, view, names) {
  const found = [];
  const busy = new Set(spans.map((s) => s.lane));
  names.slice(0, -1).forEach((name, lane) => busy.has(lane) || found.push(["y", name, "no work in this window"]));
  if (!spans.length) found.push(["y3", 50, "nothing ran"]);
  else if (!spans.some((s) => s.end_s >= view.from)) {
    found.push(["y", names[1], "Nothing ran in this window: zoom out for what was before."]);
  }
  const due = chunks.filter((c) => Number.isFinite(c.deadline_s));
  if (chunks.length && !due.length) found.push(["y", names.at(-1), "no deadlines: nobody listens"]);
  else if (!due.length && !heard.length) found.push(["y", names.at(-1), "no chunk was due or delivered"]);
  if (!chunks.some((c) => Number.isFinite(c.slack_s))) found.push(["y2 domain", 0.5, "no chunk with a deadline was decoded"]);
  return found;
}
