// -- what pixels of masks look like; shared by the report and the page of gpgc review ----------------
function element(tag, css, text) {
  const made = document.createElement(tag);
  if (css) made.className = css;
  if (text !== undefined) made.textContent = text;
  return made;
}
const VOID = 255, HATCH = [150, 150, 150], HATCH_PERIOD = 6, HATCH_WIDTH = 2, STRIPE_PERIOD = 8;
const EDGE = 0.95, INSIDE = twoClasses ? 0.4 : 0.5, DIFFERENCE = 0.65;
// What a pixel shows. A wrong class is (given + 1)·BASE + CLASSES + predicted, striped in both colours.
const NOTHING = 0, MISSING = 1, SPURIOUS = 2, HATCHED = 3, CLASSES = 4, BASE = 1024;
const COLOURS = [null, data.kind_colours.missing, data.kind_colours.spurious, HATCH, ...data.colours];
const rgb = ([red, green, blue]) => `rgb(${red} ${green} ${blue})`;
const paints = {
  given: (given) => given === VOID ? HATCHED : !twoClasses ? CLASSES + given : given === 1 ? SPURIOUS : NOTHING,
  predicted: (_, predicted) => !twoClasses ? CLASSES + predicted : predicted === 1 ? MISSING : NOTHING,
  differ: (given, predicted) => given === VOID ? HATCHED : given === predicted ? NOTHING
    : given === data.background ? MISSING : predicted === data.background ? SPURIOUS
      : (given + 1) * BASE + CLASSES + predicted,
};
// Call put(pixel, colour, share, x, y) for each pixel that shows something, within [left, top, right, bottom]; whether some are void.
function paintCodes(codes, width, height, inside, put, [left, top, right, bottom] = [0, 0, width, height]) {
  const n = width * height;
  let hasVoid = false;
  for (let y = top; y < bottom; y++) {
    for (let x = left, i = y * width + left; x < right; x++, i++) {
      const code = codes[i];
      if (code === NOTHING) continue;
      let share = inside, colour = COLOURS[code % BASE];
      if (code === HATCHED) {
        hasVoid = true;
        if ((x + y) % HATCH_PERIOD >= HATCH_WIDTH) continue;
        share = DIFFERENCE;
      } else {
        if (code >= BASE && (x + y) % STRIPE_PERIOD < STRIPE_PERIOD / 2) colour = COLOURS[Math.floor(code / BASE) - 1 + CLASSES];
        if ((x > 0 && codes[i - 1] !== code) || (x < width - 1 && codes[i + 1] !== code)
          || (i >= width && codes[i - width] !== code) || (i < n - width && codes[i + width] !== code)) share = EDGE;
      }
      put(i, colour, share, x, y);
    }
  }
  return hasVoid;
}
const plural = (n, one, many) => `${n.toLocaleString("en")} ${n === 1 ? one : many}`;
const isTyping = (target) => target.closest("input, select, textarea") !== null;
const hasModifier = (event) => event.ctrlKey || event.metaKey || event.altKey;
function showSwatches() {
  document.querySelectorAll("i[data-class]").forEach((swatch) => { swatch.style.background = rgb(data.colours[Number(swatch.dataset.class)]); });
  document.querySelectorAll("i[data-kind]").forEach((swatch) => {
    const colour = rgb(data.kind_colours[swatch.dataset.kind]);
    if (swatch.classList.contains("ring")) swatch.style.borderColor = colour;
    else swatch.style.background = colour;
  });
}
function showQuality(image, text) {
  const bar = element("span", "quality"), fill = element("i"), range = element("i", "interval");
  fill.style.width = `${100 * (image.quality || 0)}%`;
  range.style.left = `${100 * (image.quality_low || 0)}%`;
  range.style.width = `${100 * ((image.quality_high || 0) - (image.quality_low || 0))}%`;
  bar.append(fill, range);
  bar.title = text;
  return bar;
}
