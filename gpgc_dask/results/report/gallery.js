// -- the gallery draws only the images in view, however many there are ------------------------------
const GAP = 14, NARROWEST = 400, MARGIN_ROWS = 2, MAX_OUTLINES = 8;
const gallery = $("gallery");
let shown = [], columns = 1, cardWidth = 0, rowHeight = 0;
let confusion = null; // {pair, shares} of the cell that was chosen
const cards = new Map();
const suspiciousIn = (image) => objects ? [...objectsOf(image)].filter((object) => isSuspicious(object) && matches(object)) : [];
// Numbers of a card that depend on what is sorted and filtered.
function moreNumbers(image, suspicious) {
  const more = [], sort = $("sort").value;
  if (sort.startsWith(IOU)) {
    const iou = classIou(image, sort.slice(IOU.length));
    more.push([`IoU of ${sort.slice(IOU.length)}`, iou === null ? "–" : iou.toFixed(2)]);
  }
  if (confusion) more.push([confusionOf(confusion.pair), `${(confusion.shares.get(image.rank - 1) / 10).toFixed(1)} %`, "share of the image"]);
  if (objects) {
    const n = objectsOf(image).length;
    if (n) more.push(["objects", `${suspicious.length} of ${n} suspicious`, "annotations and regions with a low score"]);
  }
  for (const name of OWN_FILTERS) if (image[name]) more.push([name, image[name]]);
  return more;
}
function makeCard(index) {
  const image = shown[index];
  const item = element("div", "item"), card = element("button", "card");
  item.setAttribute("role", "listitem");
  item.setAttribute("aria-posinset", index + 1);
  item.setAttribute("aria-setsize", shown.length);
  card.type = "button";
  card.dataset.index = index;
  card.classList.toggle("suspect", isSuspect(image));
  showMark(card, image);
  const head = element("span", "row"), file = element("span", "file", image.image);
  file.title = image.image;
  head.append(file, ...flags(image), element("span", "rank", `#${image.rank}`));
  const panels = element("span", "panels"), suspicious = suspiciousIn(image);
  panels.append(panel(image, "given", suspicious.slice(0, MAX_OUTLINES)), panel(image, "predicted"), panel(image, "differ"));
  card.append(head, panels, qualityBar(image), numbers(image, moreNumbers(image, suspicious)));
  item.append(card);
  return item;
}
function showMark(card, image) {
  const marked = marks.has(image.image);
  card.classList.toggle("marked", marked);
  card.setAttribute("aria-label", `${image.image}, rank ${image.rank} of ${images.length}, `
    + `quality ${display(qualityColumn, image)}${labelsOf(image).map((label) => ", " + label).join("")}`
    + `${marked ? ", marked" : ""}. Enlarge`);
}
const hasMore = objects !== null || OWN_FILTERS.some((name) => name in data.images);
function layout() {
  const width = gallery.clientWidth;
  columns = Math.max(Math.floor((width + GAP) / (Math.min(NARROWEST, width) + GAP)), 1);
  cardWidth = (width - GAP * (columns - 1)) / columns;
  const extra = hasMore || confusion || $("sort").value.startsWith(IOU) ? 19 : 0;
  rowHeight = Math.round((cardWidth - 36) / 3 * 0.75) + (shownColumns.length > 3 ? 124 : 106) + extra + GAP;
  gallery.style.height = `${Math.ceil(shown.length / columns) * rowHeight}px`;
  for (const item of cards.values()) item.remove();
  cards.clear();
  update();
}
function update() {
  const top = -gallery.getBoundingClientRect().top;
  const first = Math.max(Math.floor(top / rowHeight) - MARGIN_ROWS, 0) * columns;
  const last = Math.min((Math.ceil((top + innerHeight) / rowHeight) + MARGIN_ROWS) * columns, shown.length);
  const focused = document.activeElement && document.activeElement.dataset ? Number(document.activeElement.dataset.index) : -1;
  for (const [index, item] of cards) {
    if ((index < first || index >= last) && index !== focused) { item.remove(); cards.delete(index); }
  }
  for (let index = first; index < last; index++) {
    if (cards.has(index)) continue;
    const item = makeCard(index);
    item.style.width = `${cardWidth}px`;
    item.style.height = `${rowHeight - GAP}px`;
    item.style.transform = `translate(${(index % columns) * (cardWidth + GAP)}px, ${Math.floor(index / columns) * rowHeight}px)`;
    cards.set(index, item);
    // In the order of the images, so that Tab moves to the next one.
    let after = index + 1;
    while (after < last && !cards.has(after)) after++;
    gallery.insertBefore(item, after < last ? cards.get(after) : null);
  }
}
function focusCard(index) {
  if (index < 0 || index >= shown.length) return;
  const top = gallery.getBoundingClientRect().top + scrollY + Math.floor(index / columns) * rowHeight;
  const head = $("controls").offsetHeight;
  if (top - head < scrollY || top + rowHeight > scrollY + innerHeight) scrollTo(0, top - head - GAP);
  update();
  const item = cards.get(index);
  if (item) item.firstChild.focus({ preventScroll: true });
}

