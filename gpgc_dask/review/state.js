// -- the server: every request has the token, and verdicts are repeated under the same id until they are answered ---
const $ = (id) => document.getElementById(id);
const pause = (milliseconds) => new Promise((resolve) => { setTimeout(resolve, milliseconds); });
const makeId = () => [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
function takeToken() {
  const token = new URLSearchParams(location.hash.slice(1)).get("token");
  if (token === null) return false;
  sessionStorage.setItem("gpgc-token", token);
  history.replaceState(null, "", location.pathname);
  return true;
}
takeToken();
addEventListener("hashchange", () => { if (takeToken()) location.reload(); });
const WRONG_TOKEN = "The server has another token: open the address that gpgc review has printed.";
function showProblem(text) {
  $("problem").hidden = !text;
  $("problem").textContent = text;
}
async function ask(path, options) {
  const headers = { ...options.headers, Authorization: `Bearer ${sessionStorage.getItem("gpgc-token") || ""}` };
  const answer = await fetch(`api/${path}`, { ...options, headers });
  if (answer.ok) return answer;
  const { error } = await answer.json().catch(() => ({ error: answer.statusText }));
  throw Object.assign(new Error(error), { status: answer.status });
}
const post = (body) => ({ method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
const call = async (name, body = {}) => (await ask(name, post(body))).json();
// The answer of a request that is repeated until the server answers.
async function insist(name, body) {
  for (;;) {
    try {
      const answer = await call(name, body);
      showProblem("");
      return answer;
    } catch (error) {
      showProblem(error.status === 401 ? WRONG_TOKEN : error.status ? error.message : "The server does not answer; trying again…");
      await pause(1500);
    }
  }
}
const data = await insist("start");
const twoClasses = data.classes.length === 2, session = makeId();
const imageAt = (number) => Object.fromEntries(Object.entries(data.images).map(([name, values]) => [name, values[number]]));

// -- verdicts: those of everybody, and those of this browser that the server has not confirmed yet ------------
const verdicts = new Map(), mine = [];
const PREFIX = `gpgc-review-${data.key}-`;
function readVerdicts() {
  verdicts.clear();
  for (const each of data.verdicts) verdicts.set(each.image, each);
}
readVerdicts();
const decidedKind = (image) => { const own = verdicts.get(image); return own && own.kind !== "withdrawn" ? own : null; };
function stored() {
  const found = [];
  for (let i = 0; i < localStorage.length; i++) {
    const key = localStorage.key(i);
    if (key.startsWith(PREFIX)) try { found.push(JSON.parse(localStorage.getItem(key))); } catch { /* not ours */ }
  }
  return found.sort((one, other) => one.queued - other.queued);
}
let outbox = [];
try { outbox = stored(); } catch { /* no storage */ }
for (const each of outbox) verdicts.set(each.body.image, { ...each.body, by: each.body.name });
const isWaiting = (image) => outbox.some((each) => each.body.image === image);
function forget(item) {
  outbox = outbox.filter((each) => each !== item);
  try { localStorage.removeItem(PREFIX + item.body.id); } catch { /* no storage */ }
}
let name = "";
try { name = localStorage.getItem("gpgc-review-name") || ""; } catch { /* no storage */ }
function send(image, kind, more = {}) {
  const body = { id: makeId(), image, kind, name, ...more }, item = { body, queued: Date.now() };
  outbox.push(item);
  try { localStorage.setItem(PREFIX + body.id, JSON.stringify(item)); } catch { /* too large: kept in memory */ }
  verdicts.set(image, { image, kind, by: name, id: body.id });
  flush();
  return body.id;
}
let sending = false;
async function flush() {
  if (sending) return;
  sending = true;
  while (outbox.length) {
    const item = outbox[0];
    try {
      await call("verdict", item.body);
      forget(item);
      showProblem("");
    } catch (error) {
      const kept = `${plural(outbox.length, "verdict is", "verdicts are")} kept in this browser and sent again`;
      if (error.status === 401) showProblem(`${WRONG_TOKEN} ${kept} then.`);
      else if (error.status >= 400 && error.status < 500) {
        forget(item);
        await reload();
        report(`${data.images.image[item.body.image]}: ${error.message}`, true);
        continue;
      } else showProblem(`${error.status ? `Not saved: ${error.message}.` : "The server does not answer."} ${kept}.`);
      await pause(1000);
    }
  }
  sending = false;
  sync();
}
