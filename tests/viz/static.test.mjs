// Maths of the live view and the mixer. Run with: node --test tests/viz/static.test.mjs
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";

/** A static file as a module; a data URL makes node take it for one whatever its folder says. */
function load(...names) {
  const folder = new URL("../../voxserve/viz/static/", import.meta.url);
  const sources = names.map((name) => readFileSync(new URL(name, folder), "utf8"));
  const source = sources.join("\n").replace(/^import \{[^}]*\} from "\.\/[\w.]+";\n/gm, "");
  return import(`data:text/javascript,${encodeURIComponent(source)}`);
}

const { Tracks, busyBefore, decodeRows, isHostStall, summary } = await load("tracks.js");
const { hit, layoutOf, slackRange, slackY, stripMarks, stripX, xOf, zoomed } = await load("places.js");
const { Mixer, floats } = await load("mixer.js");
const { Held } = await load("held.js");
const { Wave } = await load("colours.js", "shapes.js", "wave.js");
const { isAudible, streamWords, toggled } = await load("names.js", "rows.js");
const { sparkPath } = await load("numbers.js");
const { chunkText, emptyWords, figureOf } = await load(
  ...["page.js", "words.js", "tracks.js", "places.js", "colours.js", "inspect.js"],
);
const { changes, requestName, seconds } = await load("words.js");

const SCHEMA = {
  spans: ["lane", "kind", "batch", "start_s", "end_s"],
  chunks: ["index", "urgency", "ready_s", "launched_s", "delivered_s", "deadline_s", "slack_s", "stall_s"],
  lanes: ["lm", "background", "urgent"],
  kinds: ["prefill", "decode", "codec"],
  urgencies: ["urgent", "background"],
  reasons: ["first chunk"],
  live: ["request_id", "slack_s"],
};

function table(rows) {
  return new DataView(new Float32Array(rows.flat()).buffer);
}

function delta(now, spans, chunks, more = {}) {
  return [{ now, t0: 100, marks: [], delays: [], heard: [], ...more }, [table(spans), table(chunks), table(more.live ?? [])]];
}

test("times are moved by t0, lengths are not, NaN stays", () => {
  const buffer = new Float32Array([1, 2.5, NaN]).buffer;
  const [row] = decodeRows(buffer, ["start_s", "stall_s", "deadline_s"], 100);
  assert.deepEqual(row, { start_s: 101, stall_s: 2.5, deadline_s: NaN });
});

test("old records are dropped, a chunk due later is kept", () => {
  const tracks = new Tracks(SCHEMA, 10);
  tracks.add(...delta(101, [[0, 1, 1, 0, 1]], [[1, 1, 0, 0.1, 0.2, 30, 1, 0]]));
  tracks.add(...delta(120, [[0, 1, 1, 19, 20]], []));
  assert.equal(tracks.spans.length, 1);
  assert.equal(tracks.chunks.length, 1);
  tracks.add(...delta(150, [], [], { reset: true }));
  assert.equal(tracks.spans.length + tracks.chunks.length, 0);
});

test("busy shares count only the part inside the window", () => {
  const tracks = new Tracks(SCHEMA, 10);
  tracks.add(...delta(104, [[0, 1, 1, -1, 1], [1, 2, 1, 2, 3]], []));
  assert.deepEqual(tracks.busy(100, 104), [0.25, 0.25, 0]);
  assert.match(summary(tracks, 4), /^0 stalls in the last 4 s, lm lane 25 % busy/);
});

test("hit finds the span under the pointer and the nearest deadline", () => {
  const tracks = new Tracks(SCHEMA, 10);
  tracks.add(...delta(104, [[0, 1, 1, 1, 2], [0, 1, 1, 3, 3.5]], [[1, 1, 0, 1, 2, 3, 0.5, 0]]));
  const box = layoutOf(800, 300);
  const view = { from: 100, to: 104, now: 104 };
  const seen = tracks.within(100, 104);
  const y = box.lanes[0].y + 2;
  assert.equal(hit(box, view, seen, xOf(box, view, 101.5), y).row.start_s, 101);
  assert.equal(hit(box, view, seen, xOf(box, view, 102.5), y), null);
  const due = hit(box, view, seen, xOf(box, view, 103) + 4, box.deadlines.y + 4);
  assert.equal(due.kind, "chunk");
  const dot = slackY(box, slackRange(seen.chunks), 0.5);
  assert.equal(hit(box, view, seen, xOf(box, view, 101), dot).kind, "chunk");
});

