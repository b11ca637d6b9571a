// -- which image: the server reserves the next ones for this page --------------------------------------------
const AHEAD = 4;
let past = [], place = -1, queue = [], others = {}, count = data.count, going = 0, offline = false;
const skipped = new Set(), button = (key) => document.querySelector(`button[data-key="${key}"]`);
function report(text, isBad = false) {
  $("line").textContent = text;
  $("line").classList.toggle("bad-news", isBad);
}
const showing = () => (place >= 0 ? past[place] : -1);
async function show(image) {
  const turn = ++going;
  let next;
  try { next = await picture(image); } catch (error) {
    if (turn !== going) return;
    report(error.status ? `${data.images.image[image]}: ${error.message}` : "The server does not answer; trying again…", true);
    await pause(1500);
    if (turn === going) show(image);
    return;
  }
  if (turn !== going) return; // another key was faster
  const isNew = shown !== next;
  shown = next;
  if (isNew) { cursor = null; endPainting(); }
  if (isNew || camera.zoom === 1) resetCamera();
  listRegions();
  showFacts();
  draw();
  performance.mark("shown", { detail: image });
  document.documentElement.dataset.shown = image;
}
function showFacts() {
  if (!shown) return;
  const image = imageAt(shown.image), own = decidedKind(shown.image), holder = others[shown.image];
  const rank = data.orders[$("order").value].indexOf(shown.image) + 1;
  $("image-name").replaceChildren(image.image, " ", element("small", "", `#${rank.toLocaleString("en")} of ${data.images.image.length.toLocaleString("en")}`));
  $("verdict").hidden = !own;
  if (own) {
    $("verdict").textContent = own.by ? `${own.kind} by ${own.by}` : own.kind;
    $("verdict").dataset.verdict = own.kind;
  }
  $("held").hidden = holder === undefined;
  $("held").textContent = `${holder || "another page"} is looking at it, too`;
  const limits = image.quality_low === null ? "" : ` (${image.quality_low.toFixed(2)}–${image.quality_high.toFixed(2)})`;
  const quality = image.quality === null ? "quality unknown" : `quality ${image.quality.toFixed(2)}${limits}`;
  $("quality").replaceChildren(showQuality(image, quality));
  const facts = [quality];
  if (image.agreement !== null) facts.push(`agreement ${image.agreement.toFixed(2)}`);
  if (image.annotator) facts.push(`drawn by ${image.annotator}`);
  if (image.flags) facts.push(`⚑ ${image.flags.replaceAll(";", ", ")}`);
  $("numbers").textContent = facts.join(" · ");
  const { problem } = shown.about;
  $("photo-problem").hidden = !problem;
  $("photo-problem").textContent = `The photo cannot be shown: ${problem}.`;
  captions();
}
function visit(image) {
  if (past[past.length - 1] !== image) past.push(image);
  place = past.length - 1;
  show(image);
  prefetch();
  sync();
}
const free = () => queue.filter((image) => image !== showing() && !decidedKind(image) && !skipped.has(image));
// Load the next images, one after the other: the first is needed first.
let fetching = false;
async function prefetch() {
  if (fetching) return;
  fetching = true;
  try {
    await picture(showing());
    for (;;) { // the queue may change meanwhile
      const image = free().slice(0, AHEAD).find((one) => !loaded.has(keyOf(one)));
      if (image === undefined) break;
      await picture(image);
    }
  } catch { /* it is tried again after the next sync */ }
  fetching = false;
}
async function advance() {
  let [next] = free();
  if (next === undefined) {
    await sync();
    next = free()[0] ?? queue.find((image) => image !== showing() && !decidedKind(image));
  }
  if (next !== undefined) visit(next);
  else if (place < 0 && data.orders[$("order").value].length) visit(data.orders[$("order").value][0]);
  else { show(showing()); report("No mask is left to look at: all have a verdict, or others look at them now."); sync(); }
}
function blocked() {
  if (!isDirty(shown)) return false;
  report("The painted mask is not saved: Enter saves it, Esc discards the edits.", true);
  return true;
}
function next() {
  if (blocked()) return;
  report("");
  if (place < past.length - 1) { place++; show(past[place]); sync(); return; }
  if (showing() >= 0 && !decidedKind(showing())) skipped.add(showing());
  advance();
}
function previous() {
  if (blocked()) return;
  if (place <= 0) { report("This is the first image that you have looked at."); return; }
  place--;
  report("");
  show(past[place]);
  sync();
}

