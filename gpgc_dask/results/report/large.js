// -- one image, large, and its objects ---------------------------------------------------------
const dialog = $("large"), MAX_LISTED = 200;
let current = -1, currentObject = -1;
function enlarge(index, object = -1) {
  if (index < 0 || index >= shown.length) return;
  current = index;
  currentObject = object;
  const image = shown[index], body = $("large-body");
  $("large-name").textContent = `${image.image}  #${image.rank} of ${images.length.toLocaleString("en")}`;
  const panels = element("div", "large-panels");
  const own = objects ? [...objectsOf(image)] : [];
  for (const kind of ["photo", "given", "predicted", "differ"]) {
    // The masks stay visible: only the photo has all outlines.
    panels.append(panel(image, kind, kind === "photo" ? own : own.filter((one) => one === object), object));
  }
  body.replaceChildren(panels, qualityBar(image), numbers(image, moreNumbers(image, suspiciousIn(image))), ...flags(image));
  const confused = confusionsIn(image).slice(0, 6).map(([pair, share]) => `${confusionOf(pair)} ${(share / 10).toFixed(1)} %`);
  if (confused.length) body.append(element("p", "confused", `Given → predicted, by share of the image: ${confused.join(", ")}`));
  if (own.length) body.append(objectList(own, object));
  // Not disabled: a disabled button would lose the focus and the keyboard.
  $("previous").setAttribute("aria-disabled", index === 0);
  $("next").setAttribute("aria-disabled", index === shown.length - 1);
  updateMarkButton(image);
  showObject(object);
  if (!dialog.open) {
    dialog.showModal();
    $("large-name").focus();
  }
}
function objectList(own, object) {
  const list = element("ol", "objects");
  list.setAttribute("aria-label", "Annotations and regions of this image, worst first");
  for (const one of own.slice(0, MAX_LISTED)) {
    const item = element("li"), button = element("button", isSuspicious(one) ? "suspicious" : "");
    button.type = "button";
    button.dataset.object = one;
    const swatch = element("i");
    swatch.style.background = rgb(data.kind_colours[kindOf(one)]);
    const annotation = objects.annotation[one] ? ` · ${objects.annotation[one]}` : "";
    button.append(swatch, element("b", "", titleOf(one)), ` ${kindOf(one)} · ${scoreOf(one)}${annotation}`);
    button.setAttribute("aria-current", one === object);
    button.classList.toggle("marked", objectMarks.has(objectKey(one)));
    item.append(button);
    list.append(item);
  }
  if (own.length > MAX_LISTED) list.append(element("li", "", `and ${own.length - MAX_LISTED} more`));
  return list;
}
// The line above the pictures: which object this is.
function showObject(object) {
  $("large-object").hidden = object < 0;
  $("mark-object").hidden = object < 0;
  if (object < 0) return;
  const place = steps.indexOf(object), marked = objectMarks.has(objectKey(object));
  const facts = [titleOf(object), kindOf(object), scoreOf(object), `${(100 * objects.area[object]).toPrecision(2)} % of the photo`];
  if (objects.annotation[object]) facts.push(`annotation ${objects.annotation[object]}`);
  if (place >= 0) facts.unshift(`Object ${(place + 1).toLocaleString("en")} of ${steps.length.toLocaleString("en")}`);
  $("large-object").textContent = facts.join(" · ") + (marked ? " · marked" : "");
  $("mark-object").textContent = marked ? "Unmark object" : "Mark object";
}
// Go to the next (1) or previous (-1) suspicious object.
function step(direction) {
  if (!steps.length) return;
  let place;
  if (currentObject >= 0) {
    const after = steps.findIndex((object) => object >= currentObject);
    place = after < 0 ? steps.length : after;
    if (direction < 0 || steps[place] === currentObject) place += direction;
  } else {
    // From an image that was enlarged: its own worst object, otherwise the worst of all.
    const here = dialog.open ? steps.findIndex((object) => placeOf[objects.image[object]] === current) : -1;
    place = Math.max(here, 0);
  }
  place = Math.min(Math.max(place, 0), steps.length - 1);
  enlarge(placeOf[objects.image[steps[place]]], steps[place]);
}
function pick(object) {
  const focused = document.activeElement && dialog.contains(document.activeElement) && document.activeElement.dataset.object;
  enlarge(current, object);
  if (focused) focusObject(object);
}
function focusObject(object) {
  const button = $("large-body").querySelector(`button[data-object="${object}"]`);
  if (button) button.focus();
}
function markObject() {
  if (currentObject < 0) return;
  objectMarks.toggle(objectKey(currentObject));
  countMarks();
  showObject(currentObject);
  const button = $("large-body").querySelector(`button[data-object="${currentObject}"]`);
  if (button) button.classList.toggle("marked", objectMarks.has(objectKey(currentObject)));
}
function updateMarkButton(image) {
  $("mark").textContent = marks.has(image.image) ? "Unmark" : "Mark";
  $("mark").setAttribute("aria-pressed", marks.has(image.image));
}
function markAt(index) {
  const image = shown[index], item = cards.get(index);
  marks.toggle(image.image);
  countMarks();
  if (item) showMark(item.firstChild, image);
  if (dialog.open) updateMarkButton(image);
  else if ($("show").value === "marked") { refresh(); focusCard(Math.min(index, shown.length - 1)); }
}
