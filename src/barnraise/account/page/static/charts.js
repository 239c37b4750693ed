// Charts with uPlot: each has a sentence for readers who do not see it, and a table with the same values.
"use strict";
(function () {
  var MOST_ROWS = 200;
  var shown = [];
  var observer = window.ResizeObserver ? new ResizeObserver(function (entries) {
    entries.forEach(function (entry) {
      shown.forEach(function (one) { if (one.plot === entry.target && one.drawn) one.drawn.setSize({ width: entry.contentRect.width, height: one.options.height }); });
    });
  }) : null;

  function series(options) {
    return [{ label: options.xlabel, value: function (plot, value) { return options.x(value); } }].concat(options.series.map(function (one, at) {
      var colour = barn.colour(one.colour || "c" + at % 6);
      return {
        label: one.label, stroke: colour, width: 2, dash: one.dash, points: { show: one.points, size: 5 }, spanGaps: true,
        paths: one.bars && window.uPlot ? uPlot.paths.bars({ size: [0.9, 60] }) : undefined,
        fill: one.bars ? colour : undefined,
        value: function (plot, value) { return options.y(value); },
      };
    }));
  }
  function axis(format, label, size) {
    return {
      stroke: barn.colour("soft"), grid: { stroke: barn.colour("line"), width: 1 }, ticks: { stroke: barn.colour("line") },
      label: label, labelSize: 18, font: "12px system-ui", labelFont: "12px system-ui", size: size,
      values: function (plot, values) { return values.map(function (value) { return value === null ? "" : format(value); }); },
    };
  }
  function draw(one) {
    if (one.drawn) one.drawn.destroy();
    one.drawn = null;
    one.plot.replaceChildren();
    if (!window.uPlot) {
      one.plot.append("The charts' library is not installed here: the table has the values.");
      one.details.open = true;
      return;
    }
    var options = one.options;
    one.drawn = new uPlot({
      width: one.plot.clientWidth || 300, height: options.height, series: series(options), cursor: { drag: { x: true, y: false } },
      scales: { x: { time: false }, y: { range: options.series[0].bars ? function (plot, least, most) { return [0, 1.05 * most || 1]; } : undefined } },
      axes: [Object.assign(axis(options.x, options.xlabel, 42), { space: 90 }), axis(options.y, options.ylabel, 58)], legend: { live: true },
    }, one.values, one.plot);
  }

  // Return a chart: options have title, x and y (formats), xlabel, ylabel, series, height.
  // Its `update(values, sentence)` takes columns: x, then one for each series.
  barn.chart = function (options) {
    options.height = options.height || 220;
    var caption = barn.el("figcaption", {}), plot = barn.el("div", { class: "plot", role: "img" });
    var body = barn.el("div", {}), details = barn.el("details", {}, barn.el("summary", {}, "Table: " + options.title), body);
    var one = { options: options, plot: plot, details: details, values: null, drawn: null, element: barn.el("figure", {}, caption, plot, details) };
    function list() {
      if (!details.open || !one.values) return;
      var columns = one.values, count = columns[0].length, stride = Math.max(1, Math.ceil(count / MOST_ROWS)), rows = [];
      for (var at = count - 1; at >= 0; at -= stride) {
        rows.push(columns.map(function (column, place) { return (place ? options.y : options.x)(column[at]); }));
      }
      var before = body.querySelector(".scroll"), place = before ? before.scrollTop : 0;
      barn.fill(body, barn.table([options.xlabel].concat(options.series.map(function (s) { return s.label; })), rows.reverse(),
        columns.map(function (_, place) { return place; }), options.title));
      body.querySelector(".scroll").scrollTop = place;
    }
    details.addEventListener("toggle", list);
    one.update = function (values, sentence) {
      var fits = one.drawn && one.values && values.length === one.values.length;
      one.values = values;
      if (caption.textContent !== sentence) { caption.textContent = sentence; plot.setAttribute("aria-label", options.title + ": " + sentence); }
      if (fits) one.drawn.setData(values); else if (plot.isConnected) draw(one);
      list();
    };
    one.show = function () { if (one.values) draw(one); if (observer) observer.observe(plot); };
    one.close = function () { if (one.drawn) one.drawn.destroy(); if (observer) observer.unobserve(plot); shown.splice(shown.indexOf(one), 1); };
    shown.push(one);
    return one;
  };
  // Draw charts again where the colours change.
  if (window.matchMedia) matchMedia("(prefers-color-scheme: dark)").addEventListener("change", function () {
    shown.forEach(function (one) { if (one.drawn) draw(one); });
  });
})();
