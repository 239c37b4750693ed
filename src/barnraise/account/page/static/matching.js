// The matching of tasks and workers: the market over the time, tasks now, and workers without one.
"use strict";
(function () {
  barn.views.matching = {
    title: "Matching",
    start: function (main) {
      var data = null, state = barn.el("p", {}), figures = barn.el("p", {}), doing = barn.el("div", {}), held = barn.el("div", {});
      var shares = barn.chart({ title: "Stability", x: barn.duration, y: barn.percent, xlabel: "time", ylabel: "share", series: [
        { label: "stable by time alone" }, { label: "but for gains below a tenth", dash: [6, 4] }, { label: "at prices in use", dash: [2, 3] }] });
      var moves = barn.chart({ title: "Moves", x: barn.duration, y: barn.short, xlabel: "time", ylabel: "since the controller started", series: [
        { label: "moves" }, { label: "from one worker to another", dash: [6, 4] }] });
      var blocks = barn.chart({ title: "Blocking pairs and regret", x: barn.duration, y: barn.percent, xlabel: "time", ylabel: "share", series: [
        { label: "pairs that block" }, { label: "above the least cost", dash: [6, 4] }] });
      barn.fill(main, barn.card("Market", state, figures),
        barn.el("div", { class: "cards" }, barn.card("Stability", shares.element), barn.card("Moves", moves.element), barn.card("What blocks", blocks.element)),
        barn.el("div", { class: "cards" }, barn.card("Who does what", doing), barn.card("Who gets no task, and why", held)));
      [shares, moves, blocks].forEach(function (one) { one.show(); });
      function draw() {
        if (!data) return;
        var points = barn.eventsUntil(data.market), last = points[points.length - 1];
        function column(at) { return points.map(function (one) { return one[at] === null || one[at] < 0 ? null : one[at]; }); }
        state.textContent = data.stands[0] === null ? "It is not known whether a market stands: " + data.stands[1] : (data.stands[0] ? "A market stands: " : "No market stands: ") + data.stands[1];
        figures.textContent = (data.idle === null ? "" : "Workers were without a task " + barn.percent(data.idle) + " of their time; " + barn.percent(data.conflicts) + " of tasks were given back, lost or refused. ") +
          (data.error[0] === null ? "" : "Tasks take " + barn.percent(data.error[0]) + " more or less than expected, in the median of " + barn.number(data.error[2]) + ".");
        shares.update([column(0), column(5), column(6), column(7)], last ? "now " + barn.percent(last[5]) + " of matched pairs are in no blocking pair" : "no market was told of yet");
        moves.update([column(0), column(3), column(4)], last ? barn.number(last[3]) + " moves of tasks" : "no moves yet");
        blocks.update([column(0), column(8), column(9)], last ? "now " + barn.percent(last[8]) + " of acceptable pairs block" : "none yet");
        barn.fill(doing, data.doing.length ? barn.table(["worker", "task", "since"], data.doing.map(function (one) { return [one[0], one[1], barn.duration(one[2])]; }), [], "Who does what")
          : barn.el("p", { class: "soft" }, "No worker has a task now."));
        barn.fill(held, data.held.length ? barn.table(["worker", "why"], data.held, [], "Who gets no task") : barn.el("p", { class: "soft" }, "Nothing holds a worker off."));
      }
      var ends = [barn.follow("matching", function (found) { data = found; draw(); }), barn.ontime(draw)];
      return function () { ends.forEach(function (end) { end(); }); [shares, moves, blocks].forEach(function (one) { one.close(); }); };
    },
  };
})();
