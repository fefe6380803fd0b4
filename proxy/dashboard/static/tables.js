// Tables of the dashboard: figures in, rows of cells out. Text only ever becomes text nodes.
"use strict";

const tables = (() => {
  const UNKNOWN = "-"; // is not zero
  const whole = (value) => (value === null || value === undefined ? UNKNOWN : Math.round(value).toLocaleString("en"));
  const share = (part, all) => (part === null || !all ? UNKNOWN : `${((100 * part) / all).toFixed(1)} %`);
  const ms = (value) => (value === null || value === undefined ? UNKNOWN : value < 100 ? value.toFixed(1) : whole(value));
  const seconds = (value) => (value === null ? UNKNOWN : `${value.toFixed(2)} s`);

  const cell = (tag, value, isText) => {
    const made = document.createElement(tag);
    made.append(value);
    if (isText) made.className = "text";
    return made;
  };

  // `columns`: [name, isText, value of a row, which is a string or a node].
  const fill = (table, columns, rows) => {
    const head = document.createElement("tr");
    head.append(...columns.map(([name, isText]) => cell("th", name, isText)));
    const body = rows.map((row) => {
      const made = document.createElement("tr");
      made.append(...columns.map(([, isText, value]) => cell("td", value(row), isText)));
      return made;
    });
    table.replaceChildren(...(rows.length ? [head, ...body] : []));
  };

  const filled = (part, all, text) => {
    const made = document.createElement("span");
    const meter = document.createElement("meter");
    meter.max = all;
    meter.value = Math.min(part, all);
    made.append(meter, text);
    return made;
  };
  const load = (one) =>
    filled(one.in_flight, one.max_in_flight, `${one.in_flight} of ${one.max_in_flight}`);
  const cache = (one) => {
    const { believed_tokens: held, capacity_tokens: room } = one;
    return room === null ? whole(held) : filled(held, room, `${whole(held)} of ${whole(room)}`);
  };
  const state = (one) => {
    const made = document.createElement("span");
    made.append(one.state);
    if (one.state !== "up") made.className = "bad";
    return made;
  };
  const mode = (one) => {
    const made = document.createElement("span");
    made.append(one.mode);
    made.title = one.mode_reason;
    return made;
  };

  const backends = (table, list, reports) =>
    fill(table, [
      ["backend", true, (one) => one.name],
      ["state", true, state],
      ["mode", true, mode],
      ["in flight", true, load],
      ["cache, believed tokens", true, cache],
      ["queued", false, (one) => whole(one.queued_tokens)],
      ["prefill/s", false, (one) => whole(one.prefill_tokens_per_s)],
      ["mispredicted", false, (one) => share(one.prediction_error, 1)],
      ["requests", false, (one) => whole(reports[one.name]?.requests ?? 0)],
      ["saved", false, (one) => whole(reports[one.name]?.prefill_tokens_saved)],
      ["share", false, (one) => share(reports[one.name]?.prefill_tokens_saved ?? null, reports[one.name]?.prompt_tokens)],
    ], list);

  const METRICS = [["ttft_ms", "TTFT"], ["itl_ms", "ITL"], ["e2e_ms", "E2E"]];

  const times = (table, groups) =>
    fill(table, [
      ["requests of", true, ([name]) => name],
      ["", true, ([, , label]) => label],
      ["n", false, ([, told]) => whole(told.count)],
      ["p50 ms", false, ([, told]) => ms(told.p50)],
      ["p90 ms", false, ([, told]) => ms(told.p90)],
      ["p99 ms", false, ([, told]) => ms(told.p99)],
    ], Object.entries(groups).flatMap(([name, totals]) =>
      METRICS.map(([metric, label]) => [name, totals[metric], label])));

  const compression = (table, models) =>
    fill(table, [
      ["model", true, ([name]) => name],
      ["tokens removed", false, ([, told]) => whole(told.removed_tokens)],
      ["looked on", false, ([, told]) => whole(told.shadow_tokens)],
      ["gain predicted", false, ([, told]) => seconds(told.predicted_gain_s)],
      ["measured", false, ([, told]) => seconds(told.measured_gain_s)],
    ], Object.entries(models));

  const divergence = (table, rows) =>
    fill(table, [
      ["what differs", true, (row) => row.kind.replaceAll("_", " ")],
      ["from token", false, (row) => whole(row.position)],
      ["requests", false, (row) => whole(row.requests)],
      ["share", false, (row) => share(row.share, 1)],
      ["tokens lost", false, (row) => whole(row.lost_tokens)],
      ["template", true, (row) => row.template],
    ], rows.slice(0, 10));

  return { whole, share, ms, backends, times, compression, divergence };
})();