// -- verdicts ------------------------------------------------------------------------------------------------
function decide(kind, more = {}) {
  if (!shown || blocked()) return;
  mine.push(shown.image);
  send(shown.image, kind, more);
  report(`${data.images.image[shown.image]}: ${kind}. u takes it back.`);
  advance();
}
const takeModel = () => decide("corrected", { mask: "model", basis: data.basis });
function saveMask() {
  const id = send(shown.image, "corrected", { mask: encodeRuns(shown.mask) });
  mine.push(shown.image);
  keepPicture(shown, id);
  report(`${data.images.image[shown.image]}: corrected. u takes it back.`);
  showFacts();
}
function savePainted() {
  if (!isDirty(shown)) { report("Nothing is painted: c confirms the mask, m takes the model's."); return; }
  saveMask();
  advance();
}
function takeRegion() {
  const change = regionEdit();
  if (!change) { report("There is nothing to take: no region is highlighted, or the masks are the same there."); return; }
  applyEdit(shown, change);
  addEdit(shown, change);
  saveMask();
  afterEdit();
  report(`${data.images.image[shown.image]}: corrected. ${regions.length ? "r takes the next region, " : ""}n shows the next image, u takes it back.`);
}
function undoVerdict() {
  if (blocked()) return;
  const image = decidedKind(showing()) ? showing() : mine.findLast((one) => decidedKind(one));
  if (image === undefined) { report("There is no verdict of yours to take back."); return; }
  send(image, "withdrawn");
  mine.splice(mine.lastIndexOf(image), 1);
  skipped.delete(image);
  report(`${data.images.image[image]}: the verdict is withdrawn.`);
  for (const key of [...loaded.keys()]) if (key.startsWith(`${image} `)) loaded.delete(key);
  visit(image);
}
function discard() {
  while (isDirty(shown) && stepEdit(shown, true));
  compare(shown);
  if (isDirty(shown)) { shown.mask.set(shown.given); for (const kind of ["given", "differ"]) renderLayer(shown, kind); }
  shown.undo.length = shown.redo.length = 0;
  afterEdit();
  report("The edits are discarded.");
}
function changeEdit(back) {
  if (stepEdit(shown, back)) afterEdit(); else report(back ? "There is no edit to undo." : "There is no edit to redo.");
}

// -- news of the server ----------------------------------------------------------------------------------------
let syncing = null, again = false;
function sync() {
  if (syncing) { again = true; return syncing; }
  syncing = talk().finally(() => { syncing = null; if (again) { again = false; sync(); } });
  return syncing;
}
async function talk() {
  const order = $("order").value, seen = showing() < 0 ? [] : [showing()];
  let answer;
  try {
    answer = await call("sync", { session, name, order, showing: seen, skipped: [...skipped], count });
    if (!outbox.length) showProblem("");
  } catch (error) {
    if (!outbox.length) showProblem(error.status === 401 ? WRONG_TOKEN : error.status ? error.message : "The server does not answer; trying again…");
    offline = true;
    return;
  }
  if (answer.run !== data.run || answer.basis !== data.basis) {
    const changed = answer.basis !== data.basis;
    await reload();
    if (changed) report("The model was fitted again: this is the new order.");
    again = true;
    return;
  }
  if (offline && outbox.length) flush();
  offline = false;
  ({ others, count } = answer);
  if (order === $("order").value) queue = answer.next;
  for (const one of answer.news) {
    if (isWaiting(one.image)) continue;
    const before = verdicts.get(one.image);
    verdicts.set(one.image, one);
    if (one.image === showing() && (!before || before.id !== one.id)) report(`${one.by || "Another page"} has just decided: ${one.kind}.`, true);
  }
  showOutlook(answer);
  showFacts();
  if (showing() >= 0) prefetch();
}
function showOutlook({ outlook, people, fit }) {
  $("left").textContent = outlook.left_text;
  $("gain").textContent = outlook.gain_text;
  $("seen").textContent = `${outlook.seen.toLocaleString("en")} of ${outlook.images.toLocaleString("en")} looked at`;
  $("kinds").textContent = Object.entries(outlook.kinds).map(([kind, n]) => `${n.toLocaleString("en")} ${kind}`).join(", ");
  $("bar").firstElementChild.style.width = `${100 * outlook.seen / outlook.images}%`;
  $("bar").setAttribute("aria-valuenow", outlook.seen);
  $("bar").setAttribute("aria-valuemax", outlook.images);
  const rest = people.filter((one) => one !== name);
  $("people").textContent = rest.length ? `With ${rest.join(", ")}.` : "";
  $("fit").hidden = fit.state === "absent";
  $("fit").disabled = fit.state === "running";
  $("fit").textContent = fit.state === "running" ? `Fitting: ${fit.text}` : "Fit again";
  $("fit").title = fit.state === "failed" ? fit.text : "Fit the model again, with all verdicts so far; you can continue meanwhile";
  if (fit.state === "failed" && $("fit").dataset.state === "running") report(`The fit has failed: ${fit.text}`, true);
  $("fit").dataset.state = fit.state;
}
async function reload() {
  Object.assign(data, await insist("start"));
  const { count: entries } = data;
  count = entries;
  readVerdicts();
  for (const each of outbox) verdicts.set(each.body.image, { ...each.body, by: each.body.name });
  queue = [];
  loaded.clear();
  if (showing() >= 0 && !isDirty(shown)) show(showing());
}

