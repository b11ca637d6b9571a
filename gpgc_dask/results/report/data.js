// -- data of the page: columns of images and objects, pictures in chunks that are unpacked when they are shown ---
const $ = (id) => document.getElementById(id);
const data = JSON.parse($("data").textContent);
const IOU = "iou:", OWN_FILTERS = ["annotator", "group"];
const columnNames = Object.keys(data.images).filter((name) => !name.startsWith(IOU));
const images = data.images.image.map((_, index) => {
  const image = { rank: index + 1 };
  for (const name of columnNames) image[name] = data.images[name][index];
  return image;
});
const classIou = (image, name) => (data.images[IOU + name] || [])[image.rank - 1] ?? null;
const twoClasses = data.classes.length === 2;

// -- values of an image ----------------------------------------------------------------------
let threshold = data.threshold;
// Beyond the threshold of the program: by the upper limit of the quality, which holds in 90 % of the cases.
const isSuspect = (image) => threshold === data.threshold ? image.suspect === 1
  : image.quality_high === null ? !(image.quality >= threshold) : image.quality_high <= threshold;
// A number by the column's format, such as ".2f" or ".3g".
function format(column, value) {
  if (value === null) return "–";
  if (!column.format) return String(value);
  const digits = Number(column.format.slice(1, -1));
  return column.format.endsWith("f") ? value.toFixed(digits) : Number(value.toPrecision(digits || 6)).toString();
}
const shownColumns = data.columns.filter((column) => column.kind !== "labels");
const labelColumns = data.columns.filter((column) => column.kind === "labels");
const qualityColumn = data.columns.find((column) => column.name === "quality") || { name: "quality", format: ".2f" };
// The value of a column, with its limits if they are known.
function display(column, image) {
  const [low, high] = (column.interval || []).map((name) => image[name]);
  const limits = low == null || high == null ? "" : ` (${format(column, low)}–${format(column, high)})`;
  return format(column, image[column.name]) + limits;
}
const labelsOf = (image) => labelColumns.flatMap((column) => image[column.name]);

// -- pictures and outlines: they follow the script, so the first cards are there before all have arrived ---------
const MAX_CHUNKS = 24;
const chunks = new Map();
const isLoading = () => document.readyState === "loading";
// The text of an element is complete once another one follows.
const hasArrived = (holder) => !isLoading() || (holder !== null && holder.nextElementSibling !== null);
function chunk(kind, image) {
  const id = `${kind}-${Math.floor((image.rank - 1) / data.chunk)}`;
  if (!chunks.has(id)) {
    chunks.set(id, (async () => {
      while (!hasArrived($(id))) await new Promise((resolve) => { setTimeout(resolve, 30); });
      return $(id) ? JSON.parse($(id).textContent) : [];
    })());
    if (chunks.size > MAX_CHUNKS) chunks.delete(chunks.keys().next().value);
  }
  return chunks.get(id);
}
const ofChunk = async (kind, image) => (await chunk(kind, image))[(image.rank - 1) % data.chunk] || null;

// -- objects: annotations and regions, numbered from the worst on --------------------------------
const objects = data.objects;
const objectCount = objects ? objects.rank.length : 0;
const firstObject = new Int32Array(images.length + 1), objectsByImage = new Int32Array(objectCount);
for (let object = 0; object < objectCount; object++) firstObject[objects.image[object] + 1]++;
for (let index = 0; index < images.length; index++) firstObject[index + 1] += firstObject[index];
const filled = firstObject.slice();
for (let object = 0; object < objectCount; object++) objectsByImage[filled[objects.image[object]]++] = object;
const objectsOf = (image) => objectsByImage.subarray(firstObject[image.rank - 1], firstObject[image.rank]);
let scoreBelow = 0.5;
const isSuspicious = (object) => objects.score[object] !== null && objects.score[object] < scoreBelow;
const kindOf = (object) => data.kinds[objects.kind[object]];
const classOf = (object) => objects.classes[objects.class[object]];
const givenOf = (object) => objects.classes[objects.given[object]];
const titleOf = (object) => kindOf(object) === "wrong class" ? `${givenOf(object)} → ${classOf(object)}` : classOf(object);
const scoreOf = (object) => objects.score[object] === null ? "too small to judge" : `score ${objects.score[object].toFixed(2)}`;

// -- confusions: which classes are confused in which image -----------------------------------------
const confusionOf = (number) => `${data.classes[Math.floor(number / data.classes.length)]} → ${data.classes[number % data.classes.length]}`;
// {image's place: share in thousandths} of a pair of classes.
function imagesWith(pair) {
  const shares = new Map(), { image, pair: pairs, share } = data.confusions;
  for (let i = 0; i < pairs.length; i++) if (pairs[i] === pair) shares.set(image[i], share[i]);
  return shares;
}
// [[pair, share in thousandths], …] of an image, the largest first. They are sorted by image.
function confusionsIn(image) {
  if (!data.confusions) return [];
  const { image: places, pair, share } = data.confusions, place = image.rank - 1, list = [];
  let low = 0, high = places.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (places[middle] < place) low = middle + 1; else high = middle;
  }
  for (; low < places.length && places[low] === place; low++) list.push([pair[low], share[low]]);
  return list;
}

// -- marks: stored in this browser, for this dataset -----------------------------------------
function storedSet(name) {
  const key = `gpgc-${name}-${data.key}`;
  let values = new Set();
  try { values = new Set(JSON.parse(localStorage.getItem(key) || "[]")); } catch { /* not stored */ }
  return {
    has: (value) => values.has(value),
    toggle(value) {
      if (!values.delete(value)) values.add(value);
      try { localStorage.setItem(key, JSON.stringify([...values])); } catch { /* not stored */ }
    },
  };
}
const marks = storedSet("marks"), objectMarks = storedSet("object-marks");
const objectKey = (object) => {
  const own = objects.annotation[object] || `${kindOf(object)} ${titleOf(object)} ${objects.rank[object]}`;
  return `${data.images.image[objects.image[object]]}\t${own}`;
};
const markedObjects = () => objects ? [...objects.rank.keys()].filter((object) => objectMarks.has(objectKey(object))) : [];
function countMarks() {
  const n = images.filter((image) => marks.has(image.image)).length;
  $("save").disabled = n === 0;
  $("save").textContent = n ? `Save list of marked (${n})` : "Save list of marked";
  if (!objects) return;
  const m = markedObjects().length;
  $("save-objects").disabled = m === 0;
  $("save-objects").textContent = m ? `Save marked objects (${m})` : "Save marked objects";
}
function saveFile(name, type, lines) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob(lines.map((line) => line + "\n"), { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
function saveMarks() {
  saveFile("marked.txt", "text/plain", images.filter((image) => marks.has(image.image)).map((image) => image.image));
}
const csvCell = (value) => /[",\n]/.test(value) ? `"${String(value).replaceAll('"', '""')}"` : value;
function saveObjects() {
  const rows = markedObjects().map((object) => [
    objects.rank[object], objects.annotation[object], data.images.image[objects.image[object]],
    classOf(object), kindOf(object), objects.score[object] ?? "",
  ]);
  const lines = [["rank", "annotation", "image", "class", "kind", "score"], ...rows].map((row) => row.map(csvCell).join(","));
  saveFile("marked-objects.csv", "text/csv", lines);
}
