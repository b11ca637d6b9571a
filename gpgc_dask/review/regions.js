// -- regions: connected differences, and the annotations and regions that the model suspects --------------------
const MIN_SHARE = 0.0004, MAX_REGIONS = 30, GROWN = 3;
let regions = [], current = -1;
function kindOfCode(code) {
  if (code === MISSING || code === SPURIOUS) return { kind: code === MISSING ? "missing" : "spurious", title: "" };
  const [given, predicted] = [Math.floor(code / BASE) - 1, code % BASE - CLASSES];
  return { kind: "wrong class", title: `${data.classes[given]} → ${data.classes[predicted]}` };
}
// Connected pixels of the same kind of difference, the largest first.
function findDifferences({ width, height, mask, predicted }) {
  const n = width * height, codes = new Uint32Array(n), stack = new Int32Array(n), found = [];
  for (let i = 0; i < n; i++) codes[i] = mask[i] === predicted[i] || mask[i] === VOID ? NOTHING : paints.differ(mask[i], predicted[i]);
  for (let first = 0; first < n; first++) {
    const code = codes[first];
    if (code === NOTHING) continue;
    let filled = 0, done = 0;
    const add = (i) => { if (codes[i] === code) { codes[i] = NOTHING; stack[filled++] = i; } };
    add(first);
    while (done < filled) {
      const i = stack[done++], x = i % width;
      if (x > 0) add(i - 1);
      if (x < width - 1) add(i + 1);
      if (i >= width) add(i - width);
      if (i < n - width) add(i + width);
    }
    if (filled >= Math.max(MIN_SHARE * n, 4)) found.push({ ...kindOfCode(code), pixels: stack.slice(0, filled), share: filled / n });
  }
  found.sort((one, other) => other.share - one.share);
  return found.slice(0, MAX_REGIONS);
}
function outlineOf({ width }, pixels) {
  const inside = new Set(pixels), path = new Path2D();
  const line = (x, y, dx, dy) => { path.moveTo(x, y); path.lineTo(x + dx, y + dy); };
  for (const i of pixels) {
    const x = i % width, y = (i - x) / width;
    if (!inside.has(i - width)) line(x, y, 1, 0);
    if (!inside.has(i + width)) line(x, y + 1, 1, 0);
    if (x === 0 || !inside.has(i - 1)) line(x, y, 0, 1);
    if (x === width - 1 || !inside.has(i + 1)) line(x + 1, y, 0, 1);
  }
  return path;
}
function ringsPath({ width, height }, rings) {
  const path = new Path2D(), scale = Math.max(width, height) / data.grid;
  for (const ring of rings) {
    for (let i = 0; i < ring.length; i += 2) path[i ? "lineTo" : "moveTo"](ring[i] * scale, ring[i + 1] * scale);
    path.closePath();
  }
  return path;
}
// Pixels inside an outline, and a little around it, as outlines are simplified.
function pixelsInside({ width, height }, path) {
  const context = new OffscreenCanvas(width, height).getContext("2d", { willReadFrequently: true });
  context.lineWidth = 2 * GROWN * Math.max(width, height) / data.grid;
  context.fill(path);
  context.stroke(path);
  const { data: out } = context.getImageData(0, 0, width, height), pixels = [];
  for (let i = 0; i < width * height; i++) if (out[4 * i + 3] > 127) pixels.push(i);
  return Int32Array.from(pixels);
}
const byObjects = () => $("order").value === "objects";
function listRegions(keep = -1) {
  const objects = byObjects() ? shown.about.objects.filter((one) => one.rings.length) : [];
  regions = [...objects, ...shown.differences];
  current = regions.length ? Math.min(Math.max(keep, 0), regions.length - 1) : -1;
  showRegions();
}
function showRegions() {
  $("regions").replaceChildren(...regions.slice(0, MAX_REGIONS).map((region, index) => {
    const item = element("li"), button = element("button"), swatch = element("i");
    button.type = "button";
    button.dataset.region = index;
    swatch.style.background = rgb(data.kind_colours[region.kind]);
    const share = `${(100 * (region.share ?? region.area)).toPrecision(2)} %`;
    const facts = region.score == null ? share : `score ${region.score.toFixed(2)} · ${share}`;
    button.append(swatch, element("b", "", region.title ? `${region.title} ` : ""), `${region.kind} · ${facts}`);
    button.setAttribute("aria-current", index === current);
    item.append(button);
    return item;
  }));
  const chosen = $("regions").querySelector('[aria-current="true"]');
  if (chosen) chosen.scrollIntoView({ block: "nearest" });
}
function stepRegion(direction) {
  if (!regions.length) { report("The two masks do not differ in any region."); return; }
  current = (current + direction + regions.length) % regions.length;
  showRegions();
  redraw();
}
function drawRegion(context, scale) {
  const region = regions[current];
  if (!region) return;
  region.path ??= region.rings ? ringsPath(shown, region.rings) : outlineOf(shown, region.pixels);
  strokeOutline(context, region.path, scale, "#fff", 2);
}
// The edit that takes the model's mask in the region that is highlighted; null if that changes nothing.
function regionEdit() {
  const region = regions[current];
  if (!region) return null;
  region.pixels ??= pixelsInside(shown, region.path ?? ringsPath(shown, region.rings));
  const pixels = region.pixels.filter((i) => shown.mask[i] !== shown.predicted[i]);
  return pixels.length ? { pixels, before: pixels.map((i) => shown.mask[i]), after: pixels.map((i) => shown.predicted[i]) } : null;
}
