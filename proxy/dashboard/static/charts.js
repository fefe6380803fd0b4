// Charts of the dashboard and of `prefold report --html`: figures in, traces of plotly.js out.
// Knows nothing of where figures come from. Without plotly.js nothing is drawn.
"use strict";

const charts = (() => {
  const colours = () => {
    const style = getComputedStyle(document.documentElement);
    const read = (name) => style.getPropertyValue(name).trim();
    return {
      ink: read("--ink"), faint: read("--faint"), line: read("--line"),
      series: ["--c1", "--c2", "--c3", "--c4", "--c5", "--c6"].map(read),
    };
  };

  const merged = (base, more) => {
    const made = { ...base };
    for (const [name, value] of Object.entries(more)) {
      const nested = value && typeof value === "object" && !Array.isArray(value);
      made[name] = nested ? merged(base[name] ?? {}, value) : value;
    }
    return made;
  };

  const layout = (more) => {
    const { ink, faint, line, series } = colours();
    const axis = {
      gridcolor: line, zerolinecolor: faint, linecolor: line, automargin: true, fixedrange: true,
      tickfont: { color: faint }, title: { font: { color: faint, size: 12 }, standoff: 6 },
    };
    return merged({
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", colorway: series,
      font: { color: ink, size: 12, family: "system-ui, sans-serif" },
      margin: { l: 8, r: 12, t: 8, b: 8 }, xaxis: axis, yaxis: axis,
      legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom" }, hovermode: "closest",
      dragmode: false,
    }, more);
  };

  const available = () => typeof Plotly !== "undefined";

  // `made`: {traces, layout}, or null where there is nothing to draw yet.
  const draw = (element, made, absent = "nothing yet") => {
    if (made === null || !available()) {
      if (available()) Plotly.purge(element);
      element.classList.add("empty");
      element.textContent = made === null ? absent : "";
      element.hidden = made !== null;
      element.style.height = "";
      return;
    }
    if (element.classList.contains("empty")) element.textContent = "";
    element.classList.remove("empty");
    element.style.height = made.layout.height ? `${made.layout.height}px` : "";
    Plotly.react(element, made.traces, layout(made.layout),
      { displayModeBar: false, responsive: true });
  };

  // Of a total that grows, what came in the `window` samples up to each one.
  const grown = (values, window) =>
    values.map((value, at) => value - values[Math.max(0, at - window)]);
  const perSecond = (series, values, window) => {
    const seconds = grown(series.at, window);
    return grown(values, window).map((more, at) => (seconds[at] > 0 ? more / seconds[at] : null));
  };
  const moments = (series) => series.at.map((seconds) => new Date(seconds * 1000));
  const line = (name, x, y, more = {}) =>
    merged({ type: "scatter", mode: "lines", name, x, y, line: { width: 2 } }, more);
  const unified = { hovermode: "x unified", xaxis: { tickangle: 0, nticks: 4 } };

  // Counts have no halves.
  const steps = (most) => (most < 5 ? { dtick: 1, range: [0, Math.max(most, 1) + 0.1] } : {});

  const loads = (series) => {
    if (series.at.length < 2) return null;
    const x = moments(series);
    return {
      traces: [
        line("in flight", x, series.in_flight, { fill: "tozeroy", line: { shape: "hv" } }),
        line("waiting", x, series.waiting, { line: { shape: "hv" } }),
      ],
      layout: { ...unified, yaxis: { rangemode: "tozero", ...steps(Math.max(...series.in_flight, ...series.waiting)) } },
    };
  };

  const tokens = (series) => {
    if (series.at.length < 2 || !series.prompt_tokens.at(-1)) return null;
    const computed = series.prompt_tokens.map((all, at) => all - series.saved_tokens[at]);
    const x = moments(series);
    const stacked = { stackgroup: "tokens", hovertemplate: "%{y:,.0f}" };
    return {
      traces: [
        line("computed", x, perSecond(series, computed, 6), { ...stacked, line: { color: colours().series[1] } }),
        line("saved", x, perSecond(series, series.saved_tokens, 6), { ...stacked, line: { color: colours().series[2] } }),
      ],
      layout: { ...unified, yaxis: { rangemode: "tozero" } },
    };
  };

  const hits = (series) => {
    if (!series.at.length || !series.compared_tokens.at(-1)) return null;
    const all = grown(series.compared_tokens, 12);
    const share = (values) =>
      grown(values, 12).map((cached, at) => (all[at] > 0 ? cached / all[at] : null));
    const x = moments(series);
    const dashes = { available: "dot", expected: "dash", reported: "solid" };
    return {
      traces: Object.entries(dashes).map(([name, dash]) =>
        line(name, x, share(series[`${name}_tokens`]), { line: { dash }, hovertemplate: "%{y:.1%}" })),
      layout: { ...unified, yaxis: { range: [0, 1.02], tickformat: ".0%", dtick: 0.25 } },
    };
  };

  // From a 1, 2 or 5 of some decade to another one, so that narrow ranges have marks too.
  const marks = (least, most) => {
    const all = [];
    for (let decade = Math.floor(Math.log10(least)); decade <= Math.ceil(Math.log10(most)); decade += 1) {
      all.push(...[1, 2, 5].map((step) => step * 10 ** decade));
    }
    const first = all.findLastIndex((mark) => mark <= least);
    const last = all.findIndex((mark) => mark >= most);
    return all.slice(first, last + 1);
  };
  const logarithmic = (values) => {
    const shown = marks(Math.min(...values), Math.max(...values));
    const thin = Math.ceil(shown.length / 8);
    return {
      type: "log", range: [Math.log10(shown[0]), Math.log10(shown.at(-1))],
      tickvals: shown.filter((_, at) => at % thin === 0), tickformat: "~r",
    };
  };

  // `groups`: {name: {count, points: [[share, ms], ...]}}.
  const times = (groups) => {
    const named = Object.entries(groups).filter(([, one]) => one.points.length);
    if (!named.length) return null;
    return {
      traces: named.map(([name, { points }]) =>
        line(name, points.map(([, ms]) => ms), points.map(([share]) => share),
          { hovertemplate: "%{y:.1%} within %{x:,.1f} ms" })),
      layout: {
        showlegend: named.length > 1,
        xaxis: { title: { text: "ms" }, ...logarithmic(named.flatMap(([, { points }]) => points.map(([, ms]) => ms))) },
        yaxis: { range: [0, 1.02], tickformat: ".0%", dtick: 0.25 },
      },
    };
  };

  const across = (names, values, more = {}) => ({
    traces: [{
      type: "bar", orientation: "h", y: names, x: values, hovertemplate: "%{x:,}<extra></extra>",
      text: values.map((value) => value.toLocaleString("en")), textposition: "auto", ...more,
    }],
    layout: { height: 56 + 34 * names.length, xaxis: { rangemode: "tozero", nticks: 5 }, yaxis: { autorange: "reversed" }, showlegend: false },
  });

  // `models`: /report's `compression`.
  const compression = (models) => {
    const counts = new Map();
    for (const { requests } of Object.values(models)) {
      for (const [name, count] of Object.entries(requests)) counts.set(name, (counts.get(name) ?? 0) + count);
    }
    if (!counts.size) return null;
    const rows = [...counts].sort(([, one], [, other]) => other - one);
    return across(rows.map(([name]) => name), rows.map(([, count]) => count));
  };

  const divergence = (rows) => {
    const lost = new Map();
    for (const row of rows) lost.set(row.kind, (lost.get(row.kind) ?? 0) + row.lost_tokens);
    if (!lost.size) return null;
    const sorted = [...lost].sort(([, one], [, other]) => other - one);
    return across(sorted.map(([kind]) => kind.replaceAll("_", " ")), sorted.map(([, count]) => count));
  };

  // A comparison's `curve`: gain of TTFT in ms against uncached tokens, with bounds.
  const breakEven = (curve) => {
    if (!curve) return null;
    const { bins, crossing } = curve;
    const gain = (one) => one.gain_ms;
    const { faint, series } = colours();
    const shapes = crossing === null ? [] : [
      { type: "rect", yref: "paper", y0: 0, y1: 1, x0: crossing.low, x1: crossing.high, fillcolor: series[2], opacity: 0.15, line: { width: 0 } },
      { type: "line", yref: "paper", y0: 0, y1: 1, x0: crossing.tokens, x1: crossing.tokens, line: { color: faint, dash: "dash", width: 1 } },
    ];
    return {
      traces: [{
        type: "scatter", mode: "lines+markers", x: bins.map((one) => one.centre), y: bins.map(gain),
        error_y: {
          type: "data", array: bins.map((one) => one.high - one.gain_ms),
          arrayminus: bins.map((one) => one.gain_ms - one.low), thickness: 1.2,
        },
        hovertemplate: "%{x:,.0f} uncached tokens: %{y:+,.1f} ms<extra></extra>",
      }],
      layout: {
        shapes, showlegend: false,
        xaxis: { title: { text: "uncached prompt tokens" }, tickformat: "~s" },
        yaxis: { title: { text: "TTFT gained, ms" }, zeroline: true },
      },
    };
  };

  // Of a comparison: differences with bounds, as shares of the control's mean.
  const differences = (told) => {
    const known = told.filter((one) => one.interval !== null && one.control > 0);
    if (!known.length) return null;
    const share = (one, value) => value / one.control;
    return {
      traces: [{
        type: "scatter", mode: "markers", marker: { size: 9 },
        y: known.map((one) => one.metric), x: known.map((one) => share(one, one.interval.difference)),
        error_x: {
          type: "data", thickness: 1.5,
          array: known.map((one) => share(one, one.interval.high - one.interval.difference)),
          arrayminus: known.map((one) => share(one, one.interval.difference - one.interval.low)),
        },
        hovertemplate: "%{y}: %{x:+.1%}<extra></extra>",
      }],
      layout: {
        showlegend: false, yaxis: { autorange: "reversed" },
        xaxis: { tickformat: "+.0%", zeroline: true, title: { text: "against the control's mean" } },
      },
    };
  };

  return { available, colours, draw, loads, tokens, hits, times, across, compression, divergence, breakEven, differences };
})();
