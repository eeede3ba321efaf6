// The live timeline: binary deltas in, one canvas frame for each at most; freezing turns the same
// records into a Plotly figure.
import { themeOf } from "./colours.js";
import { draw, drawSlackScale } from "./draw.js";
import { chunkText, figureOf, loadPlotly, spanText } from "./inspect.js";
import { MARKS, keyTo, nameParts } from "./names.js";
import { tell } from "./page.js";
import { liveText } from "./strip.js";
import { hit, layoutOf, zoomed } from "./places.js";
import { Tracks, summary } from "./tracks.js";
import { requestName } from "./words.js";

const NAMES = ["LM", "codec (background)", "codec (urgent)", "deadlines"];
const AHEAD = 0.19; // share of the window right of "now": deadlines that are still to come
const SILENCE_MS = 3000; // no message for so long: the kernel is gone
const PRESENCE_MS = 10000; // pages say that they are there: the kernel forgets those it no longer hears
const REDUCED_MS = 500; // frame distance when the user asked for less motion
const MANY_BARS = 3000;
const RESTS_MS = 60; // a pointer that passes over many chunks tells the kernel of none
const KEYS_REST_MS = 150; // nor does an arrow key that is held down

export default () => {
  let tracks = null;
  let heardMs = 0; // when the kernel was last heard
  let lagMs = 0; // least delay seen: kernel and browser clocks differ by a constant
  let frozen = null; // {view, seen, isPlain} while the view stands still; plain: on the canvas
  const views = new Set();

  function initialize({ model }) {
    tracks = new Tracks(model.get("schema"), model.get("keep_s"));
    heardMs = performance.now();
    lagMs = Infinity;
    const onMessage = (message, buffers) => {
      if (message.type === "ghost") {
        tracks.haunt(message, buffers);
        if (tracks.ghost && message.is_new) frozen = standStill(model, message.now, "asked", true);
        views.forEach((view) => view.show());
      }
      if (message.type !== "delta") return;
      heardMs = performance.now();
      tracks.add(message, buffers);
      reportLag(model, message.sent_ms);
      views.forEach((view) => view.soon());
    };
    const onVisibility = () => tell(model, { type: "page", hidden: document.hidden });
    const presence = setInterval(onVisibility, PRESENCE_MS);
    const watch = setInterval(() => views.forEach((view) => view.alive()), 1000);
    model.on("msg:custom", onMessage);
    document.addEventListener("visibilitychange", onVisibility);
    tell(model, { type: "hello", hidden: document.hidden });
    return () => {
      clearInterval(watch);
      clearInterval(presence);
      tell(model, { type: "page", hidden: true }); // nobody sees it any more
      model.off("msg:custom", onMessage);
      document.removeEventListener("visibilitychange", onVisibility);
    };
  }

  /** A browser that falls behind asks for fewer frames; the engine never waits for it. */
  function reportLag(model, sentMs) {
    const delay = Date.now() - sentMs;
    lagMs = Math.min(lagMs, delay);
    if (delay - lagMs > 1000) {
      lagMs = delay;
      tell(model, { type: "slow" });
    }
  }

  function liveView(model) {
    const { now } = tracks;
    const length = model.get("window_s");
    const [margin, note] = [model.get("margin_s"), model.get("note")];
    return { from: now - length, to: now + AHEAD * length, now, margin, note };
  }

  /** The window that ends at `now`; plain stays on the canvas, else it can be zoomed. */
  function standStill(model, now, mark, isPlain) {
    const length = model.get("window_s");
    const view = { from: now - length, to: now + AHEAD * length, now, margin: model.get("margin_s"), mark };
    // All that is kept is there to pan to, unless that is more than SVG can take.
    const isMuch = isPlain || tracks.spans.length > MANY_BARS;
    const from = isMuch ? view.from : Math.min(view.from, tracks.now - tracks.keepS);
    return { view, seen: tracks.within(from, Infinity), isPlain };
  }

  function render({ model, el }) {
    el.classList.add("vs-timeline");
    el.innerHTML = `
      <div class="vs-bar"><span class="vs-legend"></span>
        <button class="vs-haunt jupyter-button" aria-pressed="true" hidden
          title="Show what would have been (G)">Ghost lanes</button>
        <button class="vs-zoom jupyter-button" hidden
          title="This moment as a figure to zoom">Zoom</button>
        <button class="vs-freeze jupyter-button" aria-pressed="false" title="Stand still and zoom (Space)"></button></div>
      <div class="vs-words" role="status" hidden></div>
      <div class="vs-stage"><canvas tabindex="0" role="img" aria-keyshortcuts="Space ArrowLeft ArrowRight + - G"></canvas>
        <div class="vs-plot" hidden></div><div class="vs-tip" hidden></div>
        <div class="vs-making" role="status" hidden></div>
        <div class="vs-gone" role="alert" hidden></div></div>`;
    el.querySelector(".vs-legend").innerHTML = keyTo(MARKS);
    const [canvas, plot, tip, making, gone] = ["canvas", ".vs-plot", ".vs-tip", ".vs-making", ".vs-gone"].map((q) =>
      el.querySelector(q),
    );
    const button = el.querySelector(".vs-freeze");
    const [haunt, zoomIn, words, stage] = [".vs-haunt", ".vs-zoom", ".vs-words", ".vs-stage"].map((q) =>
      el.querySelector(q),
    );
    const g = canvas.getContext("2d");
    let theme = themeOf(el);
    let box = layoutOf(100, 100);
    let selected = null;
    let waiting = 0;
    let drawnMs = 0;
    let saidMs = 0;
    let wasHaunted = false;
    const isReduced = matchMedia("(prefers-reduced-motion: reduce)").matches;

    const current = () => {
      const view = frozen ? frozen.view : liveView(model);
      const seen = frozen ? frozen.seen : tracks.within(view.from, view.to);
      return { view, seen: model.get("ghosts") ? seen : { ...seen, ghost: null } };
    };
    const isHaunted = () => {
      const { from, to } = frozen ? frozen.view : liveView(model);
      return tracks.isHaunted(from, to);
    };
    const paint = () => {
      waiting = 0;
      if (!canvas.clientWidth || (isReduced && performance.now() - drawnMs < REDUCED_MS)) return;
      if (isHaunted() !== wasHaunted) return place(); // ghosts came into the window, or left it
      drawnMs = performance.now();
      const { view, seen } = current();
      draw(g, box, seen, view, theme, NAMES, selected);
      drawSlackScale(g, box, seen.chunks, view, theme);
      if (drawnMs - saidMs > 2000) {
        saidMs = drawnMs;
        canvas.setAttribute("aria-label", summary(tracks, model.get("window_s")));
      }
    };
    const soon = () => {
      if (!waiting && !document.hidden && !frozen) waiting = requestAnimationFrame(paint);
    };
    const resize = () => {
      const ratio = globalThis.devicePixelRatio || 1;
      const { clientWidth: width, clientHeight: height } = canvas;
      if (!width) return;
      theme = themeOf(el); // unknown until the view is in the page
      [canvas.width, canvas.height] = [width * ratio, height * ratio];
      g.setTransform(ratio, 0, 0, ratio, 0, 0);
      box = layoutOf(width, height, wasHaunted && model.get("ghosts"));
      paint();
    };
    /** The ghosts' button and words, and room for their lanes. */
    const place = () => {
      wasHaunted = isHaunted();
      const isShown = wasHaunted && model.get("ghosts");
      haunt.hidden = !wasHaunted;
      haunt.setAttribute("aria-pressed", String(isShown));
      words.hidden = !isShown;
      words.textContent = isShown ? `↳ What if ${tracks.ghost.words}` : "";
      stage.classList.toggle("vs-haunted", isShown);
      resize();
    };
    const alive = () => {
      const isGone = performance.now() - heardMs > SILENCE_MS;
      gone.hidden = !isGone;
      el.closest(".vs-workbench")?.classList.toggle("vs-lost", isGone);
      if (isGone) gone.textContent = model.get("ended") || "The kernel is gone or busy. Re-run the cell to go on.";
    };

    const freeze = (on) => {
      frozen = on ? standStill(model, tracks.now, "pause", false) : null;
      views.forEach((view) => view.show());
    };
    const show = async () => {
      place();
      button.setAttribute("aria-pressed", String(Boolean(frozen)));
      button.innerHTML = `<i class="fa fa-${frozen ? "play" : "pause"}"></i> ${frozen ? "Live" : "Inspect"}`;
      zoomIn.hidden = !frozen?.isPlain;
      making.hidden = !frozen || frozen.isPlain;
      if (!frozen || frozen.isPlain) {
        plot.hidden = true;
        canvas.style.visibility = "";
        return paint();
      }
      making.textContent = "Stands still; the figure to zoom is being made …";
      try {
        const plotly = await loadPlotly(model);
        if (!frozen || frozen.isPlain) return;
        const { data, layout } = figureOf(current().seen, frozen.view, theme, tracks.schema, NAMES, model.get("spoken"));
        plot.hidden = false;
        making.hidden = true;
        if (document.activeElement === canvas) button.focus(); // what is hidden takes no keys
        canvas.style.visibility = "hidden";
        const sized = { ...layout, width: canvas.clientWidth, height: canvas.clientHeight };
        await plotly.react(plot, data, sized, { displaylogo: false });
        plot.removeAllListeners?.("plotly_click");
        plot.removeAllListeners?.("plotly_hover");
        plot.on("plotly_click", (event) => select(chunkAt(event.points[0])));
        plot.on("plotly_hover", (event) => pointed(chunkAt(event.points[0]) ?? {}));
      } catch {
        plot.hidden = true; // eval is forbidden here: the frozen canvas stays, with hover
        making.textContent = "Stands still; this page allows no figure to zoom.";
        canvas.style.visibility = "";
        paint();
      }
    };
    const chunkAt = ({ text }) =>
      frozen.seen.chunks.find((c) => chunkText(c, tracks.schema, model.get("spoken")).join("<br>") === text);

    let telling = 0;
    const select = (chunk, restMs = 0) => {
      selected = chunk || null;
      clearTimeout(telling);
      const say = () => tell(model, { type: "select", request_id: chunk.request_id, index: chunk.index });
      if (chunk && restMs) telling = setTimeout(say, restMs);
      else if (chunk) say();
      paint();
    };
    const point = (event) => {
      const { view, seen } = current();
      const found = hit(box, view, seen, event.offsetX, event.offsetY);
      tip.hidden = !found;
      canvas.style.cursor = found ? "pointer" : "";
      if (!found) return;
      tip.innerHTML = told(found).join("<br>");
      tip.style.left = `${Math.min(event.offsetX + 14, Math.max(0, box.width - 250))}px`;
      tip.style.top = `${event.offsetY > box.height / 2 ? event.offsetY - tip.clientHeight - 12 : event.offsetY + 14}px`;
      if (found.kind === "chunk" || found.kind === "live") pointed(found.row);
    };
    const told = ({ kind, row }) => {
      const spoken = model.get("spoken");
      if (kind === "heard") return [`<b>listener stall</b>, ${requestName(row.stream, spoken)}`, "click for why"];
      if (kind === "live") return liveText(row, spoken);
      if (kind === "chunk") return chunkText(row, tracks.schema, spoken);
      const text = spanText(row, tracks.schema);
      return kind === "ghost" ? ["<i>what if</i>", ...text] : text;
    };
    let pointedAt = "";
    let pointing = 0;
    const pointed = ({ request_id, index }) => {
      if (request_id === undefined) return; // no chunk
      if (pointedAt === `${request_id}/${index}`) return;
      pointedAt = `${request_id}/${index}`;
      clearTimeout(pointing);
      pointing = setTimeout(() => tell(model, { type: "point", request_id, index }), RESTS_MS);
    };
    canvas.onpointermove = point;
    canvas.onpointerleave = () => (tip.hidden = true);
    canvas.onclick = (event) => {
      const { view, seen } = current();
      const found = hit(box, view, seen, event.offsetX, event.offsetY);
      if (found?.kind === "heard") tell(model, { type: "select-heard", ...found.row });
      else select(found?.kind === "chunk" ? found.row : null);
    };
    canvas.onkeydown = (event) => {
      if (event.key === " ") freeze(!frozen);
      else if (event.key === "ArrowLeft" || event.key === "ArrowRight") step(event.key === "ArrowLeft" ? -1 : 1);
      else if (event.key === "g" && wasHaunted) toggle();
      else if (event.key === "+" || event.key === "-") zoom(event.key === "+" ? -1 : 1);
      else return;
      event.preventDefault();
      event.stopPropagation(); // notebook shortcuts use the same keys
    };
    const step = (by) => {
      const { seen } = current();
      const at = seen.chunks.indexOf(selected);
      const next = at < 0 ? -1 : Math.max(0, Math.min(seen.chunks.length - 1, at + by));
      select(seen.chunks.at(next), KEYS_REST_MS);
    };
    const zoom = (by) => {
      model.set("window_s", zoomed(model.get("window_s"), by));
      model.save_changes();
      if (frozen) frozen = standStill(model, frozen.view.now, frozen.view.mark, frozen.isPlain);
      views.forEach((view) => view.show());
    };
    button.onclick = () => freeze(!frozen);
    const toggle = () => {
      model.set("ghosts", !model.get("ghosts"));
      model.save_changes();
    };
    haunt.onclick = toggle;
    zoomIn.onclick = () => {
      frozen = standStill(model, frozen.view.now, frozen.view.mark, false);
      views.forEach((view) => view.show());
    };
    model.on("change:ghosts", show);

    const retheme = () => {
      theme = themeOf(el);
      show();
    };
    const sizes = new ResizeObserver(resize);
    sizes.observe(canvas);
    const themes = new MutationObserver(() => requestAnimationFrame(retheme));
    themes.observe(document.body, { attributeFilter: ["data-jp-theme-light", "data-jp-theme-name"] });
    const view = { soon, alive, show };
    views.add(view);
    show();
    const naming = requestAnimationFrame(() => nameParts(el));
    return () => {
      clearTimeout(telling);
      views.delete(view);
      model.off("change:ghosts", show);
      sizes.disconnect();
      themes.disconnect();
      cancelAnimationFrame(waiting);
      cancelAnimationFrame(naming);
      clearTimeout(pointing);
      globalThis.__voxservePlotly?.then((plotly) => plotly.purge(plot), () => {});
    };
  }

  return { initialize, render };
};
