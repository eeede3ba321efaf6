// The listener: receives int16 PCM from the kernel, plays it once per kernel however many views
// and browser tabs show it, reports buffer and underruns back.
import { floats } from "./mixer.js";
import { PAGE, tell } from "./page.js";
import { OVER, Rows, isAudible } from "./rows.js";
import { Sound } from "./sound.js";
import { Wave } from "./wave.js";

const WORKLET = "__WORKLET__"; // filled in by Python with the joined worklet source
const STATUS_EVERY_MS = 200; // the scheduler's clock follows these; more would choke the kernel
const HEARTBEAT_MS = 4000;
const GONE = "The kernel is gone. Re-run the cell to go on.";
const GESTURES = ["pointerdown", "keydown"];

export default () => {
  let sound = null;
  let isGone = false; // the kernel
  let reportedMs = 0;
  let releaseMs = 0; // artificial jitter never reorders messages
  const views = new Set();
  const waves = new Map(); // by stream
  const heard = new Map(); // by stream: what the mixer last said, and a word for its state
  const repaint = () => views.forEach((view) => view());

  function initialize({ model }) {
    const isOurs = () => model.get("page") === PAGE;
    const onReport = (data) => {
      for (const s of data.streams.filter((one) => !isOver(one.stream))) {
        note(s.stream, { ...s, state: s.is_playing ? "playing" : "filling" });
      }
      for (const event of data.events) onEvent(event, model.get("rate_hz"));
      if (!forward(model, data)) onGone();
      repaint();
    };
    const onState = () => {
      if (!sound) return;
      if (!tell(model, { type: "state", state: sound.context.state, mode: sound.mode })) onGone();
      repaint();
    };
    /** What the page still holds is of a kernel that ended: nobody could stop it. */
    const onGone = () => {
      isGone = true;
      sound?.close();
      sound = null;
      for (const stream of heard.keys()) if (!isOver(stream)) note(stream, { state: "stopped", buffered_s: 0 });
    };
    const onMessage = (message, buffers) => {
      if (!isOurs() || !sound) return;
      if (message.type === "pcm") receive(model, message, buffers[0]);
      else deliver(model, message);
      if (message.type === "stop") note(message.stream, { state: message.state ?? "stopped", buffered_s: 0 });
      repaint();
    };
    const onPage = () => {
      if (isOurs() && !sound) {
        isGone = false;
        sound = new Sound(model.get("rate_hz"), WORKLET, onReport, onState);
        sound.ready.then(() => {
          configure();
          mix();
          onState();
        });
      } else if (!isOurs() && sound) {
        sound.close(); // another tab took over
        sound = null;
        heard.clear();
      }
      if (!model.get("page")) wait();
      repaint();
    };
    const configure = () =>
      sound?.send({ type: "set", prebuffer_s: model.get("prebuffer_s"), tap: model.get("tap") });
    const mix = () => {
      const [muted, solo] = [model.get("muted"), model.get("solo")];
      for (const [stream] of model.get("streams")) {
        sound?.send({ type: "gain", stream, gain: Number(isAudible(stream, muted, solo)) });
      }
      forget(model.get("streams"));
      repaint();
    };
    let hasLeft = false;
    const onLeave = () => {
      hasLeft = true;
      if (isOurs()) tell(model, { type: "bye" });
    };
    const onBack = () => (hasLeft = false); // the browser may keep a page it went away from
    /** For the sound, which goes on here when the page that has it leaves, with or without a word. */
    const wait = () => !hasLeft && tell(model, { type: "wait" });
    // Any click or key lets the browser play: Speak alone is enough.
    const onGesture = () => sound && !sound.isRunning && sound.enable();
    const heartbeat = setInterval(() => {
      if (!isOurs()) wait();
      else if (sound) onState();
      else if (tell(model, { type: "hello" })) onPage(); // the connection came back
    }, HEARTBEAT_MS);
    globalThis.addEventListener("pagehide", onLeave);
    globalThis.addEventListener("pageshow", onBack);
    GESTURES.forEach((name) => document.addEventListener(name, onGesture, true));
    model.on("msg:custom", onMessage);
    model.on("change:page", onPage);
    model.on("change:prebuffer_s change:tap", configure);
    model.on("change:streams change:muted change:solo", mix);
    model.on("change:waiting change:host_stalls", repaint);
    tell(model, { type: "hello" });
    onPage();
    return () => {
      clearInterval(heartbeat);
      globalThis.removeEventListener("pagehide", onLeave);
      globalThis.removeEventListener("pageshow", onBack);
      GESTURES.forEach((name) => document.removeEventListener(name, onGesture, true));
      model.off("msg:custom", onMessage);
      sound?.close();
      sound = null;
    };
  }

  function onEvent(event, rateHz) {
    const { stream, kind } = event;
    if (kind === "underrun") {
      waves.get(stream)?.dry.push(event.at_s);
      note(stream, { state: "ran dry" });
    } else if (kind === "done") {
      const { underruns, silent_s } = event;
      note(stream, { state: "played", underruns, silent_s, played_s: event.played / rateHz, buffered_s: 0 });
    }
  }

  function note(stream, facts) {
    heard.set(stream, { ...blank(stream), ...facts });
    if (waves.has(stream)) waves.get(stream).played_s = heard.get(stream).played_s;
  }

  function isOver(stream) {
    return OVER.includes(heard.get(stream)?.state);
  }

  function blank(stream) {
    return heard.get(stream) ?? { state: "waiting", played_s: 0, buffered_s: 0, underruns: 0, silent_s: 0 };
  }

  /** Streams the kernel no longer lists have no row. */
  function forget(streams) {
    const known = new Set(streams.map(([stream]) => stream));
    for (const map of [waves, heard]) {
      for (const stream of map.keys()) if (!known.has(stream)) map.delete(stream);
    }
  }

  /** PCM goes to the ear; a copy of its outline to the picture. */
  function receive(model, message, view) {
    const { stream, end, chunks } = message;
    const samples = floats(view);
    if (!waves.has(stream)) waves.set(stream, new Wave());
    waves.get(stream).add(chunks, samples, model.get("rate_hz"));
    note(stream, {});
    deliver(model, { type: "pcm", stream, end, samples });
  }

  /** Hands over now, or later in the same order where network jitter is being imitated. */
  function deliver(model, message) {
    const jitterMs = 1000 * model.get("jitter_s") * Math.random();
    const now = performance.now();
    releaseMs = Math.max(releaseMs, now + jitterMs);
    if (releaseMs <= now) sound.send(message);
    else setTimeout(() => sound?.send(message), releaseMs - now);
  }

  /** Status at 5 Hz, what the listener noticed at once. False when the kernel is gone. */
  function forward(model, { events, streams }) {
    const now = performance.now();
    if (!events.length && now - reportedMs < STATUS_EVERY_MS) return true; // never one a chunk
    reportedMs = now;
    const taps = events.filter((e) => e.tap?.length).map((e) => e.tap.buffer);
    const bare = events.map(({ tap, ...event }) => ({ ...event, tapped: tap?.length ?? 0 }));
    return tell(model, { type: "status", sent_ms: Date.now(), events: bare, streams }, taps);
  }

  function render({ model, el }) {
    const rows = new Rows(model, el, async () => {
      if (model.get("page") !== PAGE) tell(model, { type: "claim" });
      else await sound?.enable();
      repaint();
    });
    const paint = () => {
      const page = model.get("page");
      rows.paint({ block: blockWords(sound, page), words: isGone ? GONE : words(sound, page), waves, heard });
    };
    views.add(paint);
    paint();
    const resizes = new ResizeObserver(paint);
    resizes.observe(el);
    model.on("change:highlight", paint);
    return () => {
      resizes.disconnect();
      model.off("change:highlight", paint);
      views.delete(paint);
    };
  }

  return { initialize, render };
};

/** What the button says that makes sound possible; "" when nothing stands in its way. */
function blockWords(sound, page) {
  if (page && page !== PAGE) return "Play in this tab";
  if (!sound || sound.isRunning) return "";
  const { seconds, skipped_s: skipped } = sound.held;
  if (!seconds) return "";
  const lost = skipped ? `; the first ${skipped.toFixed(1)} s are skipped` : "";
  return `Click to hear: ${seconds.toFixed(1)} s wait for you${lost}`;
}

function words(sound, page) {
  if (page && page !== PAGE) return "Sound plays in another tab.";
  if (!sound) return "Connecting to the kernel.";
  if (sound.isRefused) return "The browser starts no sound: this machine may have no sound device.";
  if (!sound.isRunning) return "The browser plays no sound before the first click or key.";
  return sound.node ? "" : "No worklet: open over localhost or https for gapless sound.";
}
