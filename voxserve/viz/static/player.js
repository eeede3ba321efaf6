// The listener: receives int16 PCM from the kernel, plays it once per kernel however many views
// and browser tabs show it, reports buffer and underruns back.
import { floats } from "./mixer.js";
import { PAGE, tell } from "./page.js";
import { Sound } from "./sound.js";
import { Wave } from "./wave.js";

const WORKLET = "__WORKLET__"; // filled in by Python with the joined worklet source
const STATUS_EVERY_MS = 400;
const HEARTBEAT_MS = 4000;

export default () => {
  let sound = null;
  let streams = [];
  let last = ""; // how the newest finished stream went
  let reportedMs = 0;
  let releaseMs = 0; // artificial jitter never reorders messages
  const views = new Set();
  const wave = new Wave();
  const repaint = () => views.forEach((view) => view());

  function initialize({ model }) {
    const isOurs = () => model.get("page") === PAGE;
    const onReport = (data) => {
      streams = data.streams;
      for (const e of data.events) if (e.kind === "done") last = doneWords(e, model.get("rate_hz"));
      wave.progress(streams);
      forward(model, data);
      repaint();
    };
    const onState = () => {
      tell(model, { type: "state", state: sound.context.state, mode: sound.mode });
      repaint();
    };
    const onMessage = (message, buffers) => {
      if (!isOurs() || !sound) return;
      if (message.type === "pcm") receive(model, message, buffers[0]);
      else deliver(model, message);
      if (message.type === "stop") {
        const stopped = streams.find((s) => s.stream === message.stream);
        last = `Stopped${stopped ? ` after ${stopped.played_s.toFixed(1)} s` : ""}.`;
        streams = streams.filter((s) => s !== stopped);
      }
      repaint();
    };
    const onPage = () => {
      if (isOurs() && !sound) {
        sound = new Sound(model.get("rate_hz"), WORKLET, onReport, onState);
        sound.ready.then(() => {
          configure();
          onState();
        });
      } else if (!isOurs() && sound) {
        sound.close(); // another tab took over
        sound = null;
        streams = [];
      }
      repaint();
    };
    const configure = () =>
      sound?.send({ type: "set", prebuffer_s: model.get("prebuffer_s"), tap: model.get("tap") });
    const onLeave = () => isOurs() && tell(model, { type: "bye" });
    const heartbeat = setInterval(() => isOurs() && sound && onState(), HEARTBEAT_MS);
    globalThis.addEventListener("pagehide", onLeave);
    model.on("msg:custom", onMessage);
    model.on("change:page", onPage);
    model.on("change:prebuffer_s change:tap", configure);
    tell(model, { type: "hello" });
    onPage();
    return () => {
      clearInterval(heartbeat);
      globalThis.removeEventListener("pagehide", onLeave);
      model.off("msg:custom", onMessage);
      sound?.close();
      sound = null;
    };
  }

  /** PCM goes to the ear; a copy of its outline to the picture. */
  function receive(model, message, view) {
    const samples = floats(view);
    wave.add(message, samples, model.get("rate_hz"));
    deliver(model, { type: "pcm", stream: message.stream, end: message.end, samples });
  }

  /** Hands over now, or later in the same order where network jitter is being imitated. */
  function deliver(model, message) {
    const jitterMs = 1000 * model.get("jitter_s") * Math.random();
    const now = performance.now();
    releaseMs = Math.max(releaseMs, now + jitterMs);
    if (releaseMs <= now) sound.send(message);
    else setTimeout(() => sound?.send(message), releaseMs - now);
  }

  /** Status at 2.5 Hz, what the listener noticed at once. Never one message per chunk. */
  function forward(model, { events, streams: current }) {
    const now = performance.now();
    if (!events.length && now - reportedMs < STATUS_EVERY_MS) return;
    reportedMs = now;
    const taps = events.filter((e) => e.tap?.length).map((e) => e.tap.buffer);
    const bare = events.map(({ tap, ...event }) => ({ ...event, tapped: tap?.length ?? 0 }));
    tell(model, { type: "status", events: bare, streams: current }, taps);
  }

  function render({ model, el }) {
    el.classList.add("vs-player");
    const button = document.createElement("button");
    button.className = "vs-enable jupyter-button mod-warning";
    const canvas = document.createElement("canvas");
    canvas.setAttribute("role", "img");
    const label = document.createElement("div");
    label.className = "vs-player-label";
    label.setAttribute("role", "status");
    el.append(button, canvas, label);
    button.onclick = async () => {
      if (model.get("page") !== PAGE) tell(model, { type: "claim" });
      else await sound?.enable();
      repaint();
    };
    const paint = () => {
      const needsClick = !sound || !sound.isRunning;
      button.hidden = !needsClick;
      button.textContent = sound || !model.get("page") ? "🔊 Enable sound" : "🔊 Play in this tab";
      label.textContent = words(streams, sound, model.get("page"));
      canvas.setAttribute("aria-label", `Audio received and played. ${label.textContent}`);
      wave.draw(canvas);
    };
    views.add(paint);
    paint();
    const resizes = new ResizeObserver(paint);
    resizes.observe(canvas);
    model.on("change:highlight", () => {
      wave.highlight = model.get("highlight");
      paint();
    });
    return () => {
      resizes.disconnect();
      views.delete(paint);
    };
  }

  function words(current, player, page) {
    if (page && page !== PAGE) return "Sound plays in another tab.";
    if (!player) return "Connecting to the kernel.";
    const held = player.held_s > 0 ? ` ${player.held_s.toFixed(1)} s wait for you.` : "";
    if (!player.isRunning) return `The browser needs a click before it plays sound.${held}`;
    const fallback = player.node ? "" : " (no worklet: open over localhost or https for gapless sound)";
    const s = current.at(-1);
    if (!s) return `${last || "Ready."}${fallback}`;
    const silent = s.underruns ? `, ${s.silent_s.toFixed(2)} s silent` : "";
    const others = current.length > 1 ? `${current.length} streams · ` : "";
    const stalls = `listener stalls ${s.underruns}${silent}`;
    return `${others}played ${s.played_s.toFixed(1)} s · buffer ${s.buffered_s.toFixed(2)} s · ${stalls}${fallback}`;
  }

  return { initialize, render };
};

function doneWords({ played, underruns, silent_s }, rateHz) {
  const silent = underruns ? `, ${silent_s.toFixed(2)} s silent` : "";
  return `Done: played ${(played / rateHz).toFixed(1)} s, listener stalls ${underruns}${silent}.`;
}