// -- keys ------------------------------------------------------------------------------------------------------
const KEYS = [
  ["Verdicts"],
  ["c", "confirm: the mask is right", () => decide("confirmed")],
  ["x", "reject: the mask is wrong", () => decide("rejected")],
  ["m", "take the model's mask", takeModel],
  ["r", "take the model's mask in the highlighted region only", takeRegion],
  ["u", "undo: withdraw the verdict on this image, or your last one", undoVerdict],
  ["n", "next image, without a verdict", next],
  ["p", "previous image", previous],
  ["Regions and order"],
  [".", "next region", () => stepRegion(1)],
  [",", "previous region", () => stepRegion(-1)],
  ["o", "another order of the images", () => { const list = $("order"); list.selectedIndex = (list.selectedIndex + 1) % list.length; changeOrder(); }],
  ["Brushes"],
  ["b", "superpixel brush, on and off", () => chooseTool(tool === "superpixel" ? null : "superpixel")],
  ["f", "fine brush, on and off", () => chooseTool(tool === "fine" ? null : "fine")],
  ["e", "erase: paint background", () => { setClass(background); if (!tool) chooseTool("superpixel"); }],
  ["1 … 9, 0", "class: its number, counted from 1; 0 is the tenth"],
  ["a", "next class", () => setClass((brushClass + 1) % data.classes.length)],
  ["j", "smaller brush", () => setSize(Math.min(size / 1.3, size - 1))],
  ["k", "larger brush", () => setSize(Math.max(size * 1.3, size + 1))],
  ["arrows", "move the brush; with Shift farther"],
  ["Space", "paint where the brush is"],
  ["z", "undo the last edit (also Ctrl+Z)", () => changeEdit(true)],
  ["y", "redo it (also Ctrl+Y)", () => changeEdit(false)],
  ["Enter", "save the painted mask", savePainted],
  ["Esc", "put the brush away, then discard the edits"],
  ["View"],
  ["w", "show another picture large", nextView],
  ["h", "hide the masks, or show them", () => { hidesMasks = !hidesMasks; button("h").setAttribute("aria-pressed", hidesMasks); captions(); draw(); }],
  ["+", "zoom in (also the wheel)", () => zoomBy(1.4)],
  ["-", "zoom out", () => zoomBy(1 / 1.4)],
  ["Home", "show the whole photo", () => { resetCamera(); redraw(); }],
  ["arrows", "move the photo, without a brush"],
  ["?", "this list", () => $("help").showModal()],
];
const actions = Object.fromEntries(KEYS.filter((row) => row[2]).map(([key, , action]) => [key, action]));
actions["="] = actions["+"];
const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
function escape() {
  if (tool) chooseTool(null);
  else if (isDirty(shown)) discard();
}
function press(event) {
  const { key } = event;
  if (event.ctrlKey || event.metaKey) {
    if (key.toLowerCase() === "z") changeEdit(!event.shiftKey);
    else if (key.toLowerCase() === "y") changeEdit(false);
    else return false;
  } else if (event.altKey) return false;
  else if (key in ARROWS) {
    const [dx, dy] = ARROWS[key], by = (event.shiftKey ? 0.25 : 0.08) / camera.zoom;
    if (tool) moveCursor(dx, dy, event.shiftKey); else moveCamera(dx * by * shown.width, dy * by * shown.height);
  } else if (key === " " && tool && event.target.tagName !== "BUTTON") paintAtCursor();
  else if ((key === "Enter" || key === " ") && event.target.tagName === "BUTTON") return false;
  else if (/^\d$/.test(key)) setClass((Number(key) + 9) % 10);
  else if (key === "Escape") escape();
  else if (Object.hasOwn(actions, key.length === 1 ? key.toLowerCase() : key)) actions[key.length === 1 ? key.toLowerCase() : key]();
  else return false;
  return true;
}
document.addEventListener("keydown", (event) => {
  if (!shown || document.querySelector("dialog[open]") || (isTyping(event.target) && event.target.type !== "range")) return;
  if (event.target.type === "range" && event.key in ARROWS) return;
  if (press(event)) event.preventDefault();
});
document.querySelectorAll("button[data-key]").forEach((each) => {
  each.setAttribute("aria-keyshortcuts", each.dataset.key);
  each.addEventListener("click", () => { if (shown) actions[each.dataset.key](); });
});

