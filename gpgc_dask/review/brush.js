// -- brushes: one that paints whole superpixels, and a fine one ------------------------------------------------
const MIN_SIZE = 1, MAX_SIZE = 200;
let tool = null, size = 24, brushClass = twoClasses ? 1 : data.background === 0 ? 1 : 0, edit = null, last = null;
const background = data.background >= 0 ? data.background : 0;
function chooseTool(wanted) {
  tool = wanted;
  if (tool) $("stage").dataset.tool = tool; else delete $("stage").dataset.tool;
  for (const [key, own] of [["b", "superpixel"], ["f", "fine"]]) button(key).setAttribute("aria-pressed", tool === own);
  if (tool && !isEditable(largeView())) enlargeView(views[0]);
  if (tool && !cursor) cursor = [camera.x, camera.y];
  redraw();
}
function setSize(value) {
  size = Math.min(Math.max(Math.round(value), MIN_SIZE), MAX_SIZE);
  $("size").value = Math.round(100 * Math.log(size) / Math.log(MAX_SIZE));
  $("size-value").textContent = size;
  redraw();
}
function setClass(number) {
  if (number < 0 || number >= data.classes.length) return;
  brushClass = number;
  $("class").value = number;
  redraw();
}
function drawCursor(context, scale) {
  if (!tool || !cursor || !isEditable(largeView())) return;
  const path = new Path2D();
  path.arc(cursor[0], cursor[1], size / 2, 0, 2 * Math.PI);
  const colour = twoClasses ? (brushClass === 1 ? data.kind_colours.spurious : [255, 255, 255]) : data.colours[brushClass];
  strokeOutline(context, path, scale, rgb(colour), 1.5);
}
// Pixels of each superpixel at the size of the picture: {starts, pixels, owner of each pixel}.
function superpixels(picture) {
  if (picture.owners) return picture.owners;
  const { width, height, segments } = picture, { segment_width: w, segment_height: h } = picture.about;
  const owner = new Uint16Array(width * height), n = segments.reduce((most, one) => Math.max(most, one), 0) + 1;
  for (let y = 0, i = 0; y < height; y++) {
    const row = Math.floor((2 * y + 1) * h / (2 * height)) * w;
    for (let x = 0; x < width; x++, i++) owner[i] = segments[row + Math.floor((2 * x + 1) * w / (2 * width))];
  }
  const starts = new Uint32Array(n + 1), pixels = new Uint32Array(owner.length);
  for (const one of owner) starts[one + 1]++;
  for (let one = 0; one < n; one++) starts[one + 1] += starts[one];
  const next = starts.slice();
  for (let i = 0; i < owner.length; i++) pixels[next[owner[i]]++] = i;
  picture.owners = { owner, starts, pixels };
  return picture.owners;
}
function circle({ width, height }, [cx, cy]) {
  const radius = Math.max(size / 2, 0.5), found = [];
  for (let y = Math.max(Math.floor(cy - radius), 0); y <= Math.min(cy + radius, height - 1); y++) {
    for (let x = Math.max(Math.floor(cx - radius), 0); x <= Math.min(cx + radius, width - 1); x++) {
      if ((x + 0.5 - cx) ** 2 + (y + 0.5 - cy) ** 2 <= radius ** 2 || (x === Math.floor(cx) && y === Math.floor(cy))) found.push(y * width + x);
    }
  }
  return found;
}
function touched(picture, point) {
  const inside = circle(picture, point);
  if (tool === "fine") return inside;
  const { owner, starts, pixels } = superpixels(picture), all = [];
  for (const one of new Set(inside.map((i) => owner[i]))) for (let k = starts[one]; k < starts[one + 1]; k++) all.push(pixels[k]);
  return all;
}
function beginPainting(point) {
  edit = new Map(); // {pixel: class before}
  last = point;
  paintTo(point);
}
function paintTo(point) {
  const [dx, dy] = [point[0] - last[0], point[1] - last[1]];
  const steps = Math.max(Math.ceil(Math.hypot(dx, dy) / Math.max(size / 4, 1)), 1), changed = [];
  for (let step = 1; step <= steps; step++) {
    for (const i of touched(shown, [last[0] + dx * step / steps, last[1] + dy * step / steps])) {
      if (shown.mask[i] === brushClass) continue;
      if (!edit.has(i)) edit.set(i, shown.mask[i]);
      shown.mask[i] = brushClass;
      changed.push(i);
    }
  }
  last = point;
  renderEdit(shown, changed);
  redraw();
}
function endPainting() {
  if (!edit) return;
  if (edit.size) {
    const pixels = Int32Array.from(edit.keys());
    addEdit(shown, { pixels, before: Uint8Array.from(edit.values()), after: new Uint8Array(pixels.length).fill(brushClass) });
    afterEdit();
  }
  edit = null;
}
function afterEdit(keep = current) {
  compare(shown);
  shown.differences = findDifferences(shown);
  listRegions(keep);
  captions();
  redraw();
}
function moveCursor(dx, dy, far) {
  const by = Math.max(size / 2, 1) * (far ? 5 : 1), [x, y] = cursor || [camera.x, camera.y];
  cursor = [Math.min(Math.max(x + dx * by, 0), shown.width - 0.5), Math.min(Math.max(y + dy * by, 0), shown.height - 0.5)];
  redraw();
}
function paintAtCursor() {
  beginPainting(cursor);
  endPainting();
}
