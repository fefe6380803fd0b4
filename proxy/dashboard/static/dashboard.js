// The dashboard's page: asks the admin port for figures and shows them. The key, where one is
// needed, is held for this tab only.
"use strict";

const EVERY_MS = 5000; // as often as samples are taken
const LEDGER_EVERY_MS = 10000;
const KEY = "prefold admin key";
const byId = (id) => document.getElementById(id);
const figure = (name) => document.querySelector(`[data-figure="${name}"]`);
const chart = (name) => document.querySelector(`[data-chart="${name}"]`);
const table = (name) => document.querySelector(`[data-table="${name}"]`);

class KeyNeeded extends Error {}

async function ask(path) {
  const key = sessionStorage.getItem(KEY);
  const headers = key === null ? {} : { Authorization: `Bearer ${key}` };
  const answer = await fetch(`dashboard/${path}`, { headers, cache: "no-store" });
  if (answer.status === 401) throw new KeyNeeded();
  if (!answer.ok) throw new Error(`the admin port answers ${answer.status}`);
  return answer.json();
}

const say = (text, isBad = false) => {
  byId("status").textContent = text;
  byId("status").classList.toggle("bad", isBad);
};
const pair = (told) => `${tables.ms(told.p50)} / ${tables.ms(told.p90)}`;

function showNow({ waiting, backends, report: { total } }) {
  const inFlight = backends.reduce((sum, one) => sum + one.in_flight, 0);
  const saved = total.prefill_tokens_saved;
  figure("in_flight").textContent = tables.whole(inFlight);
  figure("waiting").textContent = tables.whole(waiting);
  figure("requests").textContent = tables.whole(total.requests);
  figure("saved").textContent = saved === null ? "unknown" : tables.whole(saved);
  figure("saved_share").textContent = tables.share(saved, total.prompt_tokens);
  figure("ttft").textContent = pair(total.ttft_ms);
  figure("itl").textContent = pair(total.itl_ms);
  const hits = total.hits;
  figure("hits").textContent = hits === null ? "" : `Since start, of ${tables.whole(hits.requests)} requests:` +
    ["available", "expected", "reported"].map((kind) =>
      ` ${kind} ${tables.share(hits[`${kind}_tokens`], hits.prompt_tokens)}`).join(",") + ".";
}

function show(told) {
  const { report, series, distributions } = told;
  showNow(told);
  for (const name of ["loads", "tokens", "hits"]) charts.draw(chart(name), charts[name](series));
  tables.backends(table("backends"), told.backends, report.backends);
  for (const metric of ["ttft_ms", "itl_ms", "e2e_ms"]) {
    const groups = Object.entries(distributions).map(([name, group]) => [name, group[metric]]);
    charts.draw(chart(metric), charts.times(Object.fromEntries(groups)), "no streamed answers yet");
  }
  const arms = Object.keys(report.arms);
  figure("arms").textContent = arms.length ? "by arm" : "of all requests";
  tables.times(table("times"), arms.length ? report.arms : { all: report.total });
  charts.draw(chart("compression"), charts.compression(report.compression), "compression looked at no request");
  tables.compression(table("compression"), report.compression);
  charts.draw(chart("divergence"), charts.divergence(report.divergence.rows), "no prompt was compared, or none parts from another");
  tables.divergence(table("divergence"), report.divergence.rows);
  figure("looked").textContent = report.divergence.looked_at
    ? `${tables.whole(report.divergence.looked_at)} prompts were compared with recent ones; ${tables.whole(report.divergence.alike)} parted from none.`
    : "Prompts are compared where diagnosis.divergence is on.";
}

const LEDGER = {
  none: () => "Needs a ledger: ledger.path in the settings.",
  reading: () => "The ledger is being read.",
  failed: (told) => `The ledger could not be read: ${told.reason}`,
  ready: (told) => `From the ledger's last ${told.since}, read anew every five minutes.`,
};

function showLedger(told) {
  byId("ledger").textContent = LEDGER[told.state](told);
  if (told.state !== "ready") return;
  const comparisons = told.report.comparisons;
  byId("verdicts").replaceChildren(...comparisons.map(({ verdict }) => element("p", verdict)));
  const curves = comparisons.filter(({ curve }) => curve !== null);
  while (byId("curves").children.length > curves.length) byId("curves").lastElementChild.remove();
  curves.forEach(({ treated, control, curve }, at) => {
    const place = byId("curves").children[at] ?? byId("curves").appendChild(figureOf());
    place.firstElementChild.textContent = `Break-even of ${treated} against ${control}`;
    charts.draw(place.lastElementChild, charts.breakEven(curve));
  });
  // What breaks prefixes is shown above: a ledger does not hold it.
  const answers = told.diagnosis.answers.filter(({ key }) => key !== "prefix_breaks");
  byId("diagnosis").replaceChildren(...answers.flatMap((one) =>
    [element("dt", one.question), element("dd", one.sentence)]));
}

function element(tag, text) {
  const made = document.createElement(tag);
  made.textContent = text;
  return made;
}

function figureOf() {
  const made = document.createElement("figure");
  const place = document.createElement("div");
  place.className = "chart";
  made.append(document.createElement("figcaption"), place);
  return made;
}

let latest = null;
let latestLedger = null;
let ledgerAsked = -Infinity;

function redraw() {
  if (latest !== null) show(latest);
  if (latestLedger !== null) showLedger(latestLedger);
}

async function renew() {
  latest = await ask("figures");
  byId("door").hidden = true;
  byId("figures").hidden = false;
  show(latest);
  say(`at ${new Date(latest.now * 1000).toLocaleTimeString()}`);
  if (performance.now() - ledgerAsked > LEDGER_EVERY_MS) {
    ledgerAsked = performance.now();
    latestLedger = await ask("ledger");
    showLedger(latestLedger);
  }
}

async function watch() {
  try {
    if (!document.hidden) await renew();
  } catch (error) {
    if (error instanceof KeyNeeded) {
      sessionStorage.removeItem(KEY);
      byId("figures").hidden = true;
      byId("door").hidden = false;
      say("needs its key");
      return; // until one is given
    }
    say(`no answer since ${latest === null ? "the start" : new Date(latest.now * 1000).toLocaleTimeString()} (${error.message})`, true);
  }
  setTimeout(watch, EVERY_MS);
}

byId("door").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem(KEY, byId("key").value);
  byId("key").value = "";
  say("asking");
  watch();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
byId("missing").hidden = charts.available();
watch();
