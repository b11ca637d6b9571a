// -- the stage: three pictures of one image, zoomed and moved together -------------------------------------
const CAPTIONS = { given: "given mask", predicted: "model's mask, made without this image", differ: "where they differ" };
const MAX_ZOOM = 24;
const views = [...document.querySelectorAll(".view")].map((figure) => ({ figure, canvas: figure.querySelector("canvas"), kind: figure.dataset.view }));
const camera = { zoom: 1, x: 0, y: 0 };
let shown = null, hidesMasks = false, pending = false, cursor = null;
const largeView = () => views.find((view) => view.figure.classList.contains("large"));
const isEditable = (view) => view.kind !== "predicted";
function scaleOf(view) {
  const { canvas } = view;
  return camera.zoom * Math.min(canvas.width / shown.width, canvas.height / shown.height);
}
function resetCamera() {
  Object.assign(camera, { zoom: 1, x: shown.width / 2, y: shown.height / 2 });
}
function moveCamera(dx, dy) {
  camera.x = Math.min(Math.max(camera.x + dx, 0), shown.width);
  camera.y = Math.min(Math.max(camera.y + dy, 0), shown.height);
  redraw();
}
function zoomBy(factor, point = null) {
  const zoom = Math.min(Math.max(camera.zoom * factor, 1), MAX_ZOOM), ratio = zoom / camera.zoom;
  const [x, y] = point || [camera.x, camera.y];
  camera.zoom = zoom;
  if (zoom === 1) resetCamera();
  moveCamera((x - camera.x) * (1 - 1 / ratio), (y - camera.y) * (1 - 1 / ratio));
}
// [x, y] of the picture at a pointer.
function pointAt(view, event) {
  const box = view.canvas.getBoundingClientRect(), scale = scaleOf(view), ratio = view.canvas.width / box.width;
  const px = (event.clientX - box.left) * ratio, py = (event.clientY - box.top) * ratio;
  return [(px - view.canvas.width / 2) / scale + camera.x, (py - view.canvas.height / 2) / scale + camera.y];
}
function drawView(view) {
  const { canvas, kind } = view, ratio = devicePixelRatio || 1;
  const [width, height] = [Math.round(canvas.clientWidth * ratio), Math.round(canvas.clientHeight * ratio)];
  if (canvas.width !== width || canvas.height !== height) { canvas.width = width; canvas.height = height; }
  const context = canvas.getContext("2d");
  context.setTransform(1, 0, 0, 1, 0, 0);
  context.clearRect(0, 0, width, height);
  if (!shown || !width || !height) return;
  const scale = scaleOf(view);
  context.setTransform(scale, 0, 0, scale, width / 2 - camera.x * scale, height / 2 - camera.y * scale);
  context.imageSmoothingEnabled = scale < 3 * ratio;
  context.drawImage(kind === "differ" && !hidesMasks ? shown.grey : shown.photo, 0, 0, shown.width, shown.height);
  if (!hidesMasks) {
    context.drawImage(shown.layers[kind], 0, 0);
    drawRegion(context, scale / ratio);
  }
  if (view === largeView()) drawCursor(context, scale / ratio);
}
function draw() {
  pending = false;
  views.forEach(drawView);
}
function redraw() {
  if (pending) return;
  pending = true;
  requestAnimationFrame(draw);
}
function strokeOutline(context, path, scale, colour, wide) {
  context.lineJoin = "round";
  for (const [style, width] of [["rgb(0 0 0 / 75%)", wide + 2.5], [colour, wide]]) {
    context.strokeStyle = style;
    context.lineWidth = width / scale;
    context.stroke(path);
  }
}
function captions() {
  const own = shown && decidedKind(shown.image), edited = isDirty(shown);
  for (const { figure, canvas, kind } of views) {
    const mask = kind !== "given" ? CAPTIONS[kind] : own && own.kind === "corrected" ? "corrected mask" : CAPTIONS.given;
    const text = hidesMasks ? "photo, masks hidden" : mask;
    figure.lastElementChild.textContent = text;
    figure.classList.toggle("edited", edited && kind !== "predicted");
    figure.classList.toggle("editable", figure.classList.contains("large") && kind !== "predicted");
    canvas.setAttribute("aria-label", shown ? `${text}: ${data.images.image[shown.image]}` : text);
    canvas.tabIndex = figure.classList.contains("large") ? 0 : -1;
  }
  $("unsaved").hidden = !edited;
}
function enlargeView(view) {
  for (const each of views) each.figure.classList.toggle("large", each === view);
  captions();
  draw();
}
const nextView = () => enlargeView(views[(views.indexOf(largeView()) + 1) % views.length]);
new ResizeObserver(draw).observe($("stage"));