test("a click on a stall's triangle finds the stalled chunk, one low in the row the listener's", () => {
  const tracks = new Tracks(SCHEMA, 10);
  const chunks = [[1, 1, 0, 1, 2, 1.5, -0.5, 0.5], [2, 1, 0, 1, 1.2, 2.02, 0.5, 0]];
  tracks.add(...delta(104, [], chunks, { heard: [{ time_s: 101.5, gap_s: 0, stream: 4 }] }));
  const box = layoutOf(800, 300);
  const view = { from: 100, to: 104, now: 104 };
  const seen = tracks.within(100, 104);
  const { y, h } = box.deadlines;
  const stalled = hit(box, view, seen, xOf(box, view, 102), y + h / 2);
  assert.deepEqual([stalled.kind, stalled.row.index], ["chunk", 1]);
  assert.equal(hit(box, view, seen, xOf(box, view, 101.5), y + h - 3).row.stream, 4);
  assert.equal(hit(box, view, seen, xOf(box, view, 101.5), y + 3).kind, "chunk");
});

test("a window may hold more records than a call takes arguments", () => {
  const tracks = new Tracks(SCHEMA, 10);
  const count = 200000;
  const spans = new Float32Array(5 * count).fill(1);
  tracks.add({ now: 101, t0: 100, marks: [], delays: [], heard: [] }, [new DataView(spans.buffer), table([]), table([])]);
  assert.equal(tracks.spans.length, count);
});

test("zooming goes to the next length, from any, and stops at the ends", () => {
  assert.deepEqual([zoomed(8, 1), zoomed(8, -1)], [15, 4]);
  assert.deepEqual([zoomed(10, 1), zoomed(10, -1)], [15, 8]);
  assert.deepEqual([zoomed(30, 1), zoomed(30, -1)], [30, 28]);
  assert.equal(zoomed(0.25, -1), 0.25);
});

test("ghosts are kept until there are others, and lie in rows of their own", () => {
  const tracks = new Tracks(SCHEMA, 10);
  tracks.add(...delta(104, [], []));
  const none = table([]);
  tracks.haunt({ name: "x", words: "x", t0: 100 }, [table([[0, 1, 1, 1, 2]]), none, none, none]);
  const seen = tracks.within(100, 104);
  const box = layoutOf(800, 320, true);
  const found = hit(box, { from: 100, to: 104 }, seen, xOf(box, { from: 100, to: 104 }, 101.5), box.ghosts[0].y + 2);
  assert.equal(found.kind, "ghost");
  assert.equal(tracks.isHaunted(100, 104), true);
  assert.equal(tracks.isHaunted(102.5, 110), false, "live went on: no empty lanes");
  assert.ok(!tracks.within(102.5, 110).ghost);
  tracks.haunt({ name: "", words: "", t0: 100 }, [none, none, none, none]);
  assert.ok(!tracks.within(100, 104).ghost);
});

test("what happened beside a late ghost comes with it, once", () => {
  const tracks = new Tracks(SCHEMA, 10);
  const [old, recent] = [[0, 1, 1, 1, 2], [1, 1, 1, 55, 56]];
  const [early, late] = [[1, 1, 0, 1, 2, 3, 1, 0], [2, 1, 0, 55, 56, 57, 1, 0]];
  tracks.add(...delta(157, [old, recent], [early, late]));
  assert.equal(tracks.within(100, 160).spans.length, 1, "the first has been forgotten");
  tracks.haunt({ name: "x", words: "x", t0: 100 }, [table([old]), table([]), table([old, recent]), table([early, late])]);
  const seen = tracks.within(100, 160);
  assert.deepEqual(seen.spans.map((s) => s.end_s), [102, 156]);
  assert.deepEqual(seen.chunks.map((c) => c.index), [1, 2]);
});

test("the strip puts running chunks at their slack and stacks those that would overlap", () => {
  const tracks = new Tracks(SCHEMA, 10);
  tracks.add(...delta(104, [], [], { live: [[7, 0.5], [8, 0.5], [9, -9]] }));
  const box = layoutOf(800, 300);
  const marks = stripMarks(box, tracks.live);
  assert.equal(marks[0].x, stripX(box, 0.5));
  assert.ok(marks[1].y < marks[0].y && marks[1].x === marks[0].x);
  assert.equal(marks[2].x, stripX(box, -0.5), "what is later than the axis shows at its end");
  const seen = tracks.within(100, 104);
  assert.equal(hit(box, { from: 100, to: 104 }, seen, marks[1].x, marks[1].y).row.request_id, 8);
  assert.match(summary(tracks, 4), /3 chunks under way/);
});

