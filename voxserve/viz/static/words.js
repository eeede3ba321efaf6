// Times, changes and requests as all views write them. No DOM, so that node can test it.

const ONE_CHANGE_S = 0.25; // marks so near are of one change
const LINE_CHARS = 90; // of such a change
const NAME_CHARS = 32;

/** What was changed at one moment, such as by a preset, in one line: {time_s, text} of each. */
export function changes(marks) {
  const found = [];
  for (const { time_s, text } of marks) {
    const last = found.at(-1);
    if (last && time_s - last.time_s < ONE_CHANGE_S) last.texts.push(text);
    else found.push({ time_s, texts: [text] });
  }
  return found.map(({ time_s, texts }) => ({ time_s, text: oneLine(texts) }));
}

function oneLine(texts) {
  let count = 1;
  while (count < texts.length && texts.slice(0, count + 1).join(" · ").length <= LINE_CHARS) count += 1;
  const more = texts.length > count ? ` and ${texts.length - count} more` : "";
  return texts.slice(0, count).join(" · ") + more;
}

/** 0.0123 -> "12 ms", 1.5 -> "1.50 s". */
export function seconds(value) {
  if (!Number.isFinite(value)) return "–";
  return Math.abs(value) < 1 ? `${Math.round(value * 1000)} ms` : `${value.toFixed(2)} s`;
}

/** A request by the text that is spoken where the page knows it ({number: text}), as HTML. */
export function requestName(number, spoken) {
  const text = spoken[number];
  return text ? `“${escaped(shortened(text))}” (request ${number})` : `request ${number}`;
}

function shortened(text) {
  return text.length > NAME_CHARS ? `${text.slice(0, NAME_CHARS).replace(/\s+\S*$/, "")} …` : text;
}

function escaped(text) {
  return text.replace(/[&<>"]/g, (c) => `&#${c.charCodeAt(0)};`);
}
