// Draws the charts of one report, out of the figures that are in the page.
"use strict";

(() => {
  const told = JSON.parse(document.getElementById("told").textContent);
  const groups = [told.total, ...told.groups];
  const named = (value) => Object.fromEntries(groups.map((one) => [one.name, value(one)]));

  // The percentiles of a spread as points of its distribution.
  const points = (spread) => Object.entries(spread.percentiles)
    .filter(([, ms]) => ms !== null)
    .map(([name, ms]) => [Number(name.slice(1)) / 100, ms]);
  const times = (metric) => charts.times(named(({ metrics }) => ({ points: metrics[metric] ? points(metrics[metric]) : [] })));

  const saved = () => {
    const known = groups.filter(({ savings }) => savings.saved_tokens !== null);
    if (!known.length) return null;
    const bar = (name, value, colour) => ({ type: "bar", orientation: "h", name, marker: { color: charts.colours().series[colour] }, y: known.map((one) => one.name), x: known.map(value), hovertemplate: "%{x:,}" });
    return {
      traces: [
        bar("saved", ({ savings }) => savings.saved_tokens, 2),
        bar("computed", ({ savings }) => savings.prompt_tokens - savings.saved_tokens, 1),
      ],
      layout: { barmode: "stack", yaxis: { autorange: "reversed" }, xaxis: { nticks: 5 } },
    };
  };
  const policies = () => {
    const shadows = told.counterfactual?.shadows ?? [];
    return shadows.length ? charts.across(shadows.map((one) => one.policy), shadows.map((one) => one.reused_tokens)) : null;
  };

  const draw = () => {
    for (const place of document.querySelectorAll("[data-chart]")) {
      const [kind, at] = place.dataset.chart.split(":");
      const make = {
        saved, policies, times: () => times(at),
        curve: () => charts.breakEven(told.comparisons[at].curve),
        differences: () => charts.differences(told.comparisons[at].differences),
      }[kind];
      charts.draw(place, make());
    }
  };
  draw();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
})();
