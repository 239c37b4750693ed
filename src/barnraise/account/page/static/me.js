// The page of one worker, for the person who lends it.
"use strict";
(function () {
  var KINDS = ["training", "evaluating", "auditing", "uploading", "downloading", "waiting", "away"], EVERY = 5000;
  var main = document.getElementById("main"), asked = location.search;
  function share(lane) {
    var told = KINDS.map(function () { return 0; }), letters = lane ? lane[1] : "";
    for (var at = 0; at < letters.length; at++) told[at % 7] += parseInt(letters[at], 36);
    var sum = told.reduce(function (a, b) { return a + b; }, 0) || 1;
    return KINDS.map(function (name, at) { return [name, barn.percent(told[at] / sum)]; }).filter(function (one) { return one[1] !== "0%"; });
  }
  function show(one) {
    if (!one.known) { barn.fill(main, barn.el("p", { class: "note warn" }, "The run has no such worker yet. This page fills once it has joined.")); return; }
    document.title = one.name + " in " + one.run.name;
    var o = one.outcomes;
    barn.fill(document.getElementById("top"), barn.el("h1", {}, one.name), barn.el("span", { class: "state " + (one.state === "training" ? "good" : "soft") }, one.state));
    barn.fill(main,
      barn.el("p", { class: "big" }, "Your machine trained " + barn.number(one.steps) + " steps, " + barn.bytes(one.bytes) + " sent."),
      barn.el("div", { class: "cards" },
        barn.card("In the run " + one.run.name, barn.el("p", {}, barn.short(one.tokens) + " tokens, " + barn.percent(one.share) + " of the run's; place " + one.rank + " of " + one.of + "."),
          barn.el("p", {}, "The run is " + one.run.state + ", at " + barn.percent(Math.min(1, one.run.tokens / one.run.budget)) + " of its tokens."),
          barn.el("p", { class: "soft" }, one.device + "; " + barn.duration(one.seconds) + " of work")),
        barn.card("What became of its results", barn.table(["outcome", "results"], [["accepted", barn.number(o[0])], ["measurements and checks", barn.number(o[1])], ["refused", barn.number(o[2])], ["left over", barn.number(o[3])], ["taken back", barn.number(o[4])]], [1], "Results")),
        barn.card("How it spent its time", barn.table(["activity", "share"], share(one.lane[one.name]), [1], "Activities"))));
  }
  function load() {
    barn.ask("/data/me" + asked).then(show, function (error) { barn.fill(main, barn.el("p", { class: "note bad" }, error.message)); })
      .finally(function () { setTimeout(load, EVERY); });
  }
  load();
})();
