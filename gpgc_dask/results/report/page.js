// -- events ----------------------------------------------------------------------------------
gallery.addEventListener("click", (event) => {
  const card = event.target.closest(".card");
  if (card) enlarge(Number(card.dataset.index));
});
gallery.addEventListener("keydown", (event) => {
  const card = event.target.closest(".card");
  if (!card || hasModifier(event)) return;
  const index = Number(card.dataset.index);
  const moves = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns };
  const target = event.key in moves ? index + moves[event.key]
    : event.key === "Home" ? 0 : event.key === "End" ? shown.length - 1 : null;
  if (event.key.toLowerCase() === "m") markAt(index);
  else if (target !== null) focusCard(target);
  else return;
  event.preventDefault();
});
dialog.addEventListener("keydown", (event) => {
  if (hasModifier(event)) return;
  const own = event.target.dataset ? event.target.dataset.object : undefined;
  if (event.key === "ArrowRight") enlarge(current + 1);
  else if (event.key === "ArrowLeft") enlarge(current - 1);
  else if (objects && event.key === "ArrowDown") step(1);
  else if (objects && event.key === "ArrowUp") step(-1);
  else if (event.key.toLowerCase() === "m") markAt(current);
  else if (event.key.toLowerCase() === "z" && currentObject >= 0) { isZoomed = !isZoomed; pick(currentObject); }
  else if (event.key === "Enter" && currentObject >= 0
    && (event.target.tagName !== "BUTTON" || Number(own) === currentObject)) markObject();
  else return;
  event.preventDefault();
});
document.addEventListener("keydown", (event) => {
  if (!objects || hasModifier(event) || isTyping(event.target)) return;
  const key = event.key.toLowerCase();
  if (key !== "n" && key !== "p") return;
  step(key === "n" ? 1 : -1);
  event.preventDefault();
});
dialog.addEventListener("click", (event) => {
  if (event.target === dialog) { dialog.close(); return; }
  const own = event.target.closest("[data-object]");
  if (own) pick(Number(own.dataset.object));
});
dialog.addEventListener("close", () => {
  if ($("show").value === "marked") refresh();
  focusCard(Math.min(current, shown.length - 1));
});
$("previous").addEventListener("click", () => enlarge(current - 1));
$("next").addEventListener("click", () => enlarge(current + 1));
$("mark").addEventListener("click", () => markAt(current));
$("mark-object").addEventListener("click", markObject);
$("close").addEventListener("click", () => dialog.close());
$("save").addEventListener("click", saveMarks);
$("reset").addEventListener("click", () => { reset(); $("search").focus(); });
$("confusion-filter").addEventListener("click", () => chooseConfusion(null));
$("controls").addEventListener("submit", (event) => event.preventDefault());
for (const id of ["sort", "show", "class", "kind", ...OWN_FILTERS]) if ($(id)) $(id).addEventListener("change", refresh);
$("search").addEventListener("input", refresh);
$("threshold").addEventListener("input", moveThreshold);
$("threshold").addEventListener("change", refresh);
if (objects) {
  $("score").addEventListener("input", () => { scoreBelow = Number($("score").value); findSteps(); });
  $("score").addEventListener("change", refresh);
  $("save-objects").addEventListener("click", saveObjects);
  $("step-back").addEventListener("click", () => step(-1));
  $("step-on").addEventListener("click", () => step(1));
}
const toGallery = () => $("controls").scrollIntoView();
// Cells of the table of confusions, classes and annotators lead to their images.
document.querySelectorAll("[data-pair]").forEach((cell) => {
  cell.addEventListener("click", () => { chooseConfusion(Number(cell.dataset.pair)); toGallery(); });
});
document.querySelectorAll("[data-sort]").forEach((button) => {
  button.addEventListener("click", () => { $("sort").value = button.dataset.sort; refresh(); toGallery(); });
});
document.querySelectorAll("[data-annotator]").forEach((button) => {
  button.addEventListener("click", () => {
    if ($("annotator")) $("annotator").value = button.dataset.annotator;
    refresh();
    toGallery();
  });
});
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
showSwatches();
document.querySelectorAll("#confusion td[data-share]").forEach((cell) => {
  const colour = cell.className === "same" ? "46 158 79" : "185 45 66";
  cell.style.background = `rgb(${colour} / ${0.5 * Number(cell.dataset.share)})`;
});
moveThreshold();
countMarks();
refresh();
document.documentElement.dataset.ready = "";
performance.mark("ready");
