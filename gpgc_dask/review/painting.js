// -- pictures: photo, masks and superpixels of an image, loaded in advance ------------------------------
const MAX_LOADED = 9, GREY = "grayscale(1) brightness(0.75)";
const loaded = new Map();
async function inflate(bytes) {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).arrayBuffer();
}
async function fetchPicture(image) {
  const buffer = await (await ask(`picture/${image}`, {})).arrayBuffer();
  const length = new DataView(buffer).getUint32(0);
  const about = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
  const parts = {};
  let at = 4 + length;
  for (const [part, size] of Object.entries(about.parts)) {
    parts[part] = new Uint8Array(buffer, at, size);
    at += size;
  }
  const [photo, given, predicted, segments] = await Promise.all([
    createImageBitmap(new Blob([parts.photo], { type: "image/jpeg" })), inflate(parts.given), inflate(parts.predicted), inflate(parts.segments),
  ]);
  return { about, photo, given: new Uint8Array(given), predicted: new Uint8Array(predicted), segments: new Uint16Array(segments) };
}
async function prepare(image) {
  while (isWaiting(image)) await pause(20); // the picture is that after the verdict
  const { about, photo, given, predicted, segments } = await fetchPicture(image);
  const { width, height } = about;
  const picture = { image, about, width, height, photo, given, predicted, segments, mask: given.slice(), layers: {}, undo: [], redo: [], owners: null, dirty: false };
  picture.grey = new OffscreenCanvas(width, height);
  const context = picture.grey.getContext("2d");
  context.filter = GREY;
  context.drawImage(photo, 0, 0, width, height);
  for (const kind of ["given", "predicted", "differ"]) {
    picture.layers[kind] = new OffscreenCanvas(width, height);
    renderLayer(picture, kind);
    await pause(0); // keys are answered meanwhile
  }
  picture.differences = findDifferences(picture);
  return picture;
}
function keyOf(image) {
  const own = decidedKind(image);
  return `${image} ${data.basis} ${own && own.kind === "corrected" ? own.id : ""}`;
}
// The picture of an image: a promise that is kept until others are needed more.
function picture(image) {
  const key = keyOf(image), promise = loaded.get(key) || prepare(image);
  loaded.delete(key);
  loaded.set(key, promise);
  promise.catch(() => loaded.delete(key));
  while (loaded.size > MAX_LOADED) loaded.delete(loaded.keys().next().value);
  return promise;
}
// After a correction was saved, the picture in memory is that of the corrected mask.
function keepPicture(picture, id) {
  picture.given = picture.mask.slice();
  picture.dirty = false;
  loaded.set(`${picture.image} ${data.basis} ${id}`, Promise.resolve(picture));
}

// -- layers: a mask or the difference as transparent colours --------------------------------------------
let scratch = new Uint32Array(0);
const grow = ([left, top, right, bottom], by, { width, height }) =>
  [Math.max(left - by, 0), Math.max(top - by, 0), Math.min(right + by, width), Math.min(bottom + by, height)];
function renderLayer(picture, kind, changed = [0, 0, picture.width, picture.height]) {
  const { width, height, mask, predicted } = picture, paint = paints[kind];
  if (scratch.length < width * height) scratch = new Uint32Array(width * height);
  const [l, t, r, b] = grow(changed, 2, picture);
  for (let y = t; y < b; y++) for (let i = y * width + l; i < y * width + r; i++) scratch[i] = paint(mask[i], predicted[i]);
  const bounds = grow(changed, 1, picture), [left, top, right, bottom] = bounds;
  if (right <= left || bottom <= top) return;
  const pixels = new ImageData(right - left, bottom - top), out = pixels.data;
  const inside = kind === "differ" ? DIFFERENCE : INSIDE;
  paintCodes(scratch, width, height, inside, (i, colour, share, x, y) => {
    const at = 4 * ((y - top) * (right - left) + x - left);
    out[at] = colour[0];
    out[at + 1] = colour[1];
    out[at + 2] = colour[2];
    out[at + 3] = 255 * share;
  }, bounds);
  picture.layers[kind].getContext("2d").putImageData(pixels, left, top);
}

// -- edits: sets of pixels with their classes before and after --------------------------------------------
const isDirty = (picture) => picture !== null && picture.dirty;
function compare(picture) {
  const { mask, given } = picture;
  let i = 0;
  while (i < mask.length && mask[i] === given[i]) i++;
  picture.dirty = i < mask.length;
}
function boxOf(picture, pixels) {
  let [left, top, right, bottom] = [picture.width, picture.height, 0, 0];
  for (const i of pixels) {
    const x = i % picture.width, y = (i - x) / picture.width;
    left = Math.min(left, x); right = Math.max(right, x + 1);
    top = Math.min(top, y); bottom = Math.max(bottom, y + 1);
  }
  return [left, top, right, bottom];
}
function renderEdit(picture, pixels) {
  const box = boxOf(picture, pixels);
  if (box[2] <= box[0]) return;
  for (const kind of ["given", "differ"]) renderLayer(picture, kind, box);
}
function applyEdit(picture, { pixels, after }) {
  for (let k = 0; k < pixels.length; k++) picture.mask[pixels[k]] = after[k];
  renderEdit(picture, pixels);
}
const inverse = ({ pixels, before, after }) => ({ pixels, before: after, after: before });
function addEdit(picture, edit) {
  picture.undo.push(edit);
  picture.redo.length = 0;
}
function stepEdit(picture, back) {
  const [from, to] = back ? [picture.undo, picture.redo] : [picture.redo, picture.undo];
  const edit = from.pop();
  if (!edit) return false;
  applyEdit(picture, back ? inverse(edit) : edit);
  compare(picture);
  to.push(edit);
  return true;
}
// Run lengths: code, pixels, code, pixels, …
function encodeRuns(mask) {
  const runs = [];
  let start = 0;
  for (let i = 1; i <= mask.length; i++) {
    if (i === mask.length || mask[i] !== mask[start]) { runs.push(mask[start], i - start); start = i; }
  }
  return runs;
}
