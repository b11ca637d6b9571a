// -- drawing: photo, masks, differences by kind, outlines ------------------------------------------
const decoded = new Map(), MAX_DECODED = 120;
const load = (type, base64) => new Promise((resolve, reject) => {
  const image = new Image();
  image.onload = () => resolve(image);
  image.onerror = reject;
  image.src = `data:image/${type};base64,${base64}`;
});
// The photo and its labels; null if the image has no picture.
function decode(image) {
  if (image.rank > data.pictures) return Promise.resolve(null);
  if (!decoded.has(image.rank)) {
    decoded.set(image.rank, ofChunk("pictures", image).then(async (packed) => {
      if (!packed) return null;
      const [width, height] = packed;
      const [photo, labels] = await Promise.all([load("jpeg", packed[2]), load("png", packed[3])]);
      const context = new OffscreenCanvas(width, height).getContext("2d", { willReadFrequently: true });
      context.drawImage(labels, 0, 0);
      return { photo, labels: context.getImageData(0, 0, width, height).data, width, height };
    }));
    if (decoded.size > MAX_DECODED) decoded.delete(decoded.keys().next().value);
  }
  return decoded.get(image.rank);
}
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
  const inside = kind === "differ" ? DIFFERENCE : INSIDE;
  const codes = new Uint32Array(n);
  for (let i = 0; i < n; i++) codes[i] = paint(labels[4 * i], labels[4 * i + 1]);
  const hasVoid = paintCodes(codes, width, height, inside, (i, colour, share) => {
    for (let c = 0; c < 3; c++) out[4 * i + c] += share * (colour[c] - out[4 * i + c]);
  });
  context.putImageData(pixels, 0, 0);
  if (!performance.getEntriesByName("drawn").length) performance.mark("drawn");
  if (hasVoid) $("void").hidden = false;
}

let isZoomed = false;
const MAX_ZOOM = 5, AROUND = 2.5; // an enlarged object has at most 1 / 2.5 of the width
// -- outlines of objects, as SVG over a picture ------------------------------------------------
const SVG = document.querySelector("figure svg").namespaceURI; // its name is an address, which the page does without
function svg(tag, attributes) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}
const path = (rings) => rings.map((ring) => {
  let text = "";
  for (let i = 0; i < ring.length; i += 2) text += `${i ? "L" : "M"}${ring[i]} ${ring[i + 1]}`;
  return text + "Z";
}).join("");
// [left, top, width, height] of the part of a picture to show, in steps of the grid: all of it, or what is around an object.
function viewOf(parts, rings) {
  const longer = Math.max(parts.width, parts.height);
  const width = data.grid * parts.width / longer, height = data.grid * parts.height / longer;
  if (!rings || !rings.length) return [0, 0, width, height];
  const [xs, ys] = [0, 1].map((axis) => rings.flatMap((ring) => ring.filter((_, index) => index % 2 === axis)));
  const [left, right, top, bottom] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
  const share = Math.min(Math.max(AROUND * (right - left) / width, AROUND * (bottom - top) / height, 1 / MAX_ZOOM), 1);
  const begin = (low, high, side) => Math.min(Math.max((low + high - share * side) / 2, 0), side * (1 - share));
  return [begin(left, right, width), begin(top, bottom, height), share * width, share * height];
}
async function outline(frame, image, shownObjects, current, parts) {
  const rings = await ofChunk("outlines", image);
  if (!rings || !frame.isConnected) return;
  const own = objectsOf(image), all = viewOf(parts, null);
  const view = viewOf(parts, isZoomed && current >= 0 ? rings[own.indexOf(current)] : null);
  frame.firstChild.style.transform = view[2] === all[2] ? ""
    : `scale(${all[2] / view[2]}) translate(${-100 * view[0] / all[2]}%, ${-100 * view[1] / all[3]}%)`;
  const drawn = svg("svg", { viewBox: view.join(" "), class: "outlines", role: "img",
    "aria-label": `outlines of ${plural(shownObjects.length, "object", "objects")}` });
  // The current one is drawn last, on top.
  for (const object of [...shownObjects].sort((a, b) => (a === current) - (b === current))) {
    const d = path(rings[own.indexOf(object)] || []);
    if (!d) continue;
    const state = object === current ? " current" : isSuspicious(object) ? "" : " faint";
    const holder = svg("g", { class: `outline${state}`, "data-object": object });
    const title = svg("title", {});
    title.textContent = `${titleOf(object)}, ${kindOf(object)}, ${scoreOf(object)}`;
    holder.append(title, svg("path", { d, class: "halo" }),
      svg("path", { d, class: "line", stroke: rgb(data.kind_colours[kindOf(object)]) }));
    drawn.append(holder);
  }
  frame.append(drawn);
}

// -- panels --------------------------------------------------------------------------------------
const CAPTIONS = { photo: "photo", given: "given mask", predicted: "prediction", differ: "where they differ" };
function panel(image, kind, shownObjects = [], current = -1) {
  const holder = element("span", "panel", CAPTIONS[kind]), frame = element("div");
  const canvas = element("canvas");
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", `${CAPTIONS[kind]}: ${image.image}`);
  frame.append(canvas);
  holder.prepend(frame);
  decode(image).then((parts) => {
    if (!parts) { frame.append("no picture"); return; }
    if (!canvas.isConnected) return; // a card that has left the view in the meantime
    draw(canvas, parts, kind);
    if (shownObjects.length) outline(frame, image, shownObjects, current, parts);
  }).catch(() => frame.append("picture corrupted"));
  return holder;
}
const qualityBar = (image) => showQuality(image, `quality ${image.quality === null ? "unknown" : display(qualityColumn, image)}`);
function numbers(image, more = []) {
  const line = element("span", "numbers");
  const shownNumbers = shownColumns.map((column) => [column.title, display(column, image), column.help]);
  for (const [title, value, help] of [...more, ...shownNumbers]) {
    const pair = element("span", "", `${title} `);
    if (help) pair.title = help;
    pair.append(element("b", "", value));
    line.append(pair, " ");
  }
  return line;
}
const flags = (image) => labelsOf(image).map((label) => element("span", "flag", `⚑ ${label}`));