// -- sorting and filtering -------------------------------------------------------------------
const orders = {
  image: (a, b) => a.image < b.image ? -1 : a.image > b.image ? 1 : 0,
  confusion: (a, b) => confusion.shares.get(b.rank - 1) - confusion.shares.get(a.rank - 1) || a.rank - b.rank,
};
for (const { name, higher_is_better: higherIsBetter } of shownColumns) {
  // Unknown values are the worst. The ranks are by quality already, ties included.
  const value = (image) => image[name] === null ? (higherIsBetter ? -Infinity : Infinity) : image[name];
  const compare = name === "quality" ? () => 0 : (a, b) => value(a) - value(b) || 0;
  orders[name] = (a, b) => compare(a, b) || a.rank - b.rank;
  orders["-" + name] = (a, b) => compare(b, a) || b.rank - a.rank;
}
for (const column of Object.keys(data.images).filter((name) => name.startsWith(IOU))) {
  // Images without the class come last.
  const values = data.images[column].map((value) => value ?? 2);
  orders[column] = (a, b) => values[a.rank - 1] - values[b.rank - 1] || a.rank - b.rank;
}
const valueOf = (id) => $(id) ? $(id).value : "";
// Whether an object belongs to the class and the kind that are chosen.
function matches(object) {
  const kind = valueOf("kind"), name = valueOf("class");
  return (!kind || kind === "any" || kindOf(object) === kind)
    && (!name || classOf(object) === name || givenOf(object) === name);
}
function hasClass(image, name) {
  return IOU + name in data.images ? classIou(image, name) !== null
    : [...objectsOf(image)].some((object) => classOf(object) === name || givenOf(object) === name);
}
function isShown(image, kind) {
  const colon = kind.indexOf(":");
  if (colon > 0) return image[kind.slice(0, colon)].includes(kind.slice(colon + 1));
  return { all: true, suspect: isSuspect(image), fine: !isSuspect(image), flagged: labelsOf(image).length > 0,
    marked: marks.has(image.image) }[kind];
}
function passes(image, text) {
  return isShown(image, $("show").value) && image.image.toLowerCase().includes(text)
    && OWN_FILTERS.every((name) => !valueOf(name) || image[name] === valueOf(name))
    && (!confusion || confusion.shares.has(image.rank - 1))
    && (valueOf("kind") ? suspiciousIn(image).length > 0 : !valueOf("class") || hasClass(image, valueOf("class")));
}
let steps = []; // suspicious objects that pass the filters, worst first
let placeOf = new Int32Array(images.length); // place of each image among those shown, or -1
function refresh() {
  const text = $("search").value.toLowerCase();
  shown = images.filter((image) => passes(image, text));
  shown.sort(orders[$("sort").value]);
  placeOf = new Int32Array(images.length).fill(-1);
  shown.forEach((image, index) => { placeOf[image.rank - 1] = index; });
  $("count").textContent = shown.length === images.length ? plural(images.length, "image", "images")
    : `${shown.length.toLocaleString("en")} of ${plural(images.length, "image", "images")}`;
  $("nothing").hidden = shown.length > 0;
  findSteps();
  layout();
}
function findSteps() {
  if (!objects) return;
  steps = [];
  for (let object = 0; object < objectCount; object++) {
    if (isSuspicious(object) && placeOf[objects.image[object]] >= 0 && matches(object)) steps.push(object);
  }
  $("score-value").textContent = scoreBelow.toFixed(2);
  $("object-count").textContent = steps.length.toLocaleString("en");
  for (const id of ["step-back", "step-on"]) $(id).disabled = steps.length === 0;
}
function moveThreshold() {
  threshold = Number($("threshold").value);
  $("threshold-value").textContent = threshold.toFixed(2);
  $("suspect-count").textContent = images.filter(isSuspect).length.toLocaleString("en");
  for (const bar of document.querySelectorAll("#chart-quality .bar")) {
    bar.classList.toggle("suspect", (Number(bar.dataset.low) + Number(bar.dataset.high)) / 2 < threshold);
  }
}
// Show the images in which one class is predicted as another; null shows all.
function chooseConfusion(pair) {
  confusion = pair === null ? null : { pair, shares: imagesWith(pair) };
  const option = $("sort").querySelector('option[value="confusion"]');
  if (confusion && !option) {
    const made = element("option", "", "share of the confusion");
    made.value = "confusion";
    $("sort").append(made);
  } else if (!confusion && option) option.remove();
  if (confusion) $("sort").value = "confusion";
  $("confusion-filter").hidden = !confusion;
  $("confusion-filter").textContent = confusion ? `${confusionOf(pair)} ✕` : "";
  refresh();
}
function reset() {
  for (const id of ["search", "class", "kind", ...OWN_FILTERS]) if ($(id)) $(id).value = "";
  $("show").value = "all";
  chooseConfusion(null);
}
