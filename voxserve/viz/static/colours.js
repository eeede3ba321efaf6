// Colours of the views: kinds and outcomes, and what the page's theme says.

// Okabe-Ito. Kinds also differ by lane or hatch, outcomes by shape, never by colour alone.
export const COLOURS = {
  prefill: "#0072B2",
  decode: "#E69F00",
  codec: "#009E73",
  urgent: "#CC79A7",
  stall: "#D55E00",
  heard: "#56B4E9",
  handoff: "#56B4E9",
};

export function colourOf(span) {
  if (span.kind === 0) return COLOURS.prefill;
  if (span.kind === 1) return COLOURS.decode;
  if (span.kind === 3) return COLOURS.handoff;
  return span.lane === 2 ? COLOURS.urgent : COLOURS.codec;
}

/** Text and line colours of the page's theme. */
export function themeOf(element) {
  const css = getComputedStyle(element);
  const read = (name, otherwise) => css.getPropertyValue(name).trim() || otherwise;
  return {
    text: read("--jp-ui-font-color1", "#222"),
    faint: read("--jp-ui-font-color2", "#666"),
    line: read("--jp-border-color2", "#ddd"),
    paper: read("--jp-layout-color0", "#fff"),
    lane: read("--jp-layout-color2", "#eee"),
    font: `11px ${read("--jp-ui-font-family", "system-ui, sans-serif")}`,
  };
}