test("ghosts lie under their lanes and everything stays on the canvas", () => {
  for (const hasGhosts of [false, true]) {
    const box = layoutOf(800, 320, hasGhosts);
    box.lanes.forEach((lane, i) => {
      assert.ok(box.ghosts[i].y >= lane.y + lane.h);
      assert.equal(box.ghosts[i].h > 4, hasGhosts);
    });
    assert.ok(box.ghosts[2].y + box.ghosts[2].h <= box.deadlines.y);
    assert.ok(box.slack.y >= box.deadlines.y + box.deadlines.h);
    assert.ok(box.strip.y + box.strip.h < box.height && box.bottom < box.strip.y);
  }
});

test("the slack axis covers what is there, within limits", () => {
  assert.deepEqual(slackRange([]), { top: 0.33, floor: -0.033 });
  assert.equal(slackRange([{ slack_s: 50 }]).top, 4);
  assert.equal(slackRange([{ slack_s: -50 }]).floor, -0.33);
});

test("seconds are worded", () => {
  assert.equal(seconds(0.0123), "12 ms");
  assert.equal(seconds(1.5), "1.50 s");
  assert.equal(seconds(NaN), "–");
});

test("spark lines break where a value is missing", () => {
  assert.equal(sparkPath([1, null, 1]).split("M").length - 1, 2);
});

test("the inspected figure tells met, missed and stalled deadlines apart", () => {
  const chunk = { request_id: 1, index: 1, urgency: 1, reason: 0, num_frames: 10, is_last: 0,
    ready_s: 1, promoted_s: NaN, launched_s: 1, delivered_s: 2, slack_s: 0.1, stall_s: 0 };
  const chunks = [{ ...chunk, deadline_s: 3 }, { ...chunk, deadline_s: 1.5, stall_s: 0.5 }];
  const seen = { spans: [{ lane: 0, kind: 1, batch: 1, start_s: 1, end_s: 2, queued_s: 1 }], chunks, marks: [], heard: [] };
  const view = { from: 0, to: 4, now: 4, margin: 0.1 };
  const { data } = figureOf(seen, view, {}, SCHEMA, ["LM", "b", "u", "deadlines"]);
  const counts = Object.fromEntries(data.map((t) => [t.name, t.x.length]));
  assert.equal(counts["deadline met"], 1);
  assert.equal(counts["deadline missed"], 1);
  assert.equal(counts["server stall"], 1);
  assert.match(chunkText(chunks[1], SCHEMA).at(-1), /late by 500 ms/);
  const queued = { ...chunks[1], ready_s: 1, head_s: 3, launched_s: 3.25, delivered_s: 3.5 };
  assert.match(chunkText(queued, SCHEMA)[2], /waited 250 ms/); // behind its predecessor is no wait
});

function pcm(count, first = 0) {
  const view = new DataView(new ArrayBuffer(2 * count));
  for (let i = 0; i < count; i += 1) view.setInt16(2 * i, first + i, true);
  return floats(view);
}

function play(mixer, blocks, size = 4, start = 0) {
  const events = [];
  for (let i = 0; i < blocks; i += 1) {
    events.push(...mixer.render(new Float32Array(size), (start + i) * size));
  }
  return events;
}

