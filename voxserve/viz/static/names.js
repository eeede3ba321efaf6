// The key to the timeline's marks, and the names of the workbench's parts for screen readers.

/** Roles and names for screen readers, of parts that plain widgets cannot give any. */
export function nameParts(el) {
  const bench = el.closest(".vs-workbench");
  bench?.setAttribute("role", "region");
  bench?.setAttribute("aria-label", "voxserve workbench");
  bench?.querySelector(".vs-detail")?.setAttribute("aria-live", "polite");
  for (const [name, label] of AREAS) {
    const area = bench?.querySelector(`.vs-area-${name}`);
    area?.setAttribute("role", "group");
    area?.setAttribute("aria-label", label);
  }
}

const AREAS = [
  ["controls", "settings and load"],
  ["timeline", "lanes, deadlines and slack"],
  ["listen", "what is spoken and heard"],
  ["numbers", "figures"],
];

export const MARKS = [
  ["vs-k-prefill", "prefill"],
  ["vs-k-decode", "decode"],
  ["vs-k-codec", "codec"],
  ["vs-k-urgent", "urgent codec"],
  ["vs-k-met", "deadline met"],
  ["vs-k-first", "first chunk"],
  ["vs-k-missed", "missed"],
  ["vs-k-stall", "server stall"],
  ["vs-k-host", "host stall"],
  ["vs-k-heard", "listener stall"],
  ["vs-k-pressed", "urgent chunk"],
  ["vs-k-calm", "background chunk"],
  ["vs-k-open", "not ready yet"],
];

/** A key as HTML, from pairs of a mark's class and its meaning. */
export function keyTo(marks) {
  return marks
    .map(([name, text]) => `<span class="vs-key"><i class="${name}" aria-hidden="true"></i>${text}</span>`)
    .join("");
}
