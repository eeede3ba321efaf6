// What one view of the player shows: a row for each stream with its sound, mute and solo.

import { keyTo } from "./names.js";

const STALLS = [
  ["vs-k-stall", "server stall"],
  ["vs-k-host", "host stall"],
  ["vs-k-heard", "listener stall"],
];

/** States of a stream that sounds no more. */
export const OVER = ["played", "stopped", "refused"];

/** Whether a stream is heard: any solo silences the streams without one. */
export function isAudible(stream, muted, solo) {
  return solo.length ? solo.includes(stream) : !muted.includes(stream);
}

/** A list of streams with `stream` added, or taken out when it is in there. */
export function toggled(list, stream) {
  return list.includes(stream) ? list.filter((one) => one !== stream) : [...list, stream];
}

/** How a stream fares, in words: {state, played_s, buffered_s, underruns, silent_s} as reported. */
export function streamWords(heard, [server, host], isWaiting = false) {
  if (!heard) return isWaiting ? "waiting" : "not heard in this tab";
  const { state, played_s, underruns } = heard;
  if (state === "refused") return state; // nothing of it could stall
  const silent = underruns ? `, ${heard.silent_s.toFixed(2)} s silent` : "";
  const played = played_s ? ` ${played_s.toFixed(1)} s` : "";
  const hasBuffer = state === "playing" || state === "filling";
  const buffer = hasBuffer ? `buffer ${heard.buffered_s.toFixed(2)} s · ` : "";
  const ofHost = host ? ` host ${host}` : "";
  return `${state}${played} · ${buffer}▼ ${server}${ofHost} ▽ ${underruns}${silent}`;
}

export class Rows {
  /** `onClick` runs on the button that lets the browser play. */
  constructor(model, el, onClick) {
    this.model = model;
    this.rows = new Map(); // by stream: {row, canvas, words, mute, solo}
    el.classList.add("vs-player");
    el.dataset.lmSuppressShortcuts = "true"; // keys on its buttons are no notebook commands
    el.innerHTML = `<button class="vs-enable jupyter-button mod-warning">
        <i class="fa fa-volume-up" aria-hidden="true"></i> <span></span></button>
      <div class="vs-streams" role="list" aria-label="Streams"></div>
      <div class="vs-foot"><span class="vs-player-label" role="status"></span>
        <span class="vs-player-legend" aria-label="Legend">${keyTo(STALLS)}</span></div>`;
    this.button = el.querySelector(".vs-enable");
    this.list = el.querySelector(".vs-streams");
    this.label = el.querySelector(".vs-player-label");
    this.button.onclick = onClick;
  }

  /** `state`: {block, words, waves, heard}; see player.js. */
  paint({ block, words, waves, heard }) {
    this.button.hidden = !block;
    setText(this.button.querySelector("span"), block);
    setText(this.label, words);
    const streams = [...this.model.get("streams")].reverse(); // the newest on top
    const known = new Set(streams.map(([stream]) => stream));
    for (const [stream, { row }] of this.rows) {
      if (known.has(stream)) continue;
      row.remove();
      this.rows.delete(stream);
    }
    const muted = this.model.get("muted");
    const solo = this.model.get("solo");
    const waiting = this.model.get("waiting");
    const { stream: pointed, chunk } = this.model.get("highlight");
    streams.forEach(([stream, label], place) => {
      const parts = this.rows.get(stream) ?? this.add(stream, label);
      if (this.list.children[place] !== parts.row) this.list.insertBefore(parts.row, this.list.children[place]);
      const wave = waves.get(stream);
      parts.row.classList.toggle("vs-silent", !isAudible(stream, muted, solo));
      parts.mute.setAttribute("aria-pressed", String(muted.includes(stream)));
      parts.solo.setAttribute("aria-pressed", String(solo.includes(stream)));
      parts.solo.disabled = OVER.includes(heard.get(stream)?.state); // or it would silence all others
      if (wave) wave.hostStalls = this.model.get("host_stalls")[stream] ?? [];
      setText(parts.words, streamWords(heard.get(stream), wave?.stalls ?? [0, 0], waiting.includes(stream)));
      parts.canvas.setAttribute("aria-label", `Sound of ${label}: ${parts.words.textContent}`);
      wave?.draw(parts.canvas, pointed === stream ? chunk : null);
    });
  }

  add(stream, label) {
    const row = document.createElement("div");
    row.className = "vs-stream";
    row.setAttribute("role", "listitem");
    row.innerHTML = `<button class="vs-mix jupyter-button">Mute</button>
      <button class="vs-mix jupyter-button">Solo</button><span class="vs-stream-name"></span>
      <canvas role="img"></canvas><span class="vs-stream-words"></span>`;
    const [mute, solo] = row.querySelectorAll("button");
    const name = row.querySelector(".vs-stream-name");
    name.textContent = name.title = label;
    mute.setAttribute("aria-label", `Mute ${label}`);
    solo.setAttribute("aria-label", `Solo ${label}`);
    mute.title = "Silence this stream; it goes on playing";
    solo.title = "Hear only the streams with Solo";
    mute.onclick = () => this.toggle("muted", stream);
    solo.onclick = () => this.toggle("solo", stream);
    const parts = { row, mute, solo, canvas: row.querySelector("canvas"), words: row.querySelector(".vs-stream-words") };
    this.rows.set(stream, parts);
    return parts;
  }

  /** Kept in the kernel: every view, tab and reload has the same mix. */
  toggle(list, stream) {
    this.model.set(list, toggled(this.model.get(list), stream));
    this.model.save_changes();
  }
}

/** Only on a change: a screen reader would start anew each time. */
function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}