test("samples come out exactly, whatever the block and message sizes", () => {
  const mixer = new Mixer(1);
  mixer.handle({ type: "set", prebuffer_s: 0, tap: true });
  mixer.handle({ type: "pcm", stream: 7, samples: pcm(5) });
  mixer.handle({ type: "pcm", stream: 7, samples: pcm(6, 5), end: true });
  const done = play(mixer, 3).at(-1);
  assert.equal(done.kind, "done");
  assert.deepEqual([...done.tap].map((v) => v * 32768), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
  assert.equal(done.underruns, 0);
});

test("running dry is an underrun, its gap is measured, an ended stream is none", () => {
  const mixer = new Mixer(1);
  mixer.handle({ type: "set", prebuffer_s: 0 });
  mixer.handle({ type: "pcm", stream: 1, samples: pcm(6) });
  const first = play(mixer, 4);
  assert.deepEqual(first.map((e) => e.kind), ["start", "underrun"]);
  mixer.handle({ type: "pcm", stream: 1, samples: pcm(4, 6), end: true });
  const second = play(mixer, 1, 4, 4);
  assert.deepEqual(second.map((e) => e.kind), ["resume", "done"]);
  assert.equal(second[0].gap_s, 10); // dry at 6, went on at 16
  assert.equal(second[1].silent_s, 10);
});

test("a stream waits for its prebuffer unless it has ended", () => {
  const mixer = new Mixer(1);
  mixer.handle({ type: "set", prebuffer_s: 8 });
  mixer.handle({ type: "pcm", stream: 1, samples: pcm(4) });
  assert.deepEqual(play(mixer, 2), []);
  mixer.handle({ type: "end", stream: 1 });
  assert.deepEqual(play(mixer, 1).map((e) => e.kind), ["start", "done"]);
});

test("changes of one moment are one line, a long one shortened", () => {
  const marks = [[1, "a 1 → 2"], [1.01, "load none → libritts 1/s"], [3, "b 1 → 2"]];
  assert.deepEqual(changes(marks.map(([time_s, text]) => ({ time_s, text }))), [
    { time_s: 1, text: "a 1 → 2 · load none → libritts 1/s" },
    { time_s: 3, text: "b 1 → 2" },
  ]);
  const many = Array.from({ length: 6 }, (_, i) => ({ time_s: 1, text: `${i}`.repeat(40) }));
  assert.match(changes(many)[0].text, /^0+ · 1+ and 4 more$/);
});

test("a spoken request is known by its text, a background one by its number", () => {
  const spoken = { 7: "Some <b>, and much that is said after it" };
  assert.equal(requestName(7, spoken), "“Some &#60;b&#62;, and much that is said …” (request 7)");
  assert.equal(requestName(8, spoken), "request 8");
});

test("a stall is the host's where the kernel was busy for at least half of it", () => {
  const late = { deadline_s: 10, delivered_s: 10.4, audio_s: 0.8, stall_s: 0.4 };
  assert.ok(Math.abs(busyBefore(late, [[10.3, 0.2], [10.35, 0.05], [9, 0.1], [12, 1]]) - 0.25) < 1e-9);
  assert.ok(isHostStall({ ...late, busy_s: 0.25 }));
  assert.ok(!isHostStall({ ...late, busy_s: 0.15 }));
  assert.ok(!isHostStall({ ...late, stall_s: 0, busy_s: 1 }));
  const tracks = new Tracks({ ...SCHEMA, chunks: [...SCHEMA.chunks, "audio_s"] }, 10);
  tracks.add(...delta(110.5, [], [[1, 1, 9.9, 10, 10.4, 10, -0.1, 0.4, 0.8]]));
  assert.match(summary(tracks, 8), /^1 stalls in the last 8 s, /);
  tracks.add(...delta(110.6, [], [], { delays: [[110.4, 0.3]] })); // noted after the chunk
  assert.match(summary(tracks, 8), /^1 stalls in the last 8 s \(1 by the host\), /);
});

test("an empty row or panel of the figure says why", () => {
  const names = ["LM", "codec", "urgent", "deadlines"];
  const places = (seen) => emptyWords({ spans: [], chunks: [], heard: [], ...seen }, { from: 0 }, names).map(([, at]) => at);
  assert.deepEqual(places({}), ["LM", "codec", "urgent", 50, "deadlines", 0.5]);
  const chunk = { deadline_s: 1, slack_s: 0.1 };
  assert.deepEqual(places({ spans: [{ lane: 0, end_s: 1 }, { lane: 1, end_s: -1 }], chunks: [chunk] }), ["urgent"]);
  const unheard = { deadline_s: NaN, slack_s: NaN };
  const found = emptyWords({ spans: [{ lane: 0, end_s: -1 }], chunks: [unheard], heard: [] }, { from: 0 }, names);
  for (const words of ["nobody listens", "zoom out"]) assert.ok(found.some(([, , told]) => told.includes(words)));
});

test("streams are summed, muted and stopped apart", () => {
  const mixer = new Mixer(1);
  mixer.handle({ type: "set", prebuffer_s: 0 });
  mixer.handle({ type: "gain", stream: 2, gain: 0 });
  for (const stream of [1, 2, 3]) mixer.handle({ type: "pcm", stream, samples: pcm(8, 100) });
  mixer.handle({ type: "stop", stream: 3 });
  const out = new Float32Array(2);
  mixer.render(out, 0);
  assert.equal(out[1] * 32768, 101);
  assert.deepEqual(mixer.status().map((s) => s.stream), [1, 2]);
});

test("loud sums are turned down, never cut; one voice alone is exact", () => {
  const mixer = new Mixer(100);
  mixer.handle({ type: "set", prebuffer_s: 0 });
  for (const stream of [1, 2]) {
    const samples = Float32Array.from({ length: 64 }, (_, i) => (i < 32 ? 0.9 : 0.1));
    mixer.handle({ type: "pcm", stream, samples });
  }
  const loud = new Float32Array(32);
  mixer.render(loud, 0);
  assert.ok(loud.every((v) => v <= 1));
  assert.ok(Math.abs(loud[31] - 1) < 1e-6);
  const soft = new Float32Array(32);
  mixer.render(soft, 0.32);
  assert.ok(soft[31] > soft[0]); // the level comes back
});

test("muting while it plays fades, and a stream that is over stays so", () => {
  const mixer = new Mixer(1000);
  mixer.handle({ type: "set", prebuffer_s: 0 });
  mixer.handle({ type: "pcm", stream: 1, samples: new Float32Array(40).fill(0.5) });
  mixer.handle({ type: "gain", stream: 1, gain: 0 });
  const out = new Float32Array(20);
  mixer.render(out, 0);
  assert.ok(out[0] > 0.4 && out[5] > 0.1 && out[5] < out[0]);
  assert.equal(out[12], 0);
  assert.equal(mixer.status()[0].is_playing, true); // muted still plays
  mixer.handle({ type: "stop", stream: 1 });
  mixer.handle({ type: "pcm", stream: 1, samples: new Float32Array(4) });
  mixer.handle({ type: "end", stream: 1 });
  assert.deepEqual(mixer.render(out, 1), []);
  assert.deepEqual(mixer.status(), []);
});

test("what waits for a click keeps half a minute without a hole, the newest", () => {
  const held = new Held(10);
  const sound = (stream, count, end = false) => ({ type: "pcm", stream, end, samples: new Float32Array(count) });
  held.add({ type: "set" });
  held.add(sound(1, 100, true));
  for (let i = 0; i < 3; i += 1) held.add(sound(2, 100));
  assert.equal(held.seconds, 30);
  assert.equal(held.skipped_s, 10);
  held.add({ type: "stop", stream: 2 });
  const kinds = held.take().map((m) => `${m.type} ${m.stream ?? ""}`.trim());
  assert.deepEqual(kinds, ["set", "end 1", "stop 2"]);
  assert.equal(held.seconds, 0);
});

test("a stream whose sound was skipped is over all the same", () => {
  const mixer = new Mixer(1);
  mixer.handle({ type: "end", stream: 3 });
  assert.deepEqual(play(mixer, 1).map((e) => e.kind), ["done"]);
});

test("solo silences the others, mute one; both are toggles", () => {
  assert.deepEqual([1, 2, 3].map((s) => isAudible(s, [2], [])), [true, false, true]);
  assert.deepEqual([1, 2, 3].map((s) => isAudible(s, [2], [2, 3])), [false, true, true]);
  assert.deepEqual(toggled([1, 2], 2), [1]);
  assert.deepEqual(toggled([1], 2), [1, 2]);
});

test("a stream's row tells server and listener stalls apart", () => {
  const wave = new Wave();
  wave.add([[0, 1000, 0], [1, 2000, 0.5]], new Float32Array(3000), 1000);
  assert.deepEqual(wave.chunks.map((c) => [c.from_s, c.to_s]), [[0, 1], [1, 3]]);
  const heard = { state: "playing", played_s: 1, buffered_s: 2, underruns: 2, silent_s: 0.25 };
  const words = "playing 1.0 s · buffer 2.00 s · ▼ 1 ▽ 2, 0.25 s silent";
  assert.equal(streamWords(heard, wave.stalls), words);
  assert.equal(streamWords({ ...heard, state: "played", underruns: 0 }, [0, 0]), "played 1.0 s · ▼ 0 ▽ 0");
  const waiting = { state: "waiting", played_s: 0, buffered_s: 0, underruns: 0, silent_s: 0 };
  assert.equal(streamWords(waiting, [0, 0]), "waiting · ▼ 0 ▽ 0");
  assert.equal(streamWords({ ...waiting, state: "refused" }, [0, 0]), "refused");
  assert.equal(streamWords(undefined, [0, 0], true), "waiting", "its request is not accepted yet");
  assert.equal(streamWords(undefined, [0, 0], false), "not heard in this tab", "played before this page was opened");
});
