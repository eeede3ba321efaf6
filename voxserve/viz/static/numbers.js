// The numbers that matter, each with a spark line of its last minute, or all of them as a table.

const KEPT = 120; // points of history: one minute at 2 Hz
const SVG = "http://www.w3.org/2000/svg";

/** Points of a spark line in a 100 x 24 box; values that are missing leave a gap. */
export function sparkPath(values) {
  const known = values.filter((v) => v !== null);
  const top = Math.max(...known, 1e-9);
  let path = "";
  let isOpen = false;
  values.forEach((value, i) => {
    if (value === null) {
      isOpen = false;
      return;
    }
    const x = (100 * i) / Math.max(1, KEPT - 1);
    const y = 23 - (22 * value) / top;
    path += `${isOpen ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`;
    isOpen = true;
  });
  return path;
}

export default () => {
  const history = new Map(); // key -> values
  let tiles = [];
  const views = new Set();

  function initialize({ model }) {
    const onMessage = (message) => {
      if (message.type !== "numbers") return;
      tiles = message.tiles;
      for (const { key, spark } of tiles) {
        const values = history.get(key) ?? [];
        values.push(spark);
        if (values.length > KEPT) values.shift();
        history.set(key, values);
      }
      views.forEach((view) => view());
    };
    model.on("msg:custom", onMessage);
    return () => model.off("msg:custom", onMessage);
  }

  function render({ el }) {
    el.classList.add("vs-numbers");
    el.innerHTML = `<button class="vs-as-table jupyter-button" aria-pressed="false">Table</button>
      <div class="vs-tiles"></div><table class="vs-table" hidden></table>`;
    const [button, grid, table] = el.children;
    const shown = new Map();
    button.onclick = () => {
      table.hidden = !table.hidden;
      grid.hidden = !table.hidden;
      button.setAttribute("aria-pressed", String(!table.hidden));
      paint();
    };
    const paint = () => {
      if (document.hidden) return;
      if (!table.hidden) return fillTable(table, tiles);
      for (const tile of tiles) {
        if (!shown.has(tile.key)) shown.set(tile.key, addTile(grid, tile));
        updateTile(shown.get(tile.key), tile, history.get(tile.key));
      }
    };
    views.add(paint);
    paint();
    return () => views.delete(paint);
  }

  return { initialize, render };
};

function addTile(grid, tile) {
  const element = document.createElement("div");
  element.className = "vs-tile";
  element.title = tile.help;
  element.innerHTML = `<div class="vs-name"></div><div class="vs-value"></div><div class="vs-note"></div>`;
  element.querySelector(".vs-name").textContent = tile.label;
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "0 0 100 24");
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("aria-hidden", "true");
  svg.append(document.createElementNS(SVG, "path"));
  element.append(svg);
  grid.append(element);
  return element;
}

function updateTile(element, tile, values) {
  element.querySelector(".vs-value").textContent = tile.value;
  element.querySelector(".vs-note").textContent = tile.note;
  element.classList.toggle("vs-bad", tile.bad);
  element.querySelector("path").setAttribute("d", sparkPath(values));
}

/** The same numbers in words, for screen readers and for copying. */
function fillTable(table, tiles) {
  const rows = tiles.map(({ label, value, note, bad, help }) => {
    const row = document.createElement("tr");
    for (const text of [label, value, note, bad ? "needs attention" : "", help]) {
      row.insertCell().textContent = text;
    }
    return row;
  });
  table.replaceChildren(...rows);
}
