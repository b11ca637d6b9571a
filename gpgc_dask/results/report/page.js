"use strict";
// The gallery draws only the images in view, however many there are.
(() => {
  const $ = (id) => document.getElementById(id);
  const data = JSON.parse($("data").textContent);
  const images = data.images;
  const twoClasses = data.classes.length === 2;
  const PALETTE = [[240, 228, 66], [255, 140, 0], [0, 163, 224], [80, 200, 120], [200, 80, 200], [240, 220, 60],
    [120, 120, 255], [255, 110, 110], [0, 200, 190], [170, 120, 60], [150, 200, 60], [255, 150, 220]];
  const GIVEN = [255, 140, 0], PREDICTED = [0, 163, 224], DIFFER = [255, 43, 214], NONE = 255;
  const GAP = 14, NARROWEST = 400, MARGIN_ROWS = 2;

  // -- values of an image ----------------------------------------------------------------------
  let threshold = data.threshold;
  // Beyond the threshold of the program: by the upper limit of the quality, which holds in 90 % of the cases.
  const isSuspect = (image) => threshold === data.threshold ? image.suspect
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
  const chunks = new Map();
  function picture(image) {
    const index = image.rank - 1, part = Math.floor(index / data.chunk);
    if (!chunks.has(part)) {
      const holder = $("pictures-" + part);
      chunks.set(part, holder ? JSON.parse(holder.textContent) : []);
    }
    return chunks.get(part)[index % data.chunk] || null;
  }

  // -- marks: stored in this browser, for this dataset -----------------------------------------
  const store = "gpgc-marks-" + data.key;
  let marks = new Set();
  try { marks = new Set(JSON.parse(localStorage.getItem(store) || "[]")); } catch { /* not stored */ }
  function toggleMark(image) {
    if (!marks.delete(image.image)) marks.add(image.image);
    try { localStorage.setItem(store, JSON.stringify([...marks])); } catch { /* not stored */ }
    countMarks();
  }
  function countMarks() {
    const n = images.filter((image) => marks.has(image.image)).length;
    $("save").disabled = n === 0;
    $("save").textContent = n ? `Save list of marked (${n})` : "Save list of marked";
  }
  function saveMarks() {
    const names = images.filter((image) => marks.has(image.image)).map((image) => image.image + "\n");
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob(names, { type: "text/plain" }));
    link.download = "marked.txt";
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }

  // -- drawing ---------------------------------------------------------------------------------
  const load = (type, base64) => new Promise((resolve, reject) => {
    const image = new Image();
    image.onload = () => resolve(image);
    image.onerror = reject;
    image.src = `data:image/${type};base64,${base64}`;
  });
  const decoded = new Map();
  function decode(image) {
    const known = decoded.get(image.rank);
    if (known) return known;
    const packed = picture(image);
    if (!packed) return null;
    const made = Promise.all([load("jpeg", packed[2]), load("png", packed[3])]).then(([photo, labels]) => {
      const canvas = new OffscreenCanvas(packed[0], packed[1]);
      const context = canvas.getContext("2d", { willReadFrequently: true });
      context.drawImage(labels, 0, 0);
      return { photo, labels: context.getImageData(0, 0, packed[0], packed[1]).data, width: packed[0], height: packed[1] };
    });
    decoded.set(image.rank, made);
    if (decoded.size > 120) decoded.delete(decoded.keys().next().value);
    return made;
  }
  // Which colour a pixel gets by its given and predicted class; 0 leaves the photo as it is.
  const COLOURS = [null, GIVEN, PREDICTED, DIFFER, ...PALETTE];
  const ofClass = (code) => code === data.background || code === NONE ? 0 : 4 + code % PALETTE.length;
  const paints = {
    given: (given) => twoClasses ? Number(given === 1) : ofClass(given),
    predicted: (_, predicted) => twoClasses ? 2 * Number(predicted === 1) : ofClass(predicted),
    differ: (given, predicted) => given === predicted || given === NONE ? 0
      : !twoClasses ? 3 : given === 1 ? 1 : 2,
  };
  function draw(canvas, parts, kind) {
    const { photo, labels, width, height } = parts;
    canvas.width = width;
    canvas.height = height;
    const context = canvas.getContext("2d", { willReadFrequently: true });
    if (kind === "differ") context.filter = "grayscale(1) brightness(0.75)";
    context.drawImage(photo, 0, 0, width, height);
    context.filter = "none";
    if (kind === "photo") return;
    const pixels = context.getImageData(0, 0, width, height);
    const out = pixels.data, paint = paints[kind], n = width * height;
    const inside = kind === "differ" ? 0.65 : 0.4;
    const codes = new Uint8Array(n);
    for (let i = 0; i < n; i++) codes[i] = paint(labels[4 * i], labels[4 * i + 1]);
    for (let i = 0; i < n; i++) {
      const code = codes[i];
      if (!code) continue;
      const x = i % width;
      const edge = (x > 0 && codes[i - 1] !== code) || (x < width - 1 && codes[i + 1] !== code)
        || (i >= width && codes[i - width] !== code) || (i < n - width && codes[i + width] !== code);
      const share = edge ? 0.95 : inside, colour = COLOURS[code];
      for (let c = 0; c < 3; c++) out[4 * i + c] += share * (colour[c] - out[4 * i + c]);
    }
    context.putImageData(pixels, 0, 0);
  }
  function element(tag, css, text) {
    const made = document.createElement(tag);
    if (css) made.className = css;
    if (text !== undefined) made.textContent = text;
    return made;
  }
  const CAPTIONS = { photo: "photo", given: "given mask", predicted: "prediction", differ: "where they differ" };
  function panel(image, kind) {
    const holder = element("span", "panel", CAPTIONS[kind]), frame = element("div");
    const canvas = element("canvas");
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", `${CAPTIONS[kind]}: ${image.image}`);
    frame.append(canvas);
    holder.prepend(frame);
    const parts = decode(image);
    // A card that has left the view in the meantime is not drawn.
    if (parts) parts.then((loaded) => canvas.isConnected && draw(canvas, loaded, kind)).catch(() => frame.append("picture corrupted"));
    else frame.append("no picture");
    return holder;
  }
  function qualityBar(image) {
    const bar = element("span", "quality"), fill = element("i"), range = element("i", "interval");
    fill.style.width = `${100 * (image.quality || 0)}%`;
    range.style.left = `${100 * (image.quality_low || 0)}%`;
    range.style.width = `${100 * ((image.quality_high || 0) - (image.quality_low || 0))}%`;
    bar.append(fill, range);
    bar.title = `quality ${image.quality === null ? "unknown" : display(qualityColumn, image)}`;
    return bar;
  }
  function numbers(image) {
    const line = element("span", "numbers");
    for (const column of shownColumns) {
      const pair = element("span", "", `${column.title} `);
      pair.title = column.help;
      pair.append(element("b", "", display(column, image)));
      line.append(pair, " ");
    }
    return line;
  }
  const labelsOf = (image) => labelColumns.flatMap((column) => image[column.name]);
  const flags = (image) => labelsOf(image).map((label) => element("span", "flag", `⚑ ${label}`));

  // -- the gallery -----------------------------------------------------------------------------
  const gallery = $("gallery");
  let shown = [], columns = 1, cardWidth = 0, rowHeight = 0;
  const cards = new Map();
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
    const panels = element("span", "panels");
    panels.append(panel(image, "given"), panel(image, "predicted"), panel(image, "differ"));
    card.append(head, panels);
    card.append(qualityBar(image), numbers(image));
    item.append(card);
    return item;
  }
  function layout() {
    const width = gallery.clientWidth;
    columns = Math.max(Math.floor((width + GAP) / (Math.min(NARROWEST, width) + GAP)), 1);
    cardWidth = (width - GAP * (columns - 1)) / columns;
    rowHeight = Math.round((cardWidth - 36) / 3 * 0.75) + (shownColumns.length > 3 ? 124 : 106) + GAP;
    gallery.style.height = `${Math.ceil(shown.length / columns) * rowHeight}px`;
    clear();
    update();
  }
  function clear() {
    for (const item of cards.values()) item.remove();
    cards.clear();
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
    "image": (a, b) => a.image < b.image ? -1 : a.image > b.image ? 1 : 0,
  };
  for (const { name, higher_is_better: higherIsBetter } of shownColumns) {
    // Unknown values are the worst. The ranks are by quality already, ties included.
    const value = (image) => image[name] === null ? (higherIsBetter ? -Infinity : Infinity) : image[name];
    const compare = name === "quality" ? () => 0 : (a, b) => value(a) - value(b) || 0;
    orders[name] = (a, b) => compare(a, b) || a.rank - b.rank;
    orders["-" + name] = (a, b) => compare(b, a) || b.rank - a.rank;
  }
  function passes(image, kind) {
    const colon = kind.indexOf(":");
    if (colon > 0) return image[kind.slice(0, colon)].includes(kind.slice(colon + 1));
    return { all: true, suspect: isSuspect(image), fine: !isSuspect(image), flagged: labelsOf(image).length > 0,
      marked: marks.has(image.image) }[kind];
  }
  function refresh() {
    const kind = $("show").value, text = $("search").value.toLowerCase();
    shown = images.filter((image) => passes(image, kind) && image.image.toLowerCase().includes(text));
    shown.sort(orders[$("sort").value]);
    $("count").textContent = shown.length === images.length ? `${images.length.toLocaleString("en")} images`
      : `${shown.length.toLocaleString("en")} of ${images.length.toLocaleString("en")} images`;
    $("nothing").hidden = shown.length > 0;
    layout();
  }
  function moveThreshold() {
    threshold = Number($("threshold").value);
    $("threshold-value").textContent = threshold.toFixed(2);
    $("suspect-count").textContent = images.filter(isSuspect).length.toLocaleString("en");
    for (const bar of document.querySelectorAll("#chart-quality .bar")) {
      bar.classList.toggle("suspect", (Number(bar.dataset.low) + Number(bar.dataset.high)) / 2 < threshold);
    }
  }

  // -- one image, large ------------------------------------------------------------------------
  const dialog = $("large");
  let current = -1;
  function enlarge(index) {
    if (index < 0 || index >= shown.length) return;
    current = index;
    const image = shown[index], body = $("large-body");
    $("large-name").textContent = `${image.image}  #${image.rank} of ${images.length.toLocaleString("en")}`;
    const panels = element("div", "large-panels");
    for (const kind of ["photo", "given", "predicted", "differ"]) panels.append(panel(image, kind));
    body.replaceChildren(panels);
    body.append(qualityBar(image), numbers(image), ...flags(image));
    // Not disabled: a disabled button would lose the focus and the keyboard.
    $("previous").setAttribute("aria-disabled", index === 0);
    $("next").setAttribute("aria-disabled", index === shown.length - 1);
    updateMarkButton(image);
    if (!dialog.open) {
      dialog.showModal();
      $("large-name").focus();
    }
  }
  function updateMarkButton(image) {
    $("mark").textContent = marks.has(image.image) ? "Unmark" : "Mark";
    $("mark").setAttribute("aria-pressed", marks.has(image.image));
  }
  function showMark(card, image) {
    const marked = marks.has(image.image);
    card.classList.toggle("marked", marked);
    card.setAttribute("aria-label", `${image.image}, rank ${image.rank} of ${images.length}, `
      + `quality ${display(qualityColumn, image)}${labelsOf(image).map((label) => ", " + label).join("")}`
      + `${marked ? ", marked" : ""}. Enlarge`);
  }
  function markAt(index) {
    const image = shown[index], item = cards.get(index);
    toggleMark(image);
    if (item) showMark(item.firstChild, image);
    if (dialog.open) updateMarkButton(image);
    else if ($("show").value === "marked") { refresh(); focusCard(Math.min(index, shown.length - 1)); }
  }

  // -- events ----------------------------------------------------------------------------------
  gallery.addEventListener("click", (event) => {
    const card = event.target.closest(".card");
    if (card) enlarge(Number(card.dataset.index));
  });
  gallery.addEventListener("keydown", (event) => {
    const card = event.target.closest(".card");
    if (!card || event.ctrlKey || event.metaKey || event.altKey) return;
    const index = Number(card.dataset.index);
    const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns };
    const target = event.key in steps ? index + steps[event.key]
      : event.key === "Home" ? 0 : event.key === "End" ? shown.length - 1 : null;
    if (event.key.toLowerCase() === "m") markAt(index);
    else if (target !== null) focusCard(target);
    else return;
    event.preventDefault();
  });
  dialog.addEventListener("keydown", (event) => {
    if (event.key === "ArrowRight") enlarge(current + 1);
    else if (event.key === "ArrowLeft") enlarge(current - 1);
    else if (event.key.toLowerCase() === "m") markAt(current);
  });
  dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
  dialog.addEventListener("close", () => {
    if ($("show").value === "marked") refresh();
    focusCard(Math.min(current, shown.length - 1));
  });
  $("previous").addEventListener("click", () => enlarge(current - 1));
  $("next").addEventListener("click", () => enlarge(current + 1));
  $("mark").addEventListener("click", () => markAt(current));
  $("close").addEventListener("click", () => dialog.close());
  $("save").addEventListener("click", saveMarks);
  $("reset").addEventListener("click", () => { $("show").value = "all"; $("search").value = ""; refresh(); $("search").focus(); });
  $("controls").addEventListener("submit", (event) => event.preventDefault());
  for (const id of ["sort", "show"]) $(id).addEventListener("change", refresh);
  $("search").addEventListener("input", refresh);
  $("threshold").addEventListener("input", moveThreshold);
  $("threshold").addEventListener("change", refresh);
  let waiting = false;
  addEventListener("scroll", () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => { waiting = false; update(); });
  }, { passive: true });
  let width = 0;
  new ResizeObserver(() => {
    if (gallery.clientWidth !== width) { width = gallery.clientWidth; layout(); }
  }).observe(gallery);
  addEventListener("resize", update);
  document.querySelectorAll(".legend i[class^=class-]").forEach((swatch) => {
    const [red, green, blue] = PALETTE[Number(swatch.className.slice(6)) % 12];
    swatch.style.background = `rgb(${red} ${green} ${blue})`;
  });
  document.querySelectorAll("#confusion td[data-share]").forEach((cell) => {
    const colour = cell.className === "same" ? "46 158 79" : "185 45 66";
    cell.style.background = `rgb(${colour} / ${0.5 * Number(cell.dataset.share)})`;
  });
  moveThreshold();
  countMarks();
  refresh();
})();