// -- pointer ---------------------------------------------------------------------------------------------------
let drag = null;
for (const view of views) {
  const { canvas } = view;
  canvas.addEventListener("pointerdown", (event) => {
    if (!shown) return;
    if (view !== largeView()) { enlargeView(view); return; }
    canvas.setPointerCapture(event.pointerId);
    canvas.focus();
    const isPainting = tool && isEditable(view) && event.button === 0;
    drag = { isPainting, from: [event.clientX, event.clientY] };
    if (isPainting) { cursor = pointAt(view, event); beginPainting(cursor); }
    event.preventDefault();
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!shown || view !== largeView()) return;
    if (tool) cursor = pointAt(view, event);
    if (drag && drag.isPainting) paintTo(cursor);
    else if (drag) {
      const ratio = (canvas.width / canvas.clientWidth) / scaleOf(view);
      moveCamera((drag.from[0] - event.clientX) * ratio, (drag.from[1] - event.clientY) * ratio);
      drag.from = [event.clientX, event.clientY];
    } else if (tool) redraw();
  });
  for (const ended of ["pointerup", "pointercancel"]) canvas.addEventListener(ended, () => { drag = null; endPainting(); });
  canvas.addEventListener("contextmenu", (event) => event.preventDefault());
  canvas.addEventListener("wheel", (event) => {
    if (!shown) return;
    event.preventDefault();
    zoomBy(1.0015 ** -event.deltaY, pointAt(view, event));
  }, { passive: false });
}

// -- controls --------------------------------------------------------------------------------------------------
const ORDER_NAMES = { quality: "worst quality first", agreement: "lowest agreement first", confidence: "lowest confidence first", objects: "worst objects first" };
async function changeOrder() {
  queue = [];
  skipped.clear();
  report(`The order is now: ${ORDER_NAMES[$("order").value]}.`);
  await sync();
  if (!isDirty(shown)) advance(); else showFacts();
}
for (const order of Object.keys(data.orders)) $("order").append(Object.assign(element("option", "", ORDER_NAMES[order]), { value: order }));
$("order").value = data.order;
$("order").addEventListener("change", () => { changeOrder(); $("order").blur(); });
data.classes.forEach((title, number) => $("class").append(Object.assign(element("option", "", number < 10 ? `${title} (${(number + 1) % 10})` : title), { value: number })));
$("class").addEventListener("change", () => { setClass(Number($("class").value)); $("class").blur(); });
$("size").addEventListener("input", () => setSize(MAX_SIZE ** (Number($("size").value) / 100)));
$("regions").addEventListener("click", (event) => {
  const chosen = event.target.closest("[data-region]");
  if (chosen) { current = Number(chosen.dataset.region); showRegions(); redraw(); }
});
$("fit").addEventListener("click", async () => {
  try { await call("fit"); report("The model is fitted again; you can continue meanwhile."); } catch (error) { report(error.message, true); }
  sync();
});
$("open-help").addEventListener("click", () => $("help").showModal());
$("close-help").addEventListener("click", () => $("help").close());
for (const [key, text] of KEYS) {
  if (text === undefined) { $("help-keys").append(element("h3", "", key)); continue; }
  const row = element("div"), holder = element("span", "key");
  holder.append(element("kbd", "", key));
  row.append(holder, element("span", "", text));
  $("help-keys").append(row);
}
function showName() { $("who").textContent = name ? `You are ${name}` : "Your name"; }
function askName() {
  $("name").value = name;
  $("ask").showModal();
  $("name").select();
}
$("who").addEventListener("click", askName);
$("ask").addEventListener("close", () => {
  name = $("name").value.trim().slice(0, 100);
  try { localStorage.setItem("gpgc-review-name", name); } catch { /* no storage */ }
  showName();
  sync();
});
function legend() {
  const add = (css, set, text) => {
    const holder = element("span"), swatch = element("i", css);
    Object.assign(swatch.dataset, set);
    holder.append(swatch, text);
    $("legend").append(holder);
  };
  if (twoClasses) add("", { kind: "spurious" }, `given: ${data.classes[1]}`);
  else data.classes.forEach((title, number) => add("", { class: number }, title));
  add("", { kind: "missing" }, "missing: only in the model's mask");
  add("", { kind: "spurious" }, "spurious: only in the given mask");
  if (!twoClasses) add("striped", {}, "wrong class");
  add("hatched", {}, "void");
}
legend();
showSwatches();
showName();
setClass(brushClass);
setSize(size);
$("title").textContent = data.title;
document.title = `${data.title}: review`;
if (!name) askName();
await sync();
await advance();
flush();
setInterval(() => { if (document.visibilityState === "visible") sync(); }, 3000);
setInterval(sync, 45000); // a page in the background keeps its images
addEventListener("pagehide", () => { fetch("api/leave", { ...post({ session }), keepalive: true, headers: { "Content-Type": "application/json", Authorization: `Bearer ${sessionStorage.getItem("gpgc-token")}` } }); });
document.documentElement.dataset.ready = "";
